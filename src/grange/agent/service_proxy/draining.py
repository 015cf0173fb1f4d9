"""Which connections end because their endpoint or their Service is gone: pure.

An endpoint that terminates keeps its connections, as in Kubernetes. One that is gone from the
EndpointSlices, as its pod is deleted or matches no longer, keeps them for a grace period. What is left of a
Service that is deleted, or of a port that it no longer has, ends at once.
"""

from collections.abc import Collection, Mapping

from grange.agent.service_proxy.routes import Endpoint, Frontend, Route

GRACE_S = 30.0

Link = tuple[Frontend, Endpoint]


class Draining:
    """Notes since when endpoints are gone.

    Args:
        grace_s: how long their connections stay.
    """

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._gone: dict[Link, float] = {}

    def overdue(
        self, links: Collection[Link], routes: Mapping[Frontend, Route], now: float
    ) -> frozenset[Link]:
        """The links whose connections have to end now.

        Args:
            links: those that have connections.
            routes: all that Services ask for, with or without endpoints.
            now: monotonic time in seconds.
        """
        gone = {link for link in links if link[0] in routes and not _is_known(link, routes)}
        self._gone = {link: self._gone.get(link, now) for link in gone}
        late = {link for link, since in self._gone.items() if now - since >= self._grace_s}
        return frozenset(late | {link for link in links if link[0] not in routes})

    def next_s(self, now: float) -> float | None:
        """Seconds until the next link is overdue; None when none is going to be."""
        return max(0.0, min(self._gone.values()) + self._grace_s - now) if self._gone else None


def _is_known(link: Link, routes: Mapping[Frontend, Route]) -> bool:
    return link[1] in routes[link[0]].known
