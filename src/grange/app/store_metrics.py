"""What the store holds and has written, as metrics: read when they are scraped."""

from collections.abc import Callable

from grange.base.metrics import CollectedCounter, CollectedGauge, CollectorRegistry
from grange.store.store_settings import StoreStatistics


class StoreMetrics:
    """Shows the statistics of a store.

    Args:
        read: gives them as they are now.
        registry: where they are shown.
    """

    def __init__(self, read: Callable[[], StoreStatistics], registry: CollectorRegistry) -> None:
        self.keys = CollectedGauge(
            "grange_store_keys",
            "Objects in the store.",
            (),
            read=lambda: [((), read().keys)],
            registry=registry,
        )
        self.revision = CollectedGauge(
            "grange_store_revision",
            "The last revision that is on disk.",
            (),
            read=lambda: [((), read().revision)],
            registry=registry,
        )
        self.waiting = CollectedGauge(
            "grange_store_waiting_writes",
            "Writes that are accepted and not on disk yet.",
            (),
            read=lambda: [((), read().waiting)],
            registry=registry,
        )
        self.writes = CollectedCounter(
            "grange_store_writes",
            "Writes that are on disk.",
            (),
            read=lambda: [((), read().writes)],
            registry=registry,
        )
        self.transactions = CollectedCounter(
            "grange_store_transactions",
            "Transactions of writes, by outcome.",
            ("outcome",),
            read=lambda: [
                (("written",), read().batches),
                (("failed",), read().failed_batches),
            ],
            registry=registry,
        )
