"""Datagrams to one address of a Service, and the answers to them."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass

from grange.agent.service_proxy.balancer import Balancer
from grange.agent.service_proxy.datagram_tunnel import DATAGRAM_MAX, DatagramTunnel
from grange.agent.service_proxy.dial_backoff import DialBackoff
from grange.agent.service_proxy.flow_table import Client, FlowTable
from grange.agent.service_proxy.routes import UDP, Endpoint, Frontend, Route
from grange.agent.service_proxy.tunnel import Dial
from grange.base.clock import Clock

_CONNECT_S = 3.0
_TURN = 64  # datagrams before other sockets have their turn
_SWEEP_S = 5.0


@dataclass(slots=True, eq=False)
class _Flow:
    """The way to an endpoint, for one client.

    Attributes:
        client, endpoint: between whom it is.
        send: sends a datagram to the endpoint; raises ``OSError`` where that fails.
        close: ends it.
    """

    client: Client
    endpoint: Endpoint
    send: Callable[[bytes], object]
    close: Callable[[], None]


class UdpListener:
    """Serves one address.

    Args:
        frontend: where to listen.
        route: where it leads.
        clock: time.
        start: runs what connects to other machines.
        dial: connects to endpoints on other machines; None where there are none.

    Raises:
        OSError: it cannot be listened on.
    """

    def __init__(
        self,
        frontend: Frontend,
        route: Route,
        clock: Clock,
        start: Callable[[Coroutine[object, object, None]], object],
        dial: Dial | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._start = start
        self._dial = dial
        self._balancer = Balancer(route)
        self._backoff = DialBackoff()
        self._flows: FlowTable[_Flow] = FlowTable()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.settimeout(0)
            self._socket.bind((frontend.host, frontend.port))
        except OSError:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._from_clients)
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def lead_to(self, route: Route) -> None:
        """Follow a change; what went to an endpoint that is no longer chosen goes to another."""
        self._balancer.route = route
        left = set(route.endpoints)
        for flow in self._flows.select(lambda flow: flow.endpoint not in left):
            flow.close()

    def close(self) -> None:
        """Stop listening and forget all flows."""
        self._sweeper.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for flow in self._flows.select(lambda _: True):
            flow.close()

    def _sweep(self) -> None:
        for flow in self._flows.expire(self._clock.monotonic()):
            flow.close()
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _from_clients(self) -> None:
        for _ in range(_TURN):
            try:
                data, client = self._socket.recvfrom(DATAGRAM_MAX)
            except OSError:  # none is there, or an earlier answer did not arrive
                return
            flow = self._flows.get(client, self._clock.monotonic()) or self._open(client)
            if flow is None:
                continue
            try:
                flow.send(data)
            except BlockingIOError:
                continue  # lost, as datagrams may be
            except OSError:  # nothing listens there: the next datagram goes to another endpoint
                self._drop(flow)

    def _open(self, client: Client) -> _Flow | None:
        now = self._clock.monotonic()
        endpoint = self._balancer.choose(client[0], now, self._backoff.waiting(now))
        if endpoint is None:
            return None
        flow = self._to_node(client, endpoint) if endpoint.node else self._to_pod(client, endpoint)
        if flow is None:
            return None
        ended = self._flows.add(client, flow, now)
        if ended is not None:
            ended.close()
        return flow

    def _to_pod(self, client: Client, endpoint: Endpoint) -> _Flow | None:
        """A flow to a pod of this machine; None where there can be none."""
        try:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        except OSError:
            return None  # no descriptor is left
        try:
            made.settimeout(0)
            made.connect((endpoint.address, endpoint.port))
        except OSError:
            made.close()
            return None

        def close() -> None:
            self._loop.remove_reader(made)
            made.close()

        flow = _Flow(client, endpoint, made.send, close)
        self._loop.add_reader(made, self._from_pod, flow, made)
        return flow

    def _to_node(self, client: Client, endpoint: Endpoint) -> _Flow | None:
        """A flow to a pod of another machine; None where nothing leads there."""
        if self._dial is None:
            return None
        tunnel = DatagramTunnel(lambda data: self._answer(flow, data))
        flow = _Flow(client, endpoint, tunnel.send, tunnel.close)
        self._start(self._carry(flow, tunnel, self._dial))
        return flow

    async def _carry(self, flow: _Flow, tunnel: DatagramTunnel, dial: Dial) -> None:
        try:
            async with self._clock.timeout(_CONNECT_S):
                upgrade = await dial(flow.endpoint, UDP)
            await tunnel.run(upgrade)
        except (OSError, TimeoutError):
            pass  # the next datagram goes to another endpoint
        finally:
            if tunnel.has_received:
                self._backoff.answered(flow.endpoint)
            elif not tunnel.is_closed:
                self._backoff.failed(flow.endpoint, self._clock.monotonic())
            self._drop(flow)

    def _from_pod(self, flow: _Flow, pod: socket.socket) -> None:
        for _ in range(_TURN):
            try:
                data = pod.recv(DATAGRAM_MAX)
            except BlockingIOError:
                return
            except OSError:
                self._drop(flow)
                return
            self._answer(flow, data)

    def _answer(self, flow: _Flow, data: bytes) -> None:
        self._flows.get(flow.client, self._clock.monotonic())
        with suppress(OSError):  # lost, as datagrams may be
            self._socket.sendto(data, flow.client)

    def _drop(self, flow: _Flow) -> None:
        for found in self._flows.select(lambda item: item is flow):
            found.close()
