"""The evaluator: whether a pod without a node may preempt, on which node, and whom.

Theory of operation. Nodes that the pod refuses whatever runs there, and nodes that are too small
for it, cannot be helped. The others are tried in the order of the node tree from a drawn offset on,
until there are enough candidates; the best of those is chosen.

Where node objects and loads decide alone, what is known of each node is kept for pods of one class
and priority (``verdicts``): a hundred pods of one kind that preempt one after another do not try the
same nodes a hundred times. Nothing is kept where rules about other nodes have a say; there columns
rule out at once the nodes that would be too small even if everybody less important were gone
(``removable``).
"""

from collections import Counter, OrderedDict

import numpy as np

from grange.api import conditions
from grange.api.kinds.pod import DISRUPTION_TARGET, Pod
from grange.api.kinds.priorityclass import NEVER
from grange.placement.columns import Integers, Mask
from grange.scheduler.dry_run import DryRun
from grange.scheduler.framework import (
    SUCCESS,
    Code,
    CycleState,
    Handle,
    PostFilterResult,
    Scope,
    Status,
)
from grange.scheduler.label_set import LabelSet
from grange.scheduler.load_dry_run import LoadDryRun
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.nominator import Nominated
from grange.scheduler.preemption.candidates import CandidateSettings, dry_run
from grange.scheduler.preemption.choice import pick_one
from grange.scheduler.preemption.lower_priority import LowerPriority
from grange.scheduler.preemption.victim_cache import VictimCache
from grange.scheduler.preemption.victims import NO_VICTIMS, Victims, select_victims

BY_SCHEDULER = "PreemptionByScheduler"

NOT_HELPFUL = "Preemption is not helpful for scheduling"
_EXPLAINED_MAX = 100  # nodes that are tried again for the sake of the message
_KEPT_CLASSES = 64
_KEPT_KIN = 1_000
_NOTHING = Nominated()

_Pods = tuple[PodInfo, ...]


class _Kept:
    """What is known for pods of one class and priority."""

    __slots__ = ("by_kin", "by_load", "layout", "loads", "nodes", "order", "terms", "verdicts")

    def __init__(self, trial: DryRun) -> None:
        self.layout = self.nodes = -1
        self.order: Integers = np.zeros(0, np.int64)  # rows that the pod does not refuse
        self.loads = LoadDryRun(trial)
        self.verdicts: VictimCache | None = None
        # Whether loads decide alone as long as no placed pod has anything to say about others.
        self.by_load: bool | None = None
        # The same among pods that have; what concerns a pod follows from its kin and their terms.
        self.by_kin: dict[LabelSet, bool] = {}
        self.terms = (-1, -1)


