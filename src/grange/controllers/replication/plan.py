"""What one reconcile does to the pods of a controller."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController

_ROOM_S = 15.0


@dataclass(frozen=True, slots=True)
class Addition:
    """A pod to create.

    Attributes:
        name: of the pod.
        node: where to; empty where the scheduler chooses.
        source: the controller with its template; None for the present one.
    """

    name: str
    node: str = ""
    source: ReplicationController | None = None


@dataclass(frozen=True, slots=True)
class Removal:
    """A pod to delete.

    Attributes:
        pod: which.
        why: the reason, for events and the audit.
        evict: by the eviction subresource, which charges a PodDisruptionBudget.
        budgets: names of those to charge directly, because several cover the pod.
    """

    pod: Pod
    why: str
    evict: bool = False
    budgets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Repair:
    """Labels to put back on a pod."""

    pod: Pod
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, each part in order.

    Attributes:
        create: pods to make.
        delete: pods to remove.
        repair: pods whose labels drifted.
        short: wanted pods for which there is no eligible node, now or soon.
        scaling: whether pods are being added, removed or waited for.
        kept: pods that should be deleted and stay for now, because the minimum needs them.
        held: finished pods whose replacement is delayed.
        stuck: unbound pods while no node has room.
        budget: name of a PodDisruptionBudget that keeps some of ``kept``; empty for none.
    """

    create: tuple[Addition, ...] = ()
    delete: tuple[Removal, ...] = ()
    repair: tuple[Repair, ...] = ()
    short: int = 0
    scaling: bool = False
    kept: int = 0
    held: int = 0
    stuck: int = 0
    budget: str = ""

    @property
    def room_s(self) -> float | None:
        """Seconds after which to compute room again: other controllers' pods cause no reconcile."""
        return _ROOM_S if self.stuck else None

    def keeping(self, delete: tuple[Removal, ...], count: int, *, budget: str = "") -> "Plan":
        """The plan with fewer removals; as many creations wait with the pods that stay.

        Args:
            delete: the removals that are left.
            count: how many pods stay.
            budget: name of the PodDisruptionBudget that keeps them; empty for none.
        """
        return replace(
            self,
            delete=delete,
            create=self.create[: max(0, len(self.create) - count)],
            kept=self.kept + count,
            budget=budget or self.budget,
        )
