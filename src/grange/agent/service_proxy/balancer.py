"""Which endpoint a client gets: pure."""

from grange.agent.service_proxy.routes import Endpoint, Route
from grange.base.bounded import BoundedDict

CLIENTS_MAX = 4096
"""Clients whose endpoint is remembered, for each frontend."""


class Balancer:
    """Chooses endpoints of one frontend in turn, or the one that a client had before.

    Args:
        route: where it leads; ``route`` may be replaced at any time.
    """

    def __init__(self, route: Route) -> None:
        self.route = route
        self._next = 0
        self._clients: BoundedDict[str, tuple[Endpoint, float]] = BoundedDict(CLIENTS_MAX)

    def choose(self, client: str, now: float, tried: frozenset[Endpoint]) -> Endpoint | None:
        """An endpoint that was not tried yet; None when all were.

        Args:
            client: its address.
            now: monotonic time in seconds.
            tried: endpoints that refused this connection.
        """
        left = [item for item in self.route.endpoints if item not in tried]
        if not left:
            return None
        if self.route.affinity_s:
            known = self._clients.get(client)
            if known is not None and known[0] in left and now - known[1] <= self.route.affinity_s:
                self._clients[client] = (known[0], now)
                return known[0]
        chosen = left[self._next % len(left)]
        self._next += 1
        if self.route.affinity_s:
            self._clients[client] = (chosen, now)
        return chosen
