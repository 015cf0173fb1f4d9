"""What to do about one controller: pure decisions over what the caches show.

Theory of operation. ``claim`` says which pods belong to the controller (owner reference by uid),
which orphans to adopt and which pods to let go. ``plan`` sorts the owned pods into

- *terminating*: on their way out. They count for nothing but still hold their node;
- *finished*: Succeeded or Failed. They are deleted and replaced; while ``held`` (failed again and
  again, so the replacement waits) they keep their place in the count;
- *active*: all others; these are counted against ``replicas``.

With ``OnePerNode`` additions go to the eligible nodes without a pod of ours in ascending order of
name, which users rely on, and never more than one goes to a node. A pod is *stranded* while it is
pinned to a node that is no longer eligible and has not been bound: it runs nowhere, so moving it
to a spare node costs nothing. Pods that are bound never move because of eligibility; that is
what ``strategy: Static`` promises, and for now ``Dynamic`` too. With ``Packed`` the scheduler chooses.

A pod that has not been bound is *misfit* once the template, the node selector or the placement
have changed; it is replaced at once, because it runs nowhere. Pods that are bound keep running as
they are: the ``rollout`` argument of ``plan`` is where their replacement is planned, and
``on_delete`` (nothing; pods are renewed as they are deleted) is what there is.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Container, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from itertools import islice

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import controller_of
from grange.base.errors import GrangeError
from grange.controllers.replication import identity, ranking


class InvalidController(GrangeError):
    """The spec cannot be acted on (the API server should have refused it): nothing is touched."""


@dataclass(frozen=True, slots=True)
class Claim:
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
class Situation:
    """Everything that a plan depends on.

    Attributes:
        controller: as the cache has it.
        owned: pods controlled by it, whatever their state.
        eligible: names of nodes where its pods may run.
        down: names of nodes that are gone or not ready: what their pods say is stale.
        taken: names of pods in the namespace that are not among ``owned``.
        held: uids of finished pods whose replacement must wait.
    """

    controller: ReplicationController
    owned: Sequence[Pod]
    eligible: Collection[str]
    down: Container[str] = frozenset()
    taken: Container[str] = frozenset()
    held: AbstractSet[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Addition:
    """A pod to create; the node is empty where the scheduler chooses."""

    name: str
    node: str = ""


@dataclass(frozen=True, slots=True)
class Removal:
    """A pod to delete, and why (a reason of ``events``)."""

    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class Repair:
    """Labels to put back on a pod."""

    pod: Pod
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, each part in the order in which to do it.

    Attributes:
        create: pods to make.
        delete: pods to remove.
        repair: pods whose labels drifted.
        short: wanted pods for which there is no eligible node, now or soon.
        scaling: whether pods are being added, removed or waited for.
    """

    create: tuple[Addition, ...] = ()
    delete: tuple[Removal, ...] = ()
    repair: tuple[Repair, ...] = ()
    short: int = 0
    scaling: bool = False


Rollout = Callable[[Situation], Sequence[Pod]]
"""Says which active pods to replace in this pass for the sake of a changed template."""


def on_delete(situation: Situation) -> Sequence[Pod]:
    """The rollout of a controller that never replaces a running pod by itself: none."""
    return ()


def is_active(pod: Pod) -> bool:
    """Whether the pod counts as a replica: neither on its way out nor finished."""
    return not pod.metadata.deletion_timestamp and not pods.is_finished(pod)


def claim(controller: ReplicationController, candidates: Sequence[Pod]) -> Claim:
    """Sort pods of the controller's namespace by whose they are.

    The owner reference decides. A pod of ours that lost its labels stays ours (they are repaired);
    one whose name label was set to something else was taken out on purpose and is released. An
    orphan with our name label is adopted unless it is finished or on its way out, or the
    controller itself is.
    """
    meta = controller.metadata
    mark = identity.label_value(meta.name)
    owned, adopt, release = [], [], []
    for pod in sorted(candidates, key=lambda item: item.metadata.name):
        owner = controller_of(pod.metadata)
        label = pod.metadata.labels.get(identity.RC_NAME_LABEL)
        if owner is not None and owner.uid == meta.uid:
            if label is not None and label != mark and not pod.metadata.deletion_timestamp:
                release.append(pod)
            else:
                owned.append(pod)
        elif owner is None and label == mark and is_active(pod) and not meta.deletion_timestamp:
            adopt.append(pod)
    return Claim(tuple(owned), tuple(adopt), tuple(release))


def plan(situation: Situation, rollout: Rollout = on_delete) -> Plan:
    """Decide one pass.

    Returns:
        An empty plan for a controller that is paused or being deleted.

    Raises:
        InvalidController: negative replicas or an unknown placement.
    """
    spec = situation.controller.spec
    if spec.replicas < 0:
        raise InvalidController(f"spec.replicas: {spec.replicas} is negative")
    if spec.placement not in {"OnePerNode", "Packed"}:
        raise InvalidController(f"spec.placement: {spec.placement!r} is not OnePerNode or Packed")
    if spec.paused or situation.controller.metadata.deletion_timestamp:
        return Plan()
    return _OnePass(situation).decide(rollout)


