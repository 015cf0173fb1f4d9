"""The shell of the service proxy: opens what is to be listened on, and connects clients to endpoints."""

import asyncio
import errno
import os
from dataclasses import dataclass
from ipaddress import IPv4Network

from grange.agent.service_proxy.balancer import Balancer, Endpoint
from grange.agent.service_proxy.relay import RelaySide
from grange.agent.service_proxy.routes import Frontend, Route, routes
from grange.api.kinds import ENDPOINTSLICE, SERVICE
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import WARNING, Recorder

NAME = "service-proxy"
_BATCH_S = 0.02
_RETRY_S = 5.0  # another program may let go of a port
_CONNECT_S = 3.0
_BACKLOG = 512


@dataclass(slots=True)
class _Open:
    """What is listened on. Closing the server leaves its connections alone."""

    balancer: Balancer
    server: asyncio.Server


class ServiceProxy:
    """Serves the addresses of Services on this machine; ``run`` it once per machine.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        network: the cluster addresses that belong to this machine.
    """

    def __init__(self, deps: Deps, network: IPv4Network) -> None:
        self._network = network
        self._clock: Clock = deps.clock
        self._log = deps.log.bind(service=NAME)
        self._services = deps.informers.informer(SERVICE)
        self._slices = deps.informers.informer(ENDPOINTSLICE)
        self._recorder = Recorder(
            deps.client,
            NAME,
            clock=deps.clock,
            rng=deps.rng.fork(NAME),
            log=deps.log,
            metrics=deps.metrics,
        )
        self._changed = asyncio.Event()
        self._open: dict[Frontend, _Open] = {}
        self._refused: dict[Frontend, str] = {}
        self._sides: set[RelaySide] = set()
        self._nursery: Nursery | None = None
        self._listens = False

    async def run(self) -> None:
        """Serve until cancelled; then every listener is closed and every connection is reset."""
        async with Nursery(NAME) as nursery:
            self._nursery = nursery
            nursery.start(self._recorder.run(), name="event recorder")
            try:
                await self._services.synced.wait()
                await self._slices.synced.wait()
                self._listen()
                while True:
                    self._changed.clear()
                    await self._update()
                    await self._wait()
            finally:
                for opened in self._open.values():
                    opened.server.close()
                self._open.clear()
                for side in list(self._sides):
                    side.abort()
                self._nursery = None

    def _listen(self) -> None:
        if self._listens:
            return
        self._listens = True
        for informer in (self._services, self._slices):
            informer.add_handler(self._touch, self._touch, self._touch)

    def _touch(self, *_: object) -> None:
        self._changed.set()

    async def _wait(self) -> None:
        """Wait for a change, and a moment for more of them; or try again what was refused."""
        try:
            async with self._clock.timeout(_RETRY_S if self._refused else None):
                await self._changed.wait()
        except TimeoutError:
            return
        await self._clock.sleep(_BATCH_S)

    # --- listening ----------------------------------------------------------------------------

    async def _update(self) -> None:
        wanted = routes(self._services.store.list(), self._slices.store.list(), self._network)
        for frontend in [item for item in self._open if item not in wanted]:
            self._open.pop(frontend).server.close()
        self._refused = {item: why for item, why in self._refused.items() if item in wanted}
        for frontend, route in wanted.items():
            opened = self._open.get(frontend)
            if opened is not None:
                opened.balancer.route = route
            else:
                await self._start(frontend, route)

    async def _start(self, frontend: Frontend, route: Route) -> None:
        balancer = Balancer(route)
        try:
            server = await asyncio.get_running_loop().create_server(
                lambda: RelaySide(lambda side: self._accept(side, balancer), self._sides.discard),
                frontend.host,
                frontend.port,
                backlog=_BACKLOG,
            )
        except OSError as error:
            self._refuse(frontend, route, error)
        else:
            self._open[frontend] = _Open(balancer, server)
            self._refused.pop(frontend, None)

    def _refuse(self, frontend: Frontend, route: Route, error: OSError) -> None:
        why = os.strerror(error.errno) if error.errno else str(error)
        if self._refused.get(frontend) == why:
            return
        self._refused[frontend] = why
        where = f"{frontend.host}:{frontend.port}"
        remedy = "end the program that has it, or choose another port"
        if error.errno in (errno.EACCES, errno.EPERM):
            remedy = (
                "choose a port from 1024 on, or allow lower ones "
                "(sysctl net.ipv4.ip_unprivileged_port_start)"
            )
        message = f"cannot listen on {where}: {why}; {remedy}"
        self._log.warning("service not served", service=str(route.service), address=where, why=why)
        service = self._services.store.get(route.service)
        if service is not None:
            self._recorder.event(service, WARNING, "PortNotOpened", message, kind=SERVICE)

    # --- connections --------------------------------------------------------------------------

    def _accept(self, client: RelaySide, balancer: Balancer) -> None:
        self._sides.add(client)
        if self._nursery is None:
            client.abort()
            return
        self._nursery.start(self._connect(client, balancer), name="connection")

    async def _connect(self, client: RelaySide, balancer: Balancer) -> None:
        """Connect a client to the first endpoint that accepts it, or reset it."""
        loop = asyncio.get_running_loop()
        peer = client.transport.get_extra_info("peername") if client.transport else None
        tried: frozenset[Endpoint] = frozenset()
        while client.is_connected():
            endpoint = balancer.choose(peer[0] if peer else "", self._clock.monotonic(), tried)
            if endpoint is None:
                break
            tried |= {endpoint}
            try:
                async with self._clock.timeout(_CONNECT_S):
                    _, server = await loop.create_connection(
                        lambda: RelaySide(self._sides.add, self._sides.discard), *endpoint
                    )
            except (OSError, TimeoutError):
                continue
            if not client.is_connected():  # it went away meanwhile
                server.abort()
                return
            server.join(client)
            return
        client.abort()
