"""How many pods of a controller are created and deleted, and which. Pure.

Theory of operation. The owned pods are

- *terminating*: they count for nothing but still occupy their node;
- *finished*: Succeeded or Failed. They are deleted and replaced; while ``held`` (they failed several
  times, so the replacement waits) they keep their place in the count;
- *active*: all others; these are counted against ``replicas``.

With ``OnePerNode`` additions go to the eligible nodes without a pod of ours in ascending order of
name, which users rely on, and never more than one goes to a node. A pod is *stranded* while it is
pinned to a node that is no longer eligible and has not been bound: moving it to a spare node costs
nothing. Bound pods move only by node transfers. With ``Packed`` the scheduler chooses.

A pod that has not been bound is *misfit* once the template, the node selector or the placement
have changed; it is replaced at once, because it runs nowhere. While a rollout is under way
(``rollout`` decides that), the pods are two groups, of the new template and of earlier ones, each with
its own count; otherwise all are one group. A group with too many pods deletes some by rank, as far as
the disruption ``budget`` grants them, and one with too few gets pods of its template.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod, is_active
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.replication import is_count_after_transfer
from grange.controllers.replication import deletion_budgets, node_transfer
from grange.controllers.replication.plan import Addition, Inputs, Plan, Removal, Repair
from grange.controllers.shared import deletion_order, pod_identity

_NOT_FOR_TRANSFERS = frozenset({"Surplus", "OnePerNode", "NodeIneligible"})


@dataclass(slots=True)
class _Group:
    """Pods that are counted together.

    Attributes:
        wanted: how many are wanted.
        source: with the template that they are created from; None if they are not replaced.
        eligible: names of nodes where they may run.
        template_hash: of the template that unbound ones must have; empty for any.
        active: those that count.
        held: finished ones that keep their place in the count.
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


class PodPlanner:
    """Makes one plan, within what node transfers need; the working state is used once."""

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
        limits = inputs.limits or deletion_budgets.limits(self.controller)
        unknown = {
            pod.metadata.uid
            for pod in self._active()
            if pod.spec.node_name in inputs.down and pods.is_ready(pod)
        }
        self.budget = deletion_budgets.Budget(inputs.available, limits.minimum, unknown)

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
        """Decide; called once."""
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
        """Remove pods; those that node transfers need are counted as removed and stay."""
        self._forget(chosen)
        self.removing = self.removing or bool(chosen)
        self.removals += [
            Removal(pod, why)
            for pod in chosen
            if why not in _NOT_FOR_TRANSFERS or not node_transfer.is_needed(pod, self.transfers)
        ]

    def _shrink(self, group: _Group, surplus: int, why: str) -> None:
        """Remove the surplus of a group; held places first, since nothing runs there."""
        idle = group.held[:surplus]
        group.held = group.held[len(idle) :]
        self._remove(idle, "Finished")
        ranked = deletion_order.victims(group.active, group.eligible, self.inputs.down)
        given = is_count_after_transfer(self.controller, self.controller.spec.replicas)
        if (
            given or self.inputs.sides is not None
        ):  # the minimum was computed for unavailable pods to go first
            ranked.sort(key=self.budget.cost)
        self._remove_granted(ranked, surplus - len(idle), why)

    def _remove_granted(self, ranked: Sequence[Pod], count: int, why: str) -> None:
        """Remove so many of a ranking, as far as the budget grants them."""
        granted = self.budget.granted(ranked, count)
        self.kept += min(count, len(ranked)) - len(granted)
        self._remove(granted, why)

    def _remove_duplicates(self) -> None:
        """Remove all but the best active pod of every node, as far as the budget grants them."""
        by_node: dict[str, list[Pod]] = defaultdict(list)
        anywhere = self.eligible | self.earlier
        for pod in deletion_order.victims(self._active(), anywhere, self.inputs.down):
            if node := pod_identity.node_of(pod):
                by_node[node].append(pod)
        chosen = [pod for there in by_node.values() for pod in there[:-1]]
        self._remove_granted(chosen, len(chosen), "OnePerNode")
        self._forget(chosen)

    def _misfits(self, group: _Group) -> list[Pod]:
        """Unbound pods that would be created differently now."""
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

        In order of name, from an offset that depends on the controller's name, so that not all
        controllers begin on the same node.

        Pods removed in this reconcile that vanish at once (unbound or finished, no finalizer) do not
        count: their successors may use the same node and name in the same reconcile.
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
        ordered = pod_identity.rotated_nodes(self.controller, sorted(group.eligible))
        return [node for node in ordered if node not in occupied]

    def _stranded(self, group: _Group) -> list[Pod]:
        return [
            pod
            for pod in group.active
            if not pod.spec.node_name and pod_identity.node_of(pod) not in {"", *group.eligible}
        ]

    def _relocate(self, group: _Group) -> None:
        """Replace unbound pods whose node has no room if other nodes have some."""
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
            if pods.is_unschedulable(pod)
            and not pod.status.nominated_node_name
            and pod_identity.node_of(pod) in self.inputs.full
        ]

    def _preferred(self, free: Sequence[str], count: int) -> list[str]:
        """So many of the nodes, those with room first; room is computed for no more than needed."""
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
        """One for each free node."""
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
        """Wanted pods that no node can take, not counting nodes that will be free soon."""
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
