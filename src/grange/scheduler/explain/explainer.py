"""Explains on demand why a pod waits or is on its node.

It reads the scheduler's own state between two decisions and decides nothing.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

import numpy as np
from msgspec.structs import replace

from grange.api import timestamps
from grange.api.explanation import (
    Attempt,
    Choice,
    Explanation,
    NearNode,
    ReasonCount,
    SchedulingState,
)
from grange.api.kinds.pod import Pod, is_finished
from grange.api.meta import ObjectMeta
from grange.base.clock import Clock
from grange.placement.columns import Integers
from grange.scheduler import diagnosis
from grange.scheduler.cache import Cache
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.explain import changes
from grange.scheduler.explain.attempt_history import AttemptHistory, AttemptRecord
from grange.scheduler.explain.evaluation import Evaluation
from grange.scheduler.explain.gang_explanation import GangExplanation
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nominator import Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod, SubQueue
from grange.scheduler.snapshot import NodeInfoSnapshot

_NEAREST = 5
_REASONS = 16
_TOO_LARGE = (
    "request less, run fewer pods, or add nodes: these would not hold the gang even if empty"
)
_WAITS: Mapping[SubQueue, tuple[SchedulingState, str]] = {
    SubQueue.ACTIVE: (SchedulingState.ACTIVE, "waits for its turn"),
    SubQueue.IN_FLIGHT: (SchedulingState.ACTIVE, "is being tried"),
    SubQueue.BACKOFF: (
        SchedulingState.BACKOFF,
        "waits: it failed a moment ago and is tried again soon",
    ),
    SubQueue.ERROR_BACKOFF: (
        SchedulingState.BACKOFF,
        "waits: it met an error and is tried again soon",
    ),
    SubQueue.UNSCHEDULABLE: (
        SchedulingState.UNSCHEDULABLE,
        "waits until something changes that may help",
    ),
}


class PodExplainer:
    """Explains the pods of one scheduler.

    Args:
        profiles: the plugins, by ``schedulerName``.
        waits_for: a text about what a pod waits for apart from plugins; empty for nothing.
        explain_gang: why the whole gang of a pod finds no nodes; None where it waits for none.
    """

    def __init__(  # noqa: PLR0913  all that it reads
        self,
        profiles: Callable[[str], Profile | None],
        cache: Cache,
        queue: SchedulingQueue,
        snapshot: NodeInfoSnapshot,
        history: AttemptHistory,
        *,
        clock: Clock,
        nominator: Nominator,
        waits_for: Callable[[Pod], str] = lambda pod: "",
        explain_gang: Callable[[Pod], GangExplanation | None] = lambda pod: None,
    ) -> None:
        self._profiles = profiles
        self._cache = cache
        self._queue = queue
        self._snapshot = snapshot
        self._history = history
        self._clock = clock
        self._nominator = nominator
        self._waits_for = waits_for
        self._explain_gang = explain_gang

    def explain(self, pod: Pod) -> Explanation | None:
        """Why the pod is where it is; None for a pod that is not this scheduler's.

        Raises:
            SnapshotInconsistent: the snapshot is being repaired; retry.
        """
        profile = self._profiles(pod.spec.scheduler_name)
        if profile is None:
            return None
        self._cache.update_node_info_snapshot(self._snapshot)
        meta = pod.metadata
        answer = Explanation(
            metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
            nodes=self._snapshot.num_nodes,
            attempts=tuple(self._attempt(entry) for entry in self._history.of(meta.uid)),
        )
        node = pod.spec.node_name
        if is_finished(pod):
            word = "ended" if pod.status.phase == "Succeeded" else "failed"
            where = f"ran on {node} and" if node else "had no node and"
            summary = f"{where} {word}; it needs no node any more"
            return replace(answer, state=SchedulingState.FINISHED, summary=summary, node=node)
        known = self._cache.info(meta.uid)
        if known is not None and known.pod.spec.node_name:
            return self._explain_placed(answer, profile, pod, known)
        if node:
            summary = f"is on {node}; the scheduler has not heard of that yet"
            return replace(answer, state=SchedulingState.PLACED, summary=summary, node=node)
        if meta.deletion_timestamp:
            summary = "is being deleted and gets no node"
            return replace(answer, state=SchedulingState.TERMINATING, summary=summary)
        queued = self._queue.find(meta.uid)
        if queued is None:
            summary = "waits; the scheduler has not seen it yet"
            return replace(
                answer, state=SchedulingState.UNSEEN, summary=summary, hint="ask again in a moment"
            )
        return self._explain_waiting(answer, profile, queued)

    # --- placed ------------------------------------------------------------------------------

    def _explain_placed(
        self, answer: Explanation, profile: Profile, pod: Pod, known: PodInfo
    ) -> Explanation:
        node = known.pod.spec.node_name
        state, summary = SchedulingState.PLACED, f"is on {node}"
        if not pod.spec.node_name:
            state = SchedulingState.BINDING
            summary = f"is on its way to {node}: the binding is being written"
            held = self._waits_for(pod)
            if held:
                summary = f"has room held for it on {node} and waits for {held}"
        answer = replace(answer, state=state, summary=summary, node=node)
        entry = self._snapshot.node_info_map.get(node)
        if entry is None or all(item.uid != known.uid for item in entry.pods):
            return answer
        self._snapshot.take_out(known)  # until the answer is found: it must not await
        try:
            evaluation = Evaluation(profile, known.on(""), self._snapshot)
            row = self._snapshot.table.rows[node]
            feasible = int(np.count_nonzero(evaluation.feasible))
            if evaluation.feasible[row]:
                return replace(answer, choice=self._choice(evaluation, row), feasible=feasible)
            missing = (NearNode(name=node, missing=tuple(evaluation.missing(row))),)
            return replace(answer, nearest=missing, feasible=feasible)
        finally:
            self._snapshot.put_back(known.uid)

    def _choice(self, evaluation: Evaluation, row: int | None = None) -> Choice | None:
        """How a row compares with the best of the others; by default the best row."""
        rows: Integers = np.flatnonzero(evaluation.feasible)
        if not len(rows):
            return None
        parts = evaluation.scores()
        total = sum(parts.values(), np.zeros(len(evaluation.valid), np.int64))
        order = rows[np.lexsort((-self._snapshot.ties[rows], -total[rows]))]
        mine = int(order[0]) if row is None else row
        others = [int(item) for item in order[:2] if item != mine]
        names = self._snapshot.table.names
        choice = Choice(
            node=names[mine],
            score=int(total[mine]),
            parts={name: int(part[mine]) for name, part in parts.items()},
            candidates=len(rows),
        )
        if not others:
            return choice
        return replace(
            choice,
            runner_up=names[others[0]],
            runner_up_score=int(total[others[0]]),
            runner_up_parts={name: int(part[others[0]]) for name, part in parts.items()},
        )

    # --- waiting -----------------------------------------------------------------------------

    def _explain_waiting(
        self, answer: Explanation, profile: Profile, queued: QueuedPod
    ) -> Explanation:
        answer = replace(answer, waiting_since=self._when(queued.first_queued))
        if queued.gate:
            return self._explain_gated(answer, profile, queued)
        due = self._queue.due(queued)
        if due is not None:
            answer = replace(answer, until=self._when(due))
        waits, summary = _WAITS[queued.pool]
        together = self._waits_for(queued.info.pod)
        if together:
            summary = f"waits for {together}"
        nominated = self._nominator.node_of(queued.uid)
        if nominated:
            summary += f"; room is being made for it on {nominated}"
        answer = replace(answer, state=waits, summary=summary, node=nominated or answer.node)
        state = CycleState()
        stopped = diagnosis.pre_filter(profile, state, queued.info, self._snapshot)
        if isinstance(stopped, Diagnosis):
            return self._explain_pre_filter(answer, profile, stopped)
        answer = self._explain_nodes(answer, profile, state, queued.info)
        gang = self._explain_gang(queued.info.pod)
        if gang is not None:
            # A change that lets this pod fit does not let all pods of its gang fit.
            answer = replace(answer, gang=gang.room, changes=gang.changes)
            if gang.room is not None:
                answer = replace(answer, reasons=gang.reasons)
                if gang.room.when_empty < gang.room.pods:
                    answer = replace(answer, hint=_TOO_LARGE)
        if together and answer.feasible:
            # A node would accept it alone, but its gang is scheduled together.
            return replace(answer, choice=None)
        return answer

    def _explain_gated(
        self, answer: Explanation, profile: Profile, queued: QueuedPod
    ) -> Explanation:
        gates = [gate.get("name", "") for gate in queued.info.pod.spec.scheduling_gates]
        closed = [item for name, item in profile.pre_enqueue if name == queued.gate]
        reasons = closed[0](queued.info).reasons if closed else ()
        if gates:
            summary = f"is held back by its gates: {', '.join(gates)}"
            hint = "the program or user that set spec.schedulingGates has to remove them"
        else:
            summary = f"is held back by {queued.gate}"
            summary += f": {', '.join(reasons)}" if reasons else ""
            hint = ""
        return replace(answer, state=SchedulingState.GATED, summary=summary, hint=hint)

    def _explain_pre_filter(
        self, answer: Explanation, profile: Profile, stopped: Diagnosis
    ) -> Explanation:
        if not stopped.num_nodes:
            hint = "start an agent, or add a node"
            return replace(answer, summary=f"{answer.summary}: there are no nodes", hint=hint)
        reason = ReasonCount(reason=stopped.pre_filter, nodes=stopped.num_nodes)
        advice = (profile.plugins[name].advice for name in stopped.plugins)
        hint = next((item for item in advice if item), "")
        return replace(answer, reasons=(reason,), hint=hint)

    def _explain_nodes(
        self, answer: Explanation, profile: Profile, state: CycleState, info: PodInfo
    ) -> Explanation:
        nominated = self._nominator.nominations_for(info)
        evaluation = Evaluation(profile, info, self._snapshot, state, nominated)
        feasible = int(np.count_nonzero(evaluation.feasible))
        counts = sorted(evaluation.diagnosis.counts, key=lambda item: (-item[1], item[0]))
        reasons = [ReasonCount(reason=reason, nodes=count) for reason, count in counts]
        answer = replace(answer, feasible=feasible, reasons=tuple(reasons[:_REASONS]))
        if feasible:
            return replace(answer, choice=self._choice(evaluation))
        names = self._snapshot.table.names
        nearest = tuple(
            NearNode(name=names[row], missing=tuple(evaluation.missing(row)))
            for row in evaluation.nearest(_NEAREST)
        )
        helps = changes.cheapest(evaluation)
        return replace(answer, nearest=nearest, changes=helps)

    # --- times and attempts ------------------------------------------------------------------

    def _when(self, monotonic: float) -> str:
        at: datetime = self._clock.now() + timedelta(seconds=monotonic - self._clock.monotonic())
        return timestamps.rfc3339(at)

    def _attempt(self, entry: AttemptRecord) -> Attempt:
        diagnosis = entry.diagnosis
        return Attempt(
            result=entry.result.value,
            time=self._when(entry.last),
            since=self._when(entry.first),
            times=entry.times,
            node=entry.node,
            score=entry.score,
            message=diagnosis.message if diagnosis is not None else "",
            plugins=tuple(sorted(diagnosis.plugins)) if diagnosis is not None else (),
        )
