"""What a plan depends on, and what a plan is: ``Inputs`` and ``Plan``. Pure."""

from collections.abc import Collection, Container, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field, replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.rollouts import RolloutLimits
from grange.base.errors import GrangeError
from grange.controllers.shared import pod_identity
from grange.controllers.shared.availability import PodAvailability


class InvalidController(GrangeError):
    """The spec is invalid and was not rejected by the API server: nothing is changed."""


@dataclass(frozen=True, slots=True)
class Sides:
    """How many pods of which template are wanted during a rollout.

    Attributes:
        new: pods of the controller's template.
        old: pods of any other.
        source: the controller with the last template that a rollout completed with, from which pods of the
            old side are created; None if they are not created again.
    """

    new: int
    old: int
    source: ReplicationController | None = None


@dataclass(frozen=True, slots=True)
class _TakenNames:
    """Names that are taken, and more."""

    taken: Container[str]
    more: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.more or name in self.taken


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a plan depends on.

    Attributes:
        controller: as the listers have it.
        owned: pods controlled by it, in any state.
        eligible: names of nodes where its pods may run.
        down: names of nodes that are gone or not ready: the status of their pods is stale.
        taken: names of pods in the namespace that are not among ``owned``.
        held: uids of finished pods whose replacement must wait.
        available: uids of the available pods.
        limits: what the rollout allows; None for what the spec asks for.
        sides: the counts of a rollout in progress.
        template: hash of the template that pods are created from.
        earlier: names of nodes where pods of other templates may run; None for the same.
        full: names of nodes without room for one more pod.
        health: of the pods; ``available`` is the part of it that counts.
        held_s: seconds until the replacement of a finished pod is due; None for none.
        nodes_error: why it is not known which nodes are eligible.
    """

    controller: ReplicationController
    owned: Sequence[Pod]
    eligible: Collection[str]
    down: Container[str] = frozenset()
    taken: Container[str] = frozenset()
    held: AbstractSet[str] = frozenset()
    available: AbstractSet[str] = frozenset()
    limits: RolloutLimits | None = None
    sides: Sides | None = None
    template: str = ""
    earlier: Collection[str] | None = None
    full: Container[str] = frozenset()
    health: PodAvailability = field(default_factory=PodAvailability)
    held_s: float | None = None
    nodes_error: GrangeError | None = None

    def nodes_for(self, pod: Pod | None) -> Collection[str]:
        """Names of nodes where a pod or its successor may run; for None a new pod."""
        if self.earlier is None or pod is None or pod_identity.is_of(pod, self.template):
            return self.eligible
        return self.earlier

    def without(self, nodes: Container[str]) -> "Inputs":
        """The inputs without some of the eligible nodes."""
        left = [name for name in self.eligible if name not in nodes]
        if self.earlier is None:
            return replace(self, eligible=left)
        earlier = [name for name in self.earlier if name not in nodes]
        return replace(self, eligible=left, earlier=earlier)

    def hiding(self, hidden: Collection[Pod], names: AbstractSet[str] = frozenset()) -> "Inputs":
        """The inputs without pods that do not count. Their names stay taken, and with OnePerNode their nodes.

        So do further names, of pods that will be created for something else.
        """
        names = names | {pod.metadata.name for pod in hidden}
        uids = {pod.metadata.uid for pod in hidden}
        left = [pod for pod in self.owned if pod.metadata.uid not in uids]
        same = replace(self, owned=left, taken=_TakenNames(self.taken, frozenset(names)))
        if self.controller.spec.placement != "OnePerNode":
            return same
        return same.without({pod_identity.node_of(pod) for pod in hidden})


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

    def keeping(self, delete: tuple[Removal, ...], count: int, *, budget: str = "") -> "Plan":
        """The plan with fewer removals, because of a PodDisruptionBudget if one is named.

        As many creations wait with the pods that stay.
        """
        return replace(
            self,
            delete=delete,
            create=self.create[: max(0, len(self.create) - count)],
            kept=self.kept + count,
            budget=budget or self.budget,
        )
