"""The shell of the service proxy: opens what is to be listened on, and closes what is no longer."""

import asyncio
import errno
import os
from collections.abc import Collection, Coroutine
from ipaddress import IPv4Network

from grange.agent.service_proxy.draining import Draining
from grange.agent.service_proxy.routes import (
    UDP,
    Endpoint,
    Frontend,
    Route,
    is_exposed,
    routes,
)
from grange.agent.service_proxy.tcp_listener import TcpListener
from grange.agent.service_proxy.tunnel import Dial
from grange.agent.service_proxy.udp_listener import UdpListener
from grange.api.kinds import ENDPOINTSLICE, SERVICE
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import WARNING, Recorder

NAME = "service-proxy"
_BATCH_S = 0.02
_RETRY_S = 5.0  # another program may let go of a port


class ServiceProxy:
    """Serves the addresses of Services on this machine; ``run`` it once per machine.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        network: the cluster addresses that belong to this machine.
        nodes: those of this machine.
        dial: connects to pods on other machines.
        api: where the API server is, if its own endpoints are not for this machine.
        is_shared: the machine may have another proxy: what that listens on is left to it.
    """

    def __init__(
        self,
        deps: Deps,
        network: IPv4Network,
        nodes: Collection[str] = (),
        *,
        dial: Dial | None = None,
        api: Endpoint | None = None,
        is_shared: bool = False,
    ) -> None:
        self._network = network
        self._dial = dial
        self._api = api
        self._is_shared = is_shared
        self._nodes = frozenset(nodes)
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
        self._tcp: dict[Frontend, TcpListener] = {}  # with connections, if not listening
        self._udp: dict[Frontend, UdpListener] = {}
        self._draining = Draining()
        self._refused: dict[Frontend, str] = {}
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
                for listener in self._tcp.values():
                    listener.shut()
                    listener.abort()
                for datagrams in self._udp.values():
                    datagrams.close()
                self._tcp.clear()
                self._udp.clear()
                self._nursery = None

    def exposes(self, uid: str, port: int, protocol: str) -> bool:
        """Whether a Service leads to a port of a pod on the nodes of this machine."""
        return is_exposed(self._slices.store.list(), self._nodes, uid, port, protocol)

    def _listen(self) -> None:
        if self._listens:
            return
        self._listens = True
        for informer in (self._services, self._slices):
            informer.add_handler(self._touch, self._touch, self._touch)

    def _touch(self, *_: object) -> None:
        self._changed.set()

    async def _wait(self) -> None:
        """Wait for a change, and a moment for more of them; or for what is due without one."""
        due = [_RETRY_S] if self._refused else []
        drained = self._draining.next_s(self._clock.monotonic())
        if drained is not None:
            due.append(drained)
        try:
            async with self._clock.timeout(min(due, default=None)):
                await self._changed.wait()
        except TimeoutError:
            return
        await self._clock.sleep(_BATCH_S)

    # --- listening ----------------------------------------------------------------------------

    async def _update(self) -> None:
        wanted = routes(
            self._services.store.list(),
            self._slices.store.list(),
            self._network,
            self._nodes,
            self._api,
        )
        self._refused = {item: why for item, why in self._refused.items() if item in wanted}
        for frontend in [item for item in self._udp if not _is_served(item, wanted)]:
            self._udp.pop(frontend).close()
        for frontend, listener in self._tcp.items():
            if not _is_served(frontend, wanted):
                listener.shut()
        self._drain(wanted)
        for frontend, route in wanted.items():
            try:
                await self._serve(frontend, route)
            except OSError as error:
                self._refuse(frontend, route, error)
            else:
                self._refused.pop(frontend, None)

    def _drain(self, wanted: dict[Frontend, Route]) -> None:
        links = {(front, end) for front, item in self._tcp.items() for end in item.endpoints()}
        for frontend, endpoint in self._draining.overdue(links, wanted, self._clock.monotonic()):
            self._tcp[frontend].abort(endpoint)
        for frontend in [item for item in self._tcp if item not in wanted]:
            self._tcp.pop(frontend).abort()  # those that are not connected yet

    async def _serve(self, frontend: Frontend, route: Route) -> None:
        """Listen, if there is an endpoint.

        Raises:
            OSError: it cannot be listened on.
        """
        if frontend.protocol == UDP:
            if frontend in self._udp:
                self._udp[frontend].lead_to(route)
            elif route.endpoints:
                self._udp[frontend] = UdpListener(
                    frontend, route, self._clock, self._begin, self._dial
                )
            return
        listener = self._tcp.get(frontend)
        if listener is None:
            if not route.endpoints:
                return
            listener = self._tcp[frontend] = TcpListener(
                route, self._begin, self._clock, self._dial
            )
        listener.lead_to(route)
        if route.endpoints:
            await listener.open(frontend)

    def _begin(self, connecting: Coroutine[object, object, None]) -> None:
        if self._nursery is None:
            connecting.close()
        else:
            self._nursery.start(connecting, name="connection")

    def _refuse(self, frontend: Frontend, route: Route, error: OSError) -> None:
        why = os.strerror(error.errno) if error.errno else str(error)
        if self._refused.get(frontend) == why:
            return
        self._refused[frontend] = why
        if self._is_shared and error.errno == errno.EADDRINUSE:
            return
        where = f"{frontend.host}:{frontend.port}/{frontend.protocol}"
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


def _is_served(frontend: Frontend, wanted: dict[Frontend, Route]) -> bool:
    return frontend in wanted and bool(wanted[frontend].endpoints)