class _OnePass:
    """The working state of one plan; thrown away with it."""

    def __init__(self, situation: Situation) -> None:
        self.situation = situation
        self.controller = situation.controller
        self.one_per_node = situation.controller.spec.placement == "OnePerNode"
        self.eligible = frozenset(situation.eligible)
        self.active = [pod for pod in situation.owned if is_active(pod)]
        self.removals: list[Removal] = []
        self.held: list[Pod] = []
        for pod in situation.owned:
            if not pods.is_finished(pod) or pod.metadata.deletion_timestamp:
                continue
            if pod.metadata.uid in situation.held:
                self.held.append(pod)
            else:
                self.removals.append(Removal(pod, "Finished"))

    def decide(self, rollout: Rollout) -> Plan:
        """The plan; called once."""
        if self.one_per_node:
            self._remove(self._duplicates(), "OnePerNode")
        self._remove(self._misfits(), "Outdated")
        self._remove([pod for pod in rollout(self.situation) if is_active(pod)], "Outdated")
        if (surplus := -self._need()) > 0:
            self._shrink(surplus)
        if self.one_per_node:
            spare = max(0, len(self._free_nodes()) - self._need())
            self._remove(self._stranded()[:spare], "NodeIneligible")
        need = self._need()
        additions = self._additions(need)
        return Plan(
            create=additions,
            delete=tuple(self.removals),
            repair=self._repairs(),
            short=self._shortage(need, additions),
            scaling=need > 0 or bool(self.removals),
        )

    def _need(self) -> int:
        return self.controller.spec.replicas - len(self.active) - len(self.held)

    def _remove(self, chosen: Sequence[Pod], why: str) -> None:
        gone = {pod.metadata.uid for pod in chosen}
        self.active = [pod for pod in self.active if pod.metadata.uid not in gone]
        self.removals += [Removal(pod, why) for pod in chosen]

    def _shrink(self, surplus: int) -> None:
        """Held places go first: nothing runs there."""
        idle = self.held[:surplus]
        self.held = self.held[len(idle) :]
        self._remove(idle, "Finished")
        ranked = ranking.victims(self.active, self.eligible, self.situation.down)
        self._remove(ranked[: surplus - len(idle)], "Surplus")

    def _duplicates(self) -> list[Pod]:
        """All but the best active pod of every node."""
        by_node: dict[str, list[Pod]] = defaultdict(list)
        for pod in ranking.victims(self.active, self.eligible, self.situation.down):
            if node := identity.node_of(pod):
                by_node[node].append(pod)
        return [pod for there in by_node.values() for pod in there[:-1]]

    def _misfits(self) -> list[Pod]:
        """Unbound pods that would not be made like this today."""
        template = identity.template_hash(self.controller)
        placement = identity.placement_hash(self.controller)
        return [
            pod
            for pod in self.active
            if not pod.spec.node_name
            and (
                pod.metadata.labels.get(identity.TEMPLATE_HASH_LABEL) != template
                or pod.metadata.annotations.get(identity.PLACEMENT_HASH) != placement
            )
        ]

    def _free_nodes(self) -> list[str]:
        """Eligible nodes without a pod of ours, in order of name.

        Pods removed in this pass that vanish at once (unbound or finished, no finalizer) do not
        count: their successors may take the same node, under the same name, in the same pass.
        """
        vanishing = {
            removal.pod.metadata.uid
            for removal in self.removals
            if not removal.pod.metadata.finalizers
            and (not removal.pod.spec.node_name or pods.is_finished(removal.pod))
        }
        occupied = {
            identity.node_of(pod)
            for pod in self.situation.owned
            if pod.metadata.uid not in vanishing
        }
        return [node for node in sorted(self.eligible) if node not in occupied]

    def _stranded(self) -> list[Pod]:
        return [
            pod
            for pod in self.active
            if not pod.spec.node_name and identity.node_of(pod) not in {"", *self.eligible}
        ]

    def _additions(self, need: int) -> tuple[Addition, ...]:
        if need <= 0:
            return ()
        if self.one_per_node:
            return tuple(
                Addition(identity.name_for_node(self.controller, node, self.situation.taken), node)
                for node in self._free_nodes()[:need]
            )
        ours = {pod.metadata.name for pod in self.situation.owned}
        spare = (
            name
            for name in identity.ordinal_names(self.controller, self.situation.taken)
            if name not in ours
        )
        return tuple(Addition(name) for name in islice(spare, need))

    def _shortage(self, need: int, additions: Sequence[Addition]) -> int:
        """Wanted pods that no node can take, not counting nodes that are about to be free."""
        if not self.one_per_node:
            return 0 if self.eligible else self.controller.spec.replicas
        used = {identity.node_of(pod) for pod in (*self.active, *self.held)}
        used.update(addition.node for addition in additions)
        soon = {identity.node_of(pod) for pod in self.situation.owned} & self.eligible - used
        return max(0, need - len(additions) - len(soon)) + len(self._stranded())

    def _repairs(self) -> tuple[Repair, ...]:
        wanted = identity.labels_of(self.controller)
        repairs = []
        for pod in self.active:
            labels = pod.metadata.labels
            drift = {key: value for key, value in wanted.items() if labels.get(key) != value}
            if drift:
                repairs.append(Repair(pod, drift))
        return tuple(repairs)
