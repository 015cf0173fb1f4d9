"""The scheduler's settings."""

from dataclasses import dataclass, field

from grange.api.bindings import LIMIT
from grange.scheduler.gangs import queue_policies
from grange.scheduler.queued_pods import QueueSettings


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Settings; the defaults suit a few thousand nodes.

    Attributes:
        scheduler_names: pods whose ``schedulerName`` is one of these are ours.
        assume_ttl_s: how long a written binding may stay unconfirmed; 0 trusts the informer
            without an end, which is right unless something else removes pods unseen.
        binders: how many groups of bindings are written at once.
        binding_group: how many bindings are written in one request, which is one commit.
        backlog: deciding pauses while so many placed pods are not known to be bound, so that a more
            urgent pod is never behind more than these.
        slice_s: how long deciding may hold the event loop before others get a turn.
        slice_pods: the same in pods.
        queue_policy: in which order gangs and pods wait, by its name in ``gangs.queue_policies``.
        overtakes: how many pods may be placed before a gang that comes first and waits.
    """

    scheduler_names: frozenset[str] = frozenset({"default-scheduler", "grange"})
    assume_ttl_s: float = 0.0
    binders: int = 8
    binding_group: int = 128
    backlog: int = 1024
    slice_s: float = 0.005
    slice_pods: int = 256
    queue_policy: str = queue_policies.DEFAULT
    overtakes: int = 64
    queue: QueueSettings = field(default_factory=QueueSettings)

    def __post_init__(self) -> None:
        for name in ("binders", "binding_group", "backlog", "slice_pods"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.binding_group > LIMIT:
            raise ValueError(f"binding_group must be at most {LIMIT}, what the server takes")
        if self.queue_policy not in queue_policies.POLICIES:
            raise ValueError(f"queue_policy must be one of {', '.join(queue_policies.POLICIES)}")
        if not self.scheduler_names:
            raise ValueError("scheduler_names must name at least one scheduler")
