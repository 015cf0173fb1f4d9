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
what ``strategy: Static`` promises, and what ``transfer`` does for ``Dynamic`` is not decided here. With
``Packed`` the scheduler chooses.

A pod that has not been bound is *misfit* once the template, the node selector or the placement
have changed; it is replaced at once, because it runs nowhere. While a rollout is under way
(``rollout`` decides that), the pods are two groups, of the new template and of earlier ones, each with
a count of its own; otherwise all are one group. A group that has too many gives up pods by rank, as
far as the disruption ``budget`` grants them, and one that has too few gets pods of its template.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod, is_active
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.replication import is_count_after_transfer
from grange.controllers.replication import budget, evictions, node_transfer
from grange.controllers.replication.constraints import UNCONSTRAINED, Constraints
from grange.controllers.replication.inputs import Inputs, InvalidController
from grange.controllers.replication.node_transfer import TransferPods
from grange.controllers.replication.plan import Addition, Plan, Removal, Repair
from grange.controllers.shared import deletion_order, pod_identity, rollout_phase


@dataclass(frozen=True, slots=True)
class Permissions:
    """What of a plan may be done, by what is known beyond the listers.

    Attributes:
        available_may_go: enough other pods were confirmed by live reads.
        allowances: of the PodDisruptionBudgets that cover them.
    """

    available_may_go: bool = True
    allowances: Sequence[evictions.Allowance] = ()


def plan(inputs: Inputs, constraints: Constraints = UNCONSTRAINED) -> Plan:
    """Decide one reconcile.

    Args:
        inputs: what was observed; with all pods of the controller.
        constraints: what restricts the plan besides the counts.

    Returns:
        For a controller that is paused or being deleted, only what its node transfers ask for.

    Raises:
        InvalidController: negative replicas or an unknown placement.
    """
    spec = inputs.controller.spec
    if spec.replicas < 0:
        raise InvalidController(f"spec.replicas: {spec.replicas} is negative")
    if spec.placement not in {"OnePerNode", "Packed"}:
        raise InvalidController(f"spec.placement: {spec.placement!r} is not OnePerNode or Packed")
    counted = Plan()
    if not (spec.paused or inputs.controller.metadata.deletion_timestamp):
        counted = _Planner(constraints.counted(inputs), constraints.transfers_after).decide()
    if not constraints.nodes_known:
        counted = _without_placement(counted, inputs.controller)
    first = tuple(Removal(pod, "Removed") for pod in constraints.removals)
    counted = replace(
        counted, delete=(*first, *counted.delete), kept=counted.kept + constraints.removals_waiting
    )
    if constraints.limit is not None:
        counted = _limited(counted, constraints.limit)
    return _with_transfers(counted, inputs, constraints.transfers)


def permitted(plan_: Plan, inputs: Inputs, permissions: Permissions) -> Plan:
    """The part of a plan that may be done now; what is left out is kept for a later reconcile.

    Creations that were to replace pods that stay wait with them.
    """
    if not permissions.available_may_go:
        going = tuple(
            item for item in plan_.delete if item.pod.metadata.uid not in inputs.available
        )
        plan_ = plan_.keeping(going, len(plan_.delete) - len(going))
    return evictions.charged(plan_, inputs, permissions.allowances)


def unrecorded(plan_: Plan, live: Sequence[Pod] | None) -> Plan:
    """A plan without what the server has already and the listers do not show yet.

    It is recorded in the audit; announced again, it would be recorded twice.
    """
    if live is None:
        return plan_
    names = {pod.metadata.name for pod in live}
    staying = {pod.metadata.uid for pod in live if not pod.metadata.deletion_timestamp}
    return replace(
        plan_,
        create=tuple(item for item in plan_.create if item.name not in names),
        delete=tuple(item for item in plan_.delete if item.pod.metadata.uid in staying),
    )


