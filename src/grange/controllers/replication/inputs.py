"""Everything that the plan of one reconcile depends on, as it was observed."""

from collections.abc import Collection, Container, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace

from grange.api.kinds.pod import Pod, is_active
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import controller_of
from grange.api.rollouts import RolloutLimits
from grange.base.errors import GrangeError
from grange.controllers.replication import rollout
from grange.controllers.shared import pod_identity


class InvalidController(GrangeError):
    """The spec cannot be acted on (the API server should have refused it): nothing is touched."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """Whose pods are whose.

    Attributes:
        owned: pods controlled by us, in order of name.
        adopt: orphans with our name label: to be made ours.
        release: pods controlled by us that somebody relabelled to another name: to be let go.
    """

    owned: tuple[Pod, ...]
    adopt: tuple[Pod, ...]
    release: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class _TakenNames:
    """Names that are taken, and some more."""

    taken: Container[str]
    more: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name in self.more or name in self.taken


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a plan depends on.

    Attributes:
        controller: as the cache has it.
        owned: pods controlled by it, whatever their state.
        eligible: names of nodes where its pods may run.
        down: names of nodes that are gone or not ready: what their pods say is stale.
        taken: names of pods in the namespace that are not among ``owned``.
        held: uids of finished pods whose replacement must wait.
        available: uids of the pods that are available; None for those that are ready.
        limits: what the rollout allows; None for what the spec says, wherever pods may go.
        sides: the counts of a rollout that is under way.
        template: hash of the template that pods are made from.
        earlier: names of nodes where pods of other templates may run; None for the same.
        full: names of nodes without room for one more pod.
    """

    controller: ReplicationController
    owned: Sequence[Pod]
    eligible: Collection[str]
    down: Container[str] = frozenset()
    taken: Container[str] = frozenset()
    held: AbstractSet[str] = frozenset()
    available: AbstractSet[str] | None = None
    limits: RolloutLimits | None = None
    sides: rollout.Sides | None = None
    template: str = ""
    earlier: Collection[str] | None = None
    full: Container[str] = frozenset()

    def nodes_for(self, pod: Pod | None) -> Collection[str]:
        """Names of nodes where a pod may run, or its successor; of none: a new one."""
        if self.earlier is None or pod is None or pod_identity.is_of(pod, self.template):
            return self.eligible
        return self.earlier

    def decided(self, controller: ReplicationController) -> "Inputs":
        """The same for a rollout that may have turned back in this pass.

        New pods are then made from the template of the earlier ones, and go where that fits.

        Args:
            controller: with the template that pods are to be made from now.
        """
        template = pod_identity.template_hash(controller)
        if self.earlier is None or template == self.template:
            return replace(self, controller=controller)
        return replace(
            self, controller=controller, template=template, eligible=self.earlier, earlier=None
        )

    def without(self, nodes: Container[str]) -> "Inputs":
        """The same without some of the eligible nodes."""
        left = [name for name in self.eligible if name not in nodes]
        if self.earlier is None:
            return replace(self, eligible=left)
        earlier = [name for name in self.earlier if name not in nodes]
        return replace(self, eligible=left, earlier=earlier)

    def hiding(self, hidden: Collection[Pod], names: AbstractSet[str] = frozenset()) -> "Inputs":
        """The same without pods that do not count: nobody gets their names, or their nodes where one pod fits.

        Args:
            hidden: pods of the controller.
            names: that are promised to others that are not there yet.
        """
        names = names | {pod.metadata.name for pod in hidden}
        uids = {pod.metadata.uid for pod in hidden}
        left = [pod for pod in self.owned if pod.metadata.uid not in uids]
        same = replace(self, owned=left, taken=_TakenNames(self.taken, frozenset(names)))
        if self.controller.spec.placement != "OnePerNode":
            return same
        return same.without({pod_identity.node_of(pod) for pod in hidden})


def sort_by_owner(controller: ReplicationController, candidates: Sequence[Pod]) -> PodClaims:
    """Sort pods of the controller's namespace by whose they are.

    The owner reference decides. A pod of ours that lost its labels stays ours (they are repaired);
    one whose name label was set to something else was taken out on purpose and is released. An
    orphan with our name label is adopted unless it is finished or on its way out, or the
    controller itself is.
    """
    meta = controller.metadata
    mark = pod_identity.label_value(meta.name)
    owned, adopt, release = [], [], []
    for pod in sorted(candidates, key=lambda item: item.metadata.name):
        owner = controller_of(pod.metadata)
        label = pod.metadata.labels.get(pod_identity.RC_NAME_LABEL)
        if owner is not None and owner.uid == meta.uid:
            if label is not None and label != mark and not pod.metadata.deletion_timestamp:
                release.append(pod)
            else:
                owned.append(pod)
        elif owner is None and label == mark and is_active(pod) and not meta.deletion_timestamp:
            adopt.append(pod)
    return PodClaims(tuple(owned), tuple(adopt), tuple(release))
