"""Settings of the garbage collector."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GarbageCollectorConfig:
    """How the collector works.

    Attributes:
        workers: objects looked at at the same time.
        ignored: plurals of kinds that never own and are never owned: not even watched.
        shared: plurals of kinds that other controllers watch whole anyway; the others are watched
            for their metadata only, so that no Secret's data is held for nothing.
        page: objects listed at a time when dependents are freed.
    """

    workers: int = 4
    ignored: frozenset[str] = frozenset({"events"})
    shared: frozenset[str] = frozenset(
        {"leases", "namespaces", "nodes", "pods", "replicationcontrollers"}
    )
    page: int = 500