def _without_placement(plan_: Plan, controller: ReplicationController) -> Plan:
    """What of a plan may be done while it is not known which nodes are eligible.

    Labels are put back, and surplus pods go unless a rollout counts on them; nothing is placed.
    """
    state = controller.status.rollout
    still = state is None or rollout_phase.RolloutPhase(state.phase) in {
        rollout_phase.RolloutPhase.COMPLETE,
        rollout_phase.RolloutPhase.ROLLED_BACK,
    }
    surplus = tuple(removal for removal in plan_.delete if still and removal.why == "Surplus")
    return replace(plan_, create=(), delete=surplus, short=0)


def _limited(plan_: Plan, most: int) -> Plan:
    """At most so many of each; the rest is planned again when these have been seen.

    No pod is created under the name of one that goes later: the server would answer that it exists
    already, and the audit would record it as added.
    """
    later = {removal.pod.metadata.name for removal in plan_.delete[most:]}
    free = [addition for addition in plan_.create if addition.name not in later]
    return replace(
        plan_,
        create=tuple(free[:most]),
        delete=plan_.delete[:most],
        repair=plan_.repair[:most],
    )


def _with_transfers(plan_: Plan, inputs: Inputs, transfers: TransferPods) -> Plan:
    """The plan, and the pods that node transfers create and delete, within the minimum."""
    going = {removal.pod.metadata.uid for removal in plan_.delete}
    spare = len(inputs.available - going) - budget.limits(inputs.controller).minimum
    delete, kept = list(plan_.delete), plan_.kept
    for removal in transfers.delete:
        uid = removal.pod.metadata.uid
        if removal.why == "Transferred" and uid in going:
            continue
        if uid in inputs.available:
            if spare <= 0:
                kept += 1
                continue
            spare -= 1
        delete.append(removal)
    create = (*plan_.create, *transfers.create)
    return replace(plan_, create=create, delete=tuple(delete), kept=kept)


_NOT_FOR_TRANSFERS = frozenset({"Surplus", "OnePerNode", "NodeIneligible"})


@dataclass(slots=True)
class _Group:
    """Pods that are counted together.

    Attributes:
        wanted: how many there shall be.
        source: with the template that they are made from; None if they are not made anew.
        eligible: names of nodes where they may run.
        template_hash: of the template that unbound ones must have; empty for any.
        active: those that count.
        held: finished ones that keep their place.
    """

    wanted: int
    source: ReplicationController | None
    eligible: frozenset[str]
    template_hash: str = ""
    active: list[Pod] = field(default_factory=list)
    held: list[Pod] = field(default_factory=list)

    @property
    def need(self) -> int:
        """Pods that are missing; negative for pods too many."""
        return self.wanted - len(self.active) - len(self.held)


