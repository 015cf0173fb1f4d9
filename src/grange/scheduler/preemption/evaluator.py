"""The evaluator: whether a pod without a node may preempt, on which node, and which victims.

Theory of operation. Nodes that the pod refuses whatever runs there, and nodes that are too small
for it, are left out. The others are tried in the order of the node tree from a random offset,
until there are enough candidates; the best of those is chosen.

Where node objects and loads decide alone, what is known of each node is known for pods of one class
and priority (``victim_cache``): a hundred pods of one kind that preempt one after another do not try the
same nodes a hundred times. Nothing is kept where rules about other nodes apply; there columns
rule out at once the nodes that would be too small even without any less important pod
(``lower_priority``).
"""

from collections import Counter

import numpy as np

from grange.api import conditions
from grange.api.kinds.pod import DISRUPTION_TARGET, Pod
from grange.api.kinds.priorityclass import NEVER
from grange.base.bounded import BoundedDict
from grange.placement.columns import Integers, Mask
from grange.scheduler.dry_run import DryRun, LoadDryRun
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    CycleState,
    Handle,
    PostFilterResult,
    Status,
)
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.nominator import Nominated
from grange.scheduler.podinfo import LabelSet, PodInfo
from grange.scheduler.preemption.lower_priority import LowerPriority
from grange.scheduler.preemption.victim_cache import VictimCache
from grange.scheduler.preemption.victim_selection import (
    NO_VICTIMS,
    CandidateSettings,
    Victims,
    dry_run,
    pick_one,
    select_victims,
)

BY_SCHEDULER = "PreemptionByScheduler"

NOT_HELPFUL = "Preemption is not helpful for scheduling"
_EXPLAINED_MAX = 100  # nodes that are tried again for the sake of the message
_CLASSES_MAX = 64
_LABEL_SETS_MAX = 1_000
_NOTHING = Nominated()

_Pods = tuple[PodInfo, ...]


class _ClassState:
    """What is known for pods of one class and priority."""

    __slots__ = ("by_label_set", "by_load", "layout", "loads", "nodes", "order", "terms", "victims")

    def __init__(self, trial: DryRun) -> None:
        self.layout = self.nodes = -1
        self.order: Integers = np.zeros(0, np.int64)  # rows that the pod does not refuse
        self.loads = LoadDryRun(trial)
        self.victims: VictimCache | None = None
        # Whether loads decide alone as long as no placed pod has terms about others.
        self.by_load: bool | None = None
        # The same among pods that have; which terms matter to a pod follows from its labels.
        self.by_label_set: dict[LabelSet, bool] = {}
        self.terms = (-1, -1)


