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


def shown(registry: metrics.CollectorRegistry) -> list[str]:
    """All but the moments when series were made."""
    lines = metrics.exposition(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_quick_histogram_shows_what_the_usual_one_does() -> None:
    values, buckets = [0.0, 0.001, 0.002, 0.1, 0.25, 60.0, 61.0], (0.001, 0.1, 60.0)
    usual, quick = metrics.registry(), metrics.registry()
    slow = metrics.Histogram("grange_test_seconds", "Time.", buckets=buckets, registry=usual)
    fast = metrics.QuickHistogram("grange_test_seconds", "Time.", buckets=buckets, registry=quick)
    assert shown(quick) == shown(usual)
    for value in values:
        slow.observe(value)
    fast.series().observe(*values[:3])
    fast.series().observe(*values[3:])
    assert shown(quick) == shown(usual)


def test_quick_instruments_show_labels_as_the_usual_ones_do() -> None:
    usual, quick = metrics.registry(), metrics.registry()
    labels, buckets = ("verb", "code"), (0.001, 0.1)
    counter = metrics.Counter("grange_test", "Things.", labels, registry=usual)
    histogram = metrics.Histogram(
        "grange_test_seconds", "Time.", labels, buckets=buckets, registry=usual
    )
    counts = metrics.QuickCounter("grange_test", "Things.", labels, registry=quick)
    times = metrics.QuickHistogram(
        "grange_test_seconds", "Time.", labels, buckets=buckets, registry=quick
    )
    assert shown(quick) == shown(usual)
    for verb, code, amount in (("get", 200, 1), ("list", 404, 3), ("get", 200, 1), ('a"b', 7, 2)):
        counter.labels(verb, str(code)).inc(amount)
        counts.inc(verb, code, amount=amount)
        histogram.labels(verb, str(code)).observe(amount / 10)
        times.series(verb, str(code)).observe(amount / 10)
    assert shown(quick) == shown(usual)
