"""Datagrams to one address of a Service, and the answers to them."""

import asyncio
import socket
from dataclasses import dataclass

from grange.agent.service_proxy.balancer import Balancer
from grange.agent.service_proxy.flow_table import Client, FlowTable
from grange.agent.service_proxy.routes import Endpoint, Frontend, Route
from grange.base.clock import Clock

_DATAGRAM_MAX = 65_535
_TURN = 64  # datagrams before other sockets have their turn
_SWEEP_S = 5.0


@dataclass(slots=True, eq=False)
class _Flow:
    """A socket that is connected to an endpoint, for one client."""

    client: Client
    endpoint: Endpoint
    socket: socket.socket


class UdpListener:
    """Serves one address.

    Args:
        frontend: where to listen.
        route: where it leads.
        clock: time.

    Raises:
        OSError: it cannot be listened on.
    """

    def __init__(self, frontend: Frontend, route: Route, clock: Clock) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._balancer = Balancer(route)
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
            self._end(flow)

    def close(self) -> None:
        """Stop listening and forget all flows."""
        self._sweeper.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for flow in self._flows.select(lambda _: True):
            self._end(flow)

    def _sweep(self) -> None:
        for flow in self._flows.expire(self._clock.monotonic()):
            self._end(flow)
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)

    def _from_clients(self) -> None:
        for _ in range(_TURN):
            try:
                data, client = self._socket.recvfrom(_DATAGRAM_MAX)
            except OSError:  # none is there, or an earlier answer did not arrive
                return
            flow = self._flows.get(client, self._clock.monotonic()) or self._open(client)
            if flow is None:
                continue
            try:
                flow.socket.send(data)
            except BlockingIOError:
                continue  # lost, as datagrams may be
            except OSError:  # nothing listens there: the next datagram goes to another endpoint
                self._drop(flow)

    def _open(self, client: Client) -> _Flow | None:
        now = self._clock.monotonic()
        endpoint = self._balancer.choose(client[0], now, frozenset())
        if endpoint is None:
            return None
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
        flow = _Flow(client, endpoint, made)
        ended = self._flows.add(client, flow, now)
        if ended is not None:
            self._end(ended)
        self._loop.add_reader(made, self._from_endpoint, flow)
        return flow

    def _from_endpoint(self, flow: _Flow) -> None:
        for _ in range(_TURN):
            try:
                data = flow.socket.recv(_DATAGRAM_MAX)
            except BlockingIOError:
                return
            except OSError:
                self._drop(flow)
                return
            self._flows.get(flow.client, self._clock.monotonic())
            try:
                self._socket.sendto(data, flow.client)
            except OSError:
                return  # lost, as datagrams may be

    def _drop(self, flow: _Flow) -> None:
        for found in self._flows.select(lambda item: item is flow):
            self._end(found)

    def _end(self, flow: _Flow) -> None:
        self._loop.remove_reader(flow.socket)
        flow.socket.close()