class Evaluator:
    """Finds nodes and victims by preemption, for the pods of one profile."""

    def __init__(self, handle: Handle, settings: CandidateSettings) -> None:
        self._handle = handle
        self._settings = settings
        self._lower = LowerPriority(handle.snapshot)
        # Without that plugin amounts are not counted, so they rule nothing out.
        self._counts_amounts = "NodeResourcesFit" in handle.profile.plugins
        self._classes: BoundedDict[tuple[int, int], _ClassState] = BoundedDict(_CLASSES_MAX)
        self.tried = 0
        """How many nodes were tried (a work counter)."""

    def __call__(self, state: CycleState, pod: PodInfo) -> PostFilterResult:
        """The node and the victims for a pod that fits no node."""
        handle = self._handle
        trial = DryRun(handle.profile, state, pod, handle.snapshot)
        nominated = handle.nominator.nominations_for(pod) or _NOTHING
        why = self._waits(trial, pod, nominated)
        if why:
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (why,)))
        refused: dict[int, Status] = {}
        best = self._best(trial, pod, nominated, refused)
        if best is None:
            cleared = "" if nominated.first else None
            message = self._diagnose(trial, pod, nominated, refused)
            return PostFilterResult(Status(Code.UNSCHEDULABLE, (message,)), cleared)
        cleared_pods = handle.nominator.less_important(best.node_name, pod.pod.spec.priority)
        victims = [info for info in best.pods if not info.pod.metadata.deletion_timestamp]
        return PostFilterResult(SUCCESS, best.node_name, tuple(victims), tuple(cleared_pods))

    # --- whether -----------------------------------------------------------------------------

    def _waits(self, trial: DryRun, pod: PodInfo, nominated: Nominated) -> str:
        """Why the pod does not preempt now; empty if it may."""
        if pod.pod.spec.preemption_policy == NEVER:
            return "not eligible due to preemptionPolicy=Never."
        nominator = self._handle.nominator
        if pod.uid in nominator.evicting:
            nominator.evicting[pod.uid] = True
            return "not eligible while its victims are being deleted."
        node = self._handle.snapshot.node_info_map.get(nominated.first)
        if node is None or not any(_makes_room(info, pod) for info in node.pods):
            return ""
        with trial.on(node) as what_if:
            if what_if.status(nominated.on(nominated.first)).code is Code.UNRESOLVABLE:
                return ""
        return "not eligible due to a terminating pod on the nominated node."

    # --- where -------------------------------------------------------------------------------

    def _best(
        self, trial: DryRun, pod: PodInfo, nominated: Nominated, refused: dict[int, Status]
    ) -> Victims | None:
        """The best candidate, if there is any; ``refused`` takes the rows that were tried in vain."""
        handle, snapshot = self._handle, self._handle.snapshot
        known = self._of(trial, pod)
        order = known.order
        if not len(order):
            return None
        offset = handle.offset(len(order))
        wanted = self._settings.wanted(len(order))

        def trying(row: int) -> Victims | Status:
            node = snapshot.by_row[row]
            self.tried += 1
            found = self._judge(trial, node, nominated.on(node.name))
            if isinstance(found, Status):
                refused[row] = found
            return found

        if self._by_load(known, trial):
            cache = known.victims
            if cache is None:
                priority = pod.pod.spec.priority
                cache = known.victims = VictimCache(handle, known.loads, priority, order)
            evaluated = cache.evaluated
            best = cache.best(offset, wanted, nominated, trying)
            self.tried += cache.evaluated - evaluated
            return best
        order = np.concatenate([order[offset:], order[:offset]])
        found = dry_run(order[self._may_fit(pod)[order]].tolist(), wanted, trying)
        return pick_one(found) if found else None

    def _diagnose(
        self, trial: DryRun, pod: PodInfo, nominated: Nominated, refused: dict[int, Status]
    ) -> str:
        """Why no node has victims for the pod, in kube-scheduler's words: counts by reason."""
        snapshot, priority = self._handle.snapshot, pod.pod.spec.priority
        rows = self._of(trial, pod).order
        counts = Counter({NOT_HELPFUL: snapshot.num_nodes - len(rows)})
        removable = self._lower.any_on(rows, priority)
        counts[NO_VICTIMS] = int(np.count_nonzero(~removable))
        left = rows[removable]
        if self._counts_amounts:
            short = np.zeros(len(left), np.bool_)
            for reason, mask in self._lower.shortages(pod.request, priority, left):
                counts[reason] = int(np.count_nonzero(mask))
                short |= mask
            left = left[~short]
        for number, row in enumerate(left.tolist()):
            if row not in refused and number < _EXPLAINED_MAX:
                node = snapshot.by_row[row]
                found = self._judge(trial, node, nominated.on(node.name))
                refused[row] = found if isinstance(found, Status) else SUCCESS
            status = refused.get(row, SUCCESS)
            helped = status.code is Code.UNSCHEDULABLE
            counts.update(status.reasons if helped else (NOT_HELPFUL,))
        reasons = ", ".join(
            sorted(f"{count} {reason}" for reason, count in counts.items() if count)
        )
        return f"0/{snapshot.num_nodes} nodes are available: {reasons}."

    def _by_load(self, known: _ClassState, trial: DryRun) -> bool:
        """Whether loads decide alone about this pod."""
        index = self._handle.snapshot.index
        if index.silent:
            if known.by_load is None:
                known.by_load = LoadDryRun.suits(trial)
            return known.by_load
        terms = (index.epoch, index.known)
        if known.terms != terms or len(known.by_label_set) >= _LABEL_SETS_MAX:
            known.terms = terms
            known.by_label_set.clear()
        labels = trial.pod.label_set()
        found = known.by_label_set.get(labels)
        if found is None:
            found = known.by_label_set[labels] = LoadDryRun.suits(trial)
        return found

    def _may_fit(self, pod: PodInfo) -> Mask:
        """By row, whether the pod might fit without any less important pod."""
        if not self._counts_amounts:
            return np.ones(self._handle.snapshot.table.size, np.bool_)
        return self._lower.may_fit(pod.request, pod.pod.spec.priority)

    def _judge(self, trial: DryRun, node: NodeInfo, nominated: _Pods) -> Victims | Status:
        if trial.rules:
            # What a rule about other nodes refuses is not resolved by taking pods away.
            with trial.on(node) as what_if:
                status = what_if.status(nominated)
            if status.code is Code.UNRESOLVABLE:
                return status
        return select_victims(trial, node, self._handle.budgets, nominated=nominated)

    def _of(self, trial: DryRun, pod: PodInfo) -> _ClassState:
        """What is known for pods of this class, brought up to date."""
        snapshot = self._handle.snapshot
        key = (self._handle.profile.sign(pod), pod.pod.spec.priority)
        known = self._classes.get(key)
        if known is None:
            known = self._classes[key] = _ClassState(trial)
        moved = known.layout != snapshot.layout
        if moved or known.nodes != snapshot.index.nodes:
            known.layout, known.nodes = snapshot.layout, snapshot.index.nodes
            order = self._open_rows(pod)
            # Even where the order stays, there may be a new row.
            if known.victims is not None and (moved or not np.array_equal(order, known.order)):
                known.victims.follow(order)
            known.order = order
        return known

    def _open_rows(self, pod: PodInfo) -> Integers:
        """The rows that might take the pod, in the order of the node tree."""
        snapshot = self._handle.snapshot
        table, rows, need = snapshot.table, snapshot.table.all, pod.request.resources
        mask = self._handle.profile.allowed_rows(pod, table)
        if self._counts_amounts:
            mask &= table.cpu_total[rows] >= need.cpu_milli
            mask &= table.memory_total[rows] >= need.memory_bytes
            mask &= table.ephemeral_total[rows] >= need.ephemeral_bytes
        order: Integers = np.asarray(snapshot.order)
        found: Integers = order[mask[order]]
        return found


def _makes_room(info: PodInfo, pod: PodInfo) -> bool:
    """Whether a pod of lower priority is terminating because it was preempted."""
    return (
        info.pod.spec.priority < pod.pod.spec.priority
        and bool(info.pod.metadata.deletion_timestamp)
        and was_preempted(info.pod)
    )


def was_preempted(pod: Pod) -> bool:
    """Whether the pod's conditions mark it as a victim of the scheduler."""
    found = conditions.find(pod.status.conditions, DISRUPTION_TARGET)
    return found is not None and found.status == "True" and found.reason == BY_SCHEDULER
