"""What the server counts; every label comes from a bounded set."""

from grange.apiserver.storage import Work
from grange.base.metrics import (
    CollectedCounter,
    CollectorRegistry,
    Gauge,
    QuickCounter,
    QuickHistogram,
)

_LATENCY_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
_STREAMS = frozenset({"watch"})


class ServerMetrics:
    """The server's metrics in one registry.

    Args:
        registry: where they are collected.
        work: what the server counts itself.
    """

    def __init__(self, registry: CollectorRegistry, work: Work) -> None:
        self.registry = registry
        self._requests = QuickCounter(
            "grange_apiserver_requests",
            "Requests by verb, resource and code.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self._latency = QuickHistogram(
            "grange_apiserver_request_duration_seconds",
            "Seconds from a request's arrival to its answer, streams left out.",
            ("verb", "resource"),
            buckets=_LATENCY_S,
            registry=registry,
        )
        self._watchers = Gauge("grange_apiserver_watchers", "Open watches.", registry=registry)
        self._operations = CollectedCounter(
            "grange_apiserver_object_operations",
            "Costly operations on objects, such as decode and encode, by operation.",
            ("operation",),
            read=work.operations,
            registry=registry,
        )

    def observe(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One request was answered."""
        self._requests.inc(verb, resource, code)
        if verb not in _STREAMS:
            self._latency.series(verb, resource).observe(seconds)

    def count(self, verb: str, resource: str, code: int, number: int = 1) -> None:
        """So many requests, or parts of one that have their own responses, were answered."""
        self._requests.inc(verb, resource, code, amount=number)

    def watchers(self, count: int) -> None:
        """So many watches are open."""
        self._watchers.set(count)