class _Planner:
    """The working state of one plan, used once.

    Args:
        inputs: with the pods that count.
        transfers: which need some of them.
    """

    def __init__(self, inputs: Inputs, transfers: Sequence[NodeTransfer]) -> None:
        self.inputs = inputs
        self.transfers = transfers
        self.controller = inputs.controller
        self.one_per_node = inputs.controller.spec.placement == "OnePerNode"
        self.eligible = frozenset(inputs.eligible)
        earlier = inputs.earlier
        self.earlier = self.eligible if earlier is None else frozenset(earlier)
        self.removals: list[Removal] = []
        self.removing = False
        self.kept = 0
        self.stuck = 0
        self.groups = self._groups()
        for pod in inputs.owned:
            group = self._group_of(pod)
            if is_active(pod):
                group.active.append(pod)
            elif not pod.metadata.deletion_timestamp:
                if pod.metadata.uid in inputs.held:
                    group.held.append(pod)
                else:
                    self.removals.append(Removal(pod, "Finished"))
                    self.removing = True
        limits = inputs.limits or budget.limits(self.controller)
        unknown = {
            pod.metadata.uid
            for pod in self._active()
            if pod.spec.node_name in inputs.down and pods.is_ready(pod)
        }
        self.budget = budget.Budget(inputs.available, limits.minimum, unknown)

    def _groups(self) -> tuple[_Group, ...]:
        """The new side before the old one, or one group for all."""
        present = pod_identity.template_hash(self.controller)
        sides = self.inputs.sides
        if sides is None:
            replicas = self.controller.spec.replicas
            return (_Group(replicas, self.controller, self.eligible, present),)
        new = _Group(sides.new, self.controller, self.eligible, present)
        return (new, _Group(sides.old, sides.source, self.earlier))

    def _group_of(self, pod: Pod) -> _Group:
        first = self.groups[0]
        return first if pod_identity.is_of(pod, first.template_hash) else self.groups[-1]

    def _active(self) -> list[Pod]:
        return [pod for group in self.groups for pod in group.active]

    def _need(self) -> int:
        return sum(max(0, group.need) for group in self.groups)

    def decide(self) -> Plan:
        """The plan; called once."""
        if self.one_per_node:
            self._remove_duplicates()
        for group in self.groups:
            self._remove(self._misfits(group), "Outdated")
        why = "Surplus" if self.inputs.sides is None else "RollingUpdate"
        for group in reversed(self.groups):
            if group.need < 0:
                self._shrink(group, -group.need, why)
        if self.one_per_node:
            for group in self.groups:
                spare = max(0, len(self._free_nodes(group)) - self._need())
                self._remove(self._stranded(group)[:spare], "NodeIneligible")
                self._relocate(group)
        additions = self._additions()
        return Plan(
            create=additions,
            delete=tuple(self.removals),
            repair=self._repairs(),
            short=self._shortage(additions),
            scaling=self._need() > 0 or self.removing,
            kept=self.kept,
            stuck=self.stuck,
            held=sum(len(group.held) for group in self.groups),
        )

    def _forget(self, chosen: Sequence[Pod]) -> None:
        gone = {pod.metadata.uid for pod in chosen}
        if gone:
            for group in self.groups:
                group.active = [pod for pod in group.active if pod.metadata.uid not in gone]

    def _remove(self, chosen: Sequence[Pod], why: str) -> None:
        """Remove pods; those that node transfers need take their share of the removals and stay."""
        self._forget(chosen)
        self.removing = self.removing or bool(chosen)
        self.removals += [
            Removal(pod, why)
            for pod in chosen
            if why not in _NOT_FOR_TRANSFERS or not node_transfer.is_needed(pod, self.transfers)
        ]

    def _shrink(self, group: _Group, surplus: int, why: str) -> None:
        """Held places go first: nothing runs there."""
        idle = group.held[:surplus]
        group.held = group.held[len(idle) :]
        self._remove(idle, "Finished")
        ranked = deletion_order.victims(group.active, group.eligible, self.inputs.down)
        given = is_count_after_transfer(self.controller, self.controller.spec.replicas)
        if given or self.inputs.sides is not None:  # it is counted on to be unavailable
            ranked.sort(key=self.budget.cost)
        self._remove_granted(ranked, surplus - len(idle), why)

    def _remove_granted(self, ranked: Sequence[Pod], count: int, why: str) -> None:
        """So many of a ranking, as far as the budget grants them."""
        granted = self.budget.granted(ranked, count)
        self.kept += min(count, len(ranked)) - len(granted)
        self._remove(granted, why)

    def _remove_duplicates(self) -> None:
        """All but the best active pod of every node go: at once, or when others are available."""
        by_node: dict[str, list[Pod]] = defaultdict(list)
        anywhere = self.eligible | self.earlier
        for pod in deletion_order.victims(self._active(), anywhere, self.inputs.down):
            if node := pod_identity.node_of(pod):
                by_node[node].append(pod)
        chosen = [pod for there in by_node.values() for pod in there[:-1]]
        self._remove_granted(chosen, len(chosen), "OnePerNode")
        self._forget(chosen)

    def _misfits(self, group: _Group) -> list[Pod]:
        """Unbound pods that would not be made like this today."""
        placement = pod_identity.placement_hash(self.controller)
        return [
            pod
            for pod in group.active
            if not pod.spec.node_name
            and (
                (group.template_hash and not pod_identity.is_of(pod, group.template_hash))
                or pod.metadata.annotations.get(pod_identity.PLACEMENT_HASH) != placement
            )
        ]

    def _free_nodes(self, group: _Group) -> list[str]:
        """Nodes without a pod of ours where the group's may run.

        In order of name, from a place in it that the name of the controller decides, so that not all
        controllers begin on the same node.

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
            pod_identity.node_of(pod)
            for pod in self.inputs.owned
            if pod.metadata.uid not in vanishing
        }
        ordered = pod_identity.beginning_anywhere(self.controller, sorted(group.eligible))
        return [node for node in ordered if node not in occupied]

    def _stranded(self, group: _Group) -> list[Pod]:
        return [
            pod
            for pod in group.active
            if not pod.spec.node_name and pod_identity.node_of(pod) not in {"", *group.eligible}
        ]

    def _relocate(self, group: _Group) -> None:
        """Unbound pods whose node has no room go to nodes that have some: they run nowhere."""
        stuck = self._stuck(group)
        if not stuck:
            return
        free = self._preferred(self._free_nodes(group), self._need() + len(stuck))
        roomy = sum(node not in self.inputs.full for node in free)
        self._remove(stuck[: max(0, roomy - self._need())], "NodeFull")
        self.stuck += len(self._stuck(group))

    def _stuck(self, group: _Group) -> list[Pod]:
        """Unbound pods that the scheduler cannot bind, on nodes that have no room for them."""
        return [
            pod
            for pod in group.active
            if not pod.spec.node_name
            and not pod.status.nominated_node_name
            and (placed := pods.condition(pod, "PodScheduled")) is not None
            and placed.reason == "Unschedulable"
            and pod_identity.node_of(pod) in self.inputs.full
        ]

    def _preferred(self, free: Sequence[str], count: int) -> list[str]:
        """So many of some nodes, those with room first; no more are looked at than need be."""
        roomy: list[str] = []
        others: list[str] = []
        for node in free:
            if len(roomy) == count:
                break
            (others if node in self.inputs.full else roomy).append(node)
        return [*roomy, *others][:count]

    def _additions(self) -> tuple[Addition, ...]:
        if self.one_per_node:
            return tuple(self._placed())
        sources = [
            None if group.source is self.controller else group.source
            for group in self.groups
            if group.source is not None
            for _ in range(group.need)
        ]
        if not sources:
            return ()
        ours = {pod.metadata.name for pod in self.inputs.owned}
        spare = (
            name
            for name in pod_identity.ordinal_names(self.controller, self.inputs.taken)
            if name not in ours
        )
        return tuple(
            Addition(name, source=source) for source, name in zip(sources, spare, strict=False)
        )

    def _placed(self) -> Iterator[Addition]:
        """One for each node, as far as there are free ones."""
        used: set[str] = set()
        for group in self.groups:
            if group.source is None or group.need <= 0:
                continue
            source = None if group.source is self.controller else group.source
            free = [node for node in self._free_nodes(group) if node not in used]
            for node in self._preferred(free, group.need):
                used.add(node)
                name = pod_identity.name_for_node(self.controller, node, self.inputs.taken)
                yield Addition(name, node, source)

    def _shortage(self, additions: Sequence[Addition]) -> int:
        """Wanted pods that no node can take, not counting nodes that are about to be free."""
        replicas = self.controller.spec.replicas
        if not self.one_per_node:
            return 0 if self.eligible else replicas
        held = [pod for group in self.groups for pod in group.held]
        used = {pod_identity.node_of(pod) for pod in (*self._active(), *held)}
        used.update(addition.node for addition in additions)
        anywhere = self.eligible | self.earlier
        soon = {pod_identity.node_of(pod) for pod in self.inputs.owned} & anywhere - used
        missing = min(self._need(), replicas - len(self._active()) - len(held))
        stranded = sum(len(self._stranded(group)) for group in self.groups)
        return max(0, missing - len(additions) - len(soon)) + stranded

    def _repairs(self) -> tuple[Repair, ...]:
        repairs = []
        for pod in self._active():
            labels = pod.metadata.labels
            wanted = pod_identity.labels_for(self.controller, pod)
            drift = {key: value for key, value in wanted.items() if labels.get(key) != value}
            if drift:
                repairs.append(Repair(pod, drift))
        return tuple(repairs)
