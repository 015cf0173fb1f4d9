"""Who talks to whom over UDP: pure. A flow is a client's address; it ends when it has been idle."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Client = tuple[str, int]
F = TypeVar("F")

IDLE_S = 60.0
FLOWS_MAX = 1024
"""Flows of one address of a Service; each has a descriptor."""


class FlowTable(Generic[F]):
    """The flows of one frontend, the one that was idle for longest first.

    Args:
        limit: the largest number of flows; a new one ends the one that was idle for longest.
        idle_s: a flow without datagrams for so long ends.
    """

    def __init__(self, limit: int = FLOWS_MAX, idle_s: float = IDLE_S) -> None:
        self._limit = limit
        self._idle_s = idle_s
        self._flows: OrderedDict[Client, tuple[F, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._flows)

    def get(self, client: Client, now: float) -> F | None:
        """The client's flow, which is used now."""
        found = self._flows.pop(client, None)
        if found is None:
            return None
        self._flows[client] = (found[0], now)
        return found[0]

    def add(self, client: Client, flow: F, now: float) -> F | None:
        """Add a flow; returns the one that has to end for it."""
        ended = self.remove(client)
        if ended is None and len(self._flows) >= self._limit:
            ended = self._flows.popitem(last=False)[1][0]
        self._flows[client] = (flow, now)
        return ended

    def remove(self, client: Client) -> F | None:
        """Forget a client's flow and return it."""
        found = self._flows.pop(client, None)
        return found[0] if found is not None else None

    def expire(self, now: float) -> Iterator[F]:
        """Forget and return the flows that were idle for too long."""
        while self._flows:
            client, (flow, used) = next(iter(self._flows.items()))
            if now - used < self._idle_s:
                return
            del self._flows[client]
            yield flow

    def select(self, is_wanted: Callable[[F], bool]) -> Iterator[F]:
        """Forget and return flows."""
        for client, (flow, _) in list(self._flows.items()):
            if is_wanted(flow):
                del self._flows[client]
                yield flow
