"""Metrics: the standard client library, one registry a process part, no globals.

Names are ``grange_<room>_<what>_<unit>``; label values must come from a bounded set.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import inf
from typing import ClassVar, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

__all__ = [
    "CollectedCounter",
    "CollectedGauge",
    "CollectorRegistry",
    "Counter",
    "Gauge",
    "Histogram",
    "QuickCounter",
    "QuickHistogram",
    "QuickSeries",
    "exposition",
    "once_per_registry",
    "registry",
]

T = TypeVar("T")


def registry() -> CollectorRegistry:
    """A fresh registry that collects nothing by itself."""
    return CollectorRegistry(auto_describe=True)


class QuickCounter(Collector):
    """A counter for what happens ten thousand times a second; used by one thread.

    Args:
        name: of the metric, without ``_total``.
        documentation: its help text.
        labels: names of the labels.
        registry: where it is shown.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...] = (),
        *,
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._counts: dict[tuple[object, ...], float] = {}
        registry.register(self)

    def inc(self, *values: object, amount: float = 1) -> None:
        """Count.

        Args:
            values: of the labels; what they are as text is shown.
            amount: how much to add.
        """
        counts = self._counts
        counts[values] = counts.get(values, 0) + amount

    def collect(self) -> Iterator[CounterMetricFamily]:
        """The metric as it is now."""
        family = CounterMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, count in self._counts.items():
            family.add_metric([str(value) for value in values], count)
        yield family


Values = Callable[[], Iterable[tuple[tuple[str, ...], float]]]
"""Gives the values of the labels with the value of the metric."""


class _Collected(Collector):
    """A metric whose values are read when it is collected, and kept nowhere.

    Args:
        name: of the metric.
        documentation: its help text.
        labels: names of the labels.
        read: gives the values.
        registry: where it is shown.
    """

    family: ClassVar[type[GaugeMetricFamily] | type[CounterMetricFamily]]

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...],
        *,
        read: Values,
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._read = read
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """The metric as it is now."""
        family = self.family(self._name, self._documentation, labels=self._labels)
        for values, value in self._read():
            family.add_metric(values, value)
        yield family


class CollectedGauge(_Collected):
    """A gauge that is read when it is collected."""

    family = GaugeMetricFamily


class CollectedCounter(_Collected):
    """A counter that something else counts, read when it is collected."""

    family = CounterMetricFamily


class QuickSeries:
    """What one combination of labels of a ``QuickHistogram`` has observed."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, *values: float) -> None:
        """Take in some values."""
        counts, bounds, total = self.counts, self._bounds, self.total
        for value in values:
            total += value
            counts[bisect_left(bounds, value)] += 1
        self.total = total


class QuickHistogram(Collector):
    """A histogram for what happens ten thousand times a second; used by one thread.

    Args:
        name: of the metric.
        documentation: its help text.
        labels: names of the labels.
        buckets: the upper bounds, ascending, without infinity.
        registry: where it is shown.
    """

    def __init__(
        self,
        name: str,
        documentation: str,
        labels: tuple[str, ...] = (),
        *,
        buckets: tuple[float, ...],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._documentation, self._labels = name, documentation, labels
        self._bounds = buckets
        self._series: dict[tuple[str, ...], QuickSeries] = {}
        if not labels:
            self.series()  # without observations it is shown all the same
        registry.register(self)

    def series(self, *values: str) -> QuickSeries:
        """Where values with these labels are observed."""
        found = self._series.get(values)
        if found is None:
            found = self._series[values] = QuickSeries(self._bounds)
        return found

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """The metric as it is now."""
        bounds = (*self._bounds, inf)
        names = [floatToGoString(bound) for bound in bounds]  # type: ignore[no-untyped-call]  # theirs
        family = HistogramMetricFamily(self._name, self._documentation, labels=self._labels)
        for values, series in self._series.items():
            buckets = [*zip(names, accumulate(series.counts), strict=True)]
            family.add_metric(values, buckets, series.total)
        yield family


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
