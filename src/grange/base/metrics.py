"""Metrics: the standard client library, one registry a process part, no globals.

Names are ``grange_<room>_<what>_<unit>``; label values must come from a bounded set.
"""

from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = [
    "CollectorRegistry",
    "Counter",
    "Gauge",
    "Histogram",
    "exposition",
    "once_per_registry",
    "registry",
]

T = TypeVar("T")


def registry() -> CollectorRegistry:
    """A fresh registry that collects nothing by itself."""
    return CollectorRegistry(auto_describe=True)


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
