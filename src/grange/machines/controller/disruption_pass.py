"""Carries decisions about shared machines out: mark, decide again, replace, drain, end.

Each look does at most one step for each machine, and everything that a later look needs is on the Machine
and its node. What was decided on a state that has changed meanwhile is refused by the server.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from grange.api import timestamps
from grange.api.kinds import MACHINE, NODE, POD
from grange.api.kinds.machine import Machine
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.nodepool import NodePool, PoolDisruption
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.meta import preconditions
from grange.api.status import Conflict, NotFound, TooManyRequests
from grange.base.clock import Clock
from grange.client.client import Client
from grange.machines.disruption.disruption_plan import INTERRUPTED, DisruptionDecision
from grange.machines.disruption.disruption_progress import (
    DISRUPTION_ANNOTATION,
    DisruptionRecord,
    DisruptionStep,
    deadline_of,
    is_disrupted,
    is_tainted,
    next_disruption,
    next_unreplaced,
    record_of,
)
from grange.machines.disruption.interruption_response import is_overdue
from grange.machines.disruption.machine_disruptor import MachineDisruptor
from grange.machines.disruption.node_drain import (
    DISRUPTED_TAINT,
    drain_step,
)
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.packing_pods import is_daemon, occupies, waits_for_machine
from grange.machines.scaling_plan import MachineStart

OrderMachine = Callable[[NodePool, MachineStart], Awaitable[object]]
"""Records a machine that is ordered."""

_S = DisruptionStep


@dataclass(frozen=True, slots=True)
class DisruptionState:
    """What a look goes by.

    Attributes:
        pools: packed pools.
        cluster: nodes, PodGroups, namespaces, leases.
        machines: of these pools.
        pods: all pods.
        budgets: PodDisruptionBudgets.
        unreplaced: disrupted machines of other pools: dedicated, deleted, or not to be planned for now.
        their_pools: these pools.
    """

    pools: Sequence[PackedPool]
    cluster: ClusterState
    machines: Sequence[Machine]
    pods: Sequence[Pod]
    budgets: Sequence[PodDisruptionBudget] = ()
    unreplaced: Sequence[Machine] = ()
    their_pools: Sequence[NodePool] = ()


class DisruptionPass:
    """Looks at the machines of packed pools every few seconds.

    Args:
        client: of the API server.
        clock: time.
        order: records a replacement.

    Attributes:
        kept: why machines stay, by name; of the last look that decided anything.
    """

    def __init__(self, client: Client, clock: Clock, order: OrderMachine) -> None:
        self._client, self._clock, self._order = client, clock, order
        self._resume_after = ""
        self._quiet: tuple[object, float] | None = None  # a state in which nothing is to be done
        self._pods: Mapping[str, frozenset[str]] = {}  # UIDs at the last look, by node
        self._changes: Mapping[str, datetime] = {}  # when these were last others
        self.kept: Mapping[str, str] = {}

    async def run(self, state: DisruptionState) -> bool:
        """Take the next step of each machine that is disrupted, and decide if there is room for more.

        Returns:
            Whether any machine is disrupted, so that the next look should be soon.

        Raises:
            ApiError: a request failed; the next look tries again.
        """
        look = _PassState(state, self._changed(state))
        begins = busy = False
        for machine in state.machines:
            record = record_of(machine)
            if record is not None:
                begins |= not record.drain_started
                busy |= not machine.is_ending
                await self._advance(look, machine, record)
            else:
                await self._clear(look, machine)
        for machine in state.unreplaced:
            if (record := record_of(machine)) is not None:
                busy |= not machine.is_ending
                node, pods = look.nodes.get(machine.node), look.pods_of.get(machine.node, ())
                in_use = not all(is_daemon(pod) for pod in pods)
                step = next_unreplaced(record, machine, node, in_use=in_use)
                await self._take(look, machine, record, step)
            else:
                await self._clear(look, machine)
        decided = not begins and bool(state.machines) and await self._decide(look)
        return busy or decided

    def _changed(self, state: DisruptionState) -> Mapping[str, datetime]:
        """When pods came to or left machines; what happened before the first look is not known."""
        pods: dict[str, set[str]] = {machine.node: set() for machine in state.machines}
        for pod in state.pods:
            if (node := occupies(pod)) in pods and not is_daemon(pod):
                pods[node].add(pod.metadata.uid)
        before, now = self._pods, self._clock.now()
        self._pods = {node: frozenset(uids) for node, uids in pods.items()}
        changed = {node for node, uids in self._pods.items() if before.get(node, uids) != uids}
        known = {node: at for node, at in self._changes.items() if node in pods}
        self._changes = {**known, **dict.fromkeys(changed, now)}
        return self._changes

    async def _decide(self, look: "_PassState") -> bool:
        """Decide about further machines; whether any is disrupted now."""
        state, shown = look.state, _shown(look.state)
        quiet, until = self._quiet or (None, 0.0)
        if quiet == shown and self._clock.monotonic() < until:
            return False
        plan = look.disruptor.decide(
            state.machines,
            state.pods,
            now=self._clock.now(),
            start_after=self._resume_after,
        )
        self.kept, self._resume_after = plan.kept, plan.resume_after
        decision = plan.decision
        self._quiet = None
        if decision is None:
            if not plan.resume_after:
                self._quiet = (shown, self._clock.monotonic() + plan.after_s)
            return False
        now = timestamps.rfc3339(self._clock.now())
        together = tuple(sorted(decision.names))
        record = DisruptionRecord(
            decision.reason, decision.message, now, together, forced=decision.forced
        )
        for machine in state.machines:
            if machine.metadata.name in decision.names:
                await self._note(machine, record)
        return True

    async def _advance(
        self, look: "_PassState", machine: Machine, record: DisruptionRecord
    ) -> None:
        now = self._clock.now()
        replacements = {each: look.machines.get(each) for each in record.replacements}
        overdue = is_overdue(record, look.pods_of.get(machine.node, ()), now)
        step = next_disruption(
            record, machine, look.nodes.get(machine.node), replacements, now, overdue=overdue
        )
        await self._take(look, machine, record, step)

    async def _take(
        self,
        look: "_PassState",
        machine: Machine,
        record: DisruptionRecord,
        step: DisruptionStep,
    ) -> None:
        node = look.nodes.get(machine.node)
        if step is _S.VALIDATE:
            await self._validate(look, record)
        elif step is _S.BEGIN_DRAIN:
            now = timestamps.rfc3339(self._clock.now())
            started = msgspec.structs.replace(record, drain_started=now)
            await self._note(machine, started)
        elif step is _S.DRAIN:
            await self._drain(look, machine, record)
        elif step is _S.END:
            await self._end(machine)
        elif step is _S.UNDO:
            await self._note(machine, None)
        elif step is _S.TAINT and node is not None:
            await self._taint(node)

    async def _clear(self, look: "_PassState", machine: Machine) -> None:
        """Take off what a decision that is no more left, and a record that is malformed."""
        if (node := look.nodes.get(machine.node)) is not None and is_tainted(node):
            await self._untaint(node)
        if is_disrupted(machine):
            await self._note(machine, None)

    # --- steps ---------------------------------------------------------------------------------------

    async def _validate(self, look: "_PassState", record: DisruptionRecord) -> None:
        """Decide again about all machines of a decision at once, and order what replaces them."""
        key = tuple(record.together)
        if key in look.validated:
            return
        look.validated.add(key)
        state = look.state
        marked = [look.machines[name] for name in record.together if name in look.machines]
        marked = [each for each in marked if not _is_interrupted(each) or len(key) == 1]
        again: DisruptionDecision | None = None
        if len(marked) == len(key) and all(record_of(each) == record for each in marked):
            again = look.disruptor.validate(
                record.reason, record.together, state.machines, state.pods, now=self._clock.now()
            )
        following: DisruptionRecord | None = None
        now = timestamps.rfc3339(self._clock.now())
        if again is not None:
            following = msgspec.structs.replace(
                record,
                validated=now,
                replacements=tuple(start.name for start in again.replacements),
                unplaced=again.unplaced,
            )
            # Recorded first: machines of these names belong to the decision, ordered or not.
            if not all([await self._note(machine, following) for machine in marked]):
                return
            for start in again.replacements:
                await self._order(look.pools[start.spec.pool], start)
            return
        if record.reason == INTERRUPTED:  # it goes though nothing can be planned for it
            following = msgspec.structs.replace(record, validated=now, replacements=())
        for machine in marked:
            await self._note(machine, following)

    async def _drain(self, look: "_PassState", machine: Machine, record: DisruptionRecord) -> None:
        pool = look.pools.get(machine.spec.pool)
        disruption = pool.spec.disruption if pool is not None else PoolDisruption()
        step = drain_step(
            look.pods_of.get(machine.node, ()),
            started=timestamps.parse(record.drain_started),
            deadline=deadline_of(record, disruption),
            now=self._clock.now(),
        )
        if step.done:
            await self._end(machine)
            return
        for pod in step.evict:
            await self._evict(pod)
        for removal in step.remove:
            meta = removal.pod.metadata
            try:
                await self._client.delete(
                    POD, meta.name, meta.namespace, uid=meta.uid, grace_period_s=removal.grace_s
                )
            except (NotFound, Conflict):
                continue  # another pod of its name, or none: the next look shows it

    async def _evict(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.evict(meta.name, meta.namespace, uid=meta.uid)
        except (TooManyRequests, NotFound, Conflict):
            return  # a budget does not allow it yet, or it is gone: the next look shows it

    # --- writes --------------------------------------------------------------------------------------

    async def _note(self, machine: Machine, record: DisruptionRecord | None) -> bool:
        """Write how far a decision is, or that it is no more; whether that was written."""
        text = None if record is None else record.text()
        meta = machine.metadata
        patch = {"metadata": {**preconditions(meta), "annotations": {DISRUPTION_ANNOTATION: text}}}
        try:
            await self._client.patch(MACHINE, meta.name, patch=patch)
        except (Conflict, NotFound):
            return False
        return True

    async def _end(self, machine: Machine) -> None:
        meta = machine.metadata
        patch = {"metadata": preconditions(meta), "spec": {"terminate": True}}
        try:
            await self._client.patch(MACHINE, meta.name, patch=patch)
        except (Conflict, NotFound):
            return  # it has changed: the next look decides by what it is now

    async def _taint(self, node: Node) -> None:
        await self._set_taints(node, (*node.spec.taints, DISRUPTED_TAINT))

    async def _untaint(self, node: Node) -> None:
        left = [taint for taint in node.spec.taints if taint.key != DISRUPTED_TAINT.key]
        await self._set_taints(node, left)

    async def _set_taints(self, node: Node, taints: Collection[object]) -> None:
        patch = {
            "metadata": preconditions(node.metadata),
            "spec": {"taints": msgspec.to_builtins(tuple(taints))},
        }
        try:
            await self._client.patch(NODE, node.metadata.name, patch=patch)
        except (Conflict, NotFound):
            return  # the node has changed: the next look tries again


def _is_interrupted(machine: Machine) -> bool:
    record = record_of(machine)
    return record is not None and record.reason == INTERRUPTED


class _PassState:
    """The state of a look, sorted out."""

    def __init__(self, state: DisruptionState, changes: Mapping[str, datetime]) -> None:
        self.state = state
        self.disruptor = MachineDisruptor(state.pools, state.cluster, state.budgets, changes)
        self.pools = {
            **{pool.metadata.name: pool for pool in state.their_pools},
            **{pool.name: pool.pool for pool in state.pools},
        }
        self.nodes = {node.metadata.name: node for node in state.cluster.nodes}
        self.machines = {machine.metadata.name: machine for machine in state.machines}
        self.pods_of: dict[str, list[Pod]] = {}
        for pod in state.pods:
            if node := occupies(pod):
                self.pods_of.setdefault(node, []).append(pod)
        self.validated: set[tuple[str, ...]] = set()


def _shown(state: DisruptionState) -> object:
    """What decisions go by, apart from the time; agents' reports of nodes that stay ready do not count."""
    return (
        tuple((pool.pool.metadata.uid, pool.pool.metadata.generation) for pool in state.pools),
        tuple((pool.boot_image, pool.template_hash, id(pool.catalogue)) for pool in state.pools),
        tuple((each.metadata.uid, each.metadata.resource_version) for each in state.machines),
        tuple(
            (each.metadata.uid, is_ready(each), each.spec, each.metadata.annotations)
            for each in state.cluster.nodes
        ),
        tuple((each.metadata.uid, occupies(each), waits_for_machine(each)) for each in state.pods),
        tuple((each.metadata.uid, each.status.disruptions_allowed) for each in state.budgets),
        tuple(state.cluster.leases),
    )