class Evaluator:
    """Finds room by preemption, for the pods of one profile.

    Args:
        handle: the parts of the scheduling loop.
        settings: how many candidates are enough.
    """

    def __init__(self, handle: Handle, settings: CandidateSettings) -> None:
        self._handle = handle
        self._settings = settings
        self._removable = LowerPriority(handle.snapshot)
        # Without that plugin nobody asks for amounts, so they rule nothing out.
        self._counts_amounts = "NodeResourcesFit" in handle.profile.plugins
        self._kept: OrderedDict[tuple[int, int], _Kept] = OrderedDict()
        self.tried = 0
        """How many nodes were tried (a work counter)."""

    def __call__(self, state: CycleState, pod: PodInfo) -> PostFilterResult:
        """What to do for a pod that no node has room for."""
        handle = self._handle
        trial = DryRun(handle.profile, state, pod, handle.snapshot)
        nominated = handle.nominator.beside(pod) or _NOTHING
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
        kept = self._of(trial, pod)
        order = kept.order
        if not len(order):
            return None
        offset = handle.offset(len(order))
        wanted = self._settings.wanted(len(order))

        def trying(row: int) -> Victims | Status:
            node = snapshot.by_row[row]
            found = self._try(trial, node, nominated.on(node.name))
            if isinstance(found, Status):
                refused[row] = found
            return found

        if self._by_load(kept, trial):
            verdicts = kept.verdicts
            if verdicts is None:
                priority = pod.pod.spec.priority
                verdicts = kept.verdicts = VictimCache(handle, kept.loads, priority, order)
            judged = verdicts.judged
            best = verdicts.best(offset, wanted, nominated, trying)
            self.tried += verdicts.judged - judged
            return best
        order = np.concatenate([order[offset:], order[:offset]])
        found = dry_run(order[self._hopeful(pod)[order]].tolist(), wanted, trying)
        return pick_one(found) if found else None

    def _diagnose(
        self, trial: DryRun, pod: PodInfo, nominated: Nominated, refused: dict[int, Status]
    ) -> str:
        """Why no node has victims for the pod, in kube-scheduler's words: counts by reason."""
        snapshot, priority = self._handle.snapshot, pod.pod.spec.priority
        rows = self._of(trial, pod).order
        counts = Counter({NOT_HELPFUL: snapshot.num_nodes - len(rows)})
        removable = self._removable.any_on(rows, priority)
        counts[NO_VICTIMS] = int(np.count_nonzero(~removable))
        left = rows[removable]
        if self._counts_amounts:
            short = np.zeros(len(left), np.bool_)
            for reason, mask in self._removable.shortages(pod.request, priority, left):
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

    def _by_load(self, kept: _Kept, trial: DryRun) -> bool:
        """Whether loads decide alone about this pod."""
        index = self._handle.snapshot.index
        if index.silent:
            if kept.by_load is None:
                kept.by_load = LoadDryRun.suits(trial)
            return kept.by_load
        terms = (index.epoch, index.known)
        if kept.terms != terms or len(kept.by_kin) >= _KEPT_KIN:
            kept.terms = terms
            kept.by_kin.clear()
        kin = trial.pod.kinship()
        found = kept.by_kin.get(kin)
        if found is None:
            found = kept.by_kin[kin] = LoadDryRun.suits(trial)
        return found

    def _hopeful(self, pod: PodInfo) -> Mask:
        """By row, whether the pod might fit with everybody less important gone."""
        if not self._counts_amounts:
            return np.ones(self._handle.snapshot.table.size, np.bool_)
        return self._removable.may_fit(pod.request, pod.pod.spec.priority)

    def _try(self, trial: DryRun, node: NodeInfo, nominated: _Pods) -> Victims | Status:
        self.tried += 1
        return self._judge(trial, node, nominated)

    def _judge(self, trial: DryRun, node: NodeInfo, nominated: _Pods) -> Victims | Status:
        if trial.rules:
            # What a rule about company refuses is not to be had by taking pods away.
            with trial.on(node) as what_if:
                status = what_if.status(nominated)
            if status.code is Code.UNRESOLVABLE:
                return status
        return select_victims(trial, node, self._handle.budgets, nominated=nominated)

    def _of(self, trial: DryRun, pod: PodInfo) -> _Kept:
        """What is known for pods of this class, brought up to date."""
        snapshot = self._handle.snapshot
        key = (self._handle.profile.sign(pod), pod.pod.spec.priority)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = _Kept(trial)
            while len(self._kept) > _KEPT_CLASSES:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        moved = kept.layout != snapshot.layout
        if moved or kept.nodes != snapshot.index.nodes:
            kept.layout, kept.nodes = snapshot.layout, snapshot.index.nodes
            order = self._open_rows(trial, pod)
            # Even where the order stays, there may be a row that nobody has heard of.
            if kept.verdicts is not None and (moved or not np.array_equal(order, kept.order)):
                kept.verdicts.follow(order)
            kept.order = order
        return kept

    def _open_rows(self, trial: DryRun, pod: PodInfo) -> Integers:
        """The rows that might take the pod, in the order of the node tree."""
        snapshot = self._handle.snapshot
        table, rows, need = snapshot.table, snapshot.table.all, pod.request.resources
        mask = table.valid[rows].copy()
        for _, plugin in trial.filters:
            if plugin.scope is Scope.NODE:
                mask &= plugin.filter_rows(pod, table, rows)
        if self._counts_amounts:
            mask &= table.cpu_total[rows] >= need.cpu_milli
            mask &= table.memory_total[rows] >= need.memory_bytes
            mask &= table.ephemeral_total[rows] >= need.ephemeral_bytes
        order: Integers = np.asarray(snapshot.order)
        found: Integers = order[mask[order]]
        return found


def _makes_room(info: PodInfo, pod: PodInfo) -> bool:
    """Whether a pod is on its way out to make room for more important ones."""
    return (
        info.pod.spec.priority < pod.pod.spec.priority
        and bool(info.pod.metadata.deletion_timestamp)
        and was_preempted(info.pod)
    )


def was_preempted(pod: Pod) -> bool:
    """Whether the pod says that the scheduler chose it as a victim."""
    told = conditions.find(pod.status.conditions, DISRUPTION_TARGET)
    return told is not None and told.status == "True" and told.reason == BY_SCHEDULER
