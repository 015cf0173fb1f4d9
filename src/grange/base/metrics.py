"""Metrics: the standard client library, one registry a process part, no globals.

Names are ``grange_<room>_<what>_<unit>``; label values must come from a bounded set.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CollectorRegistry", "Counter", "Gauge", "Histogram", "exposition", "registry"]


def registry() -> CollectorRegistry:
    """A fresh registry that collects nothing by itself."""
    return CollectorRegistry(auto_describe=True)


def exposition(source: CollectorRegistry) -> bytes:
    """The registry in the Prometheus text format."""
    return generate_latest(source)
