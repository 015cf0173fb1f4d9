"""Metrics: the standard client library, one registry a process part, no globals.

Names are ``grange_<room>_<what>_<unit>``; label values must come from a bounded set.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import inf
from typing import TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = [
    "CollectorRegistry",
    "Counter",
    "Gauge",
    "Histogram",
    "QuickHistogram",
    "exposition",
    "once_per_registry",
    "registry",
]

T = TypeVar("T")


def registry() -> CollectorRegistry:
    """A fresh registry that collects nothing by itself."""
    return CollectorRegistry(auto_describe=True)


class QuickHistogram(Collector):
    """A histogram without labels for what happens ten thousand times a second; observed by one thread.

    Args:
        name: of the metric.
        documentation: its help text.
        buckets: the upper bounds, ascending, without infinity.
        registry: where it is shown.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        *,
        buckets: tuple[float, ...],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._documentation = name, documentation
        self._bounds = buckets
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0
        registry.register(self)

    def observe(self, values: Iterable[float]) -> None:
        """Take in some values."""
        counts, bounds, total = self._counts, self._bounds, self._sum
        for value in values:
            total += value
            counts[bisect_left(bounds, value)] += 1
        self._sum = total

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The metric as it is now."""
        bounds = (*self._bounds, inf)
        names = [floatToGoString(bound) for bound in bounds]  # type: ignore[no-untyped-call]  # theirs
        buckets = [*zip(names, accumulate(self._counts), strict=True)]
        yield HistogramMetricFamily(self._name, self._documentation, buckets, self._sum)


def exposition(source: CollectorRegistry) -> bytes:
    """The registry in the Prometheus text format."""
    return generate_latest(source)


def once_per_registry(make: Callable[[CollectorRegistry], T]) -> Callable[[CollectorRegistry], T]:
    """A function that makes a room's instruments the first time, and finds them afterwards.

    A registry refuses a name twice, and several services of a room share one registry.
    """
    known: WeakKeyDictionary[CollectorRegistry, T] = WeakKeyDictionary()

    def instruments(registry: CollectorRegistry) -> T:
        found = known.get(registry)
        if found is None:
            found = known[registry] = make(registry)
        return found

    return instruments
