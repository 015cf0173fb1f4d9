"""Metrics live in the registry they were given and nowhere else."""

from grange.base import metrics


def test_registries_are_strangers() -> None:
    first, second = metrics.registry(), metrics.registry()
    for source, value in ((first, 1.0), (second, 2.0)):
        metrics.Counter("grange_store_puts_total", "puts", registry=source).inc(value)
    assert b"grange_store_puts_total 1.0" in metrics.exposition(first)
    assert b"grange_store_puts_total 2.0" in metrics.exposition(second)


def test_fresh_registry_is_empty() -> None:
    assert metrics.exposition(metrics.registry()).strip() == b""


def test_instruments_are_made_once_for_each_registry() -> None:
    instruments = metrics.once_per_registry(
        lambda registry: metrics.Counter("grange_test_things", "Things.", registry=registry)
    )
    first, second = metrics.registry(), metrics.registry()
    assert instruments(first) is instruments(first)
    assert instruments(first) is not instruments(second)


def test_a_quick_histogram_shows_what_the_usual_one_does() -> None:
    """All but the moment when it was made."""
    values, buckets = [0.0, 0.001, 0.002, 0.1, 0.25, 60.0, 61.0], (0.001, 0.1, 60.0)
    usual, quick = metrics.registry(), metrics.registry()
    slow = metrics.Histogram("grange_test_seconds", "Time.", buckets=buckets, registry=usual)
    for value in values:
        slow.observe(value)
    fast = metrics.QuickHistogram("grange_test_seconds", "Time.", buckets=buckets, registry=quick)
    fast.observe(values[:3])
    fast.observe(values[3:])
    lines = metrics.exposition(usual).decode().splitlines()
    assert metrics.exposition(quick).decode().splitlines() == [
        line for line in lines if "_created" not in line
    ]
