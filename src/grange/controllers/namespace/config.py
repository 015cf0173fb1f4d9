"""Settings of the namespace controller."""

from dataclasses import dataclass, field

from grange.base.backoff import Exponential


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """How the controller works.

    Attributes:
        workers: namespaces emptied at the same time.
        page: objects listed at a time.
        again: how long until a namespace that is not empty yet is looked at again, by how often
            that happened; the end of a pod is noticed at once.
    """

    workers: int = 4
    page: int = 500
    again: Exponential = field(default_factory=lambda: Exponential(initial_s=0.1, cap_s=5.0))
