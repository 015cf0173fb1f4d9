"""Preemption for whole gangs, and the reclaim of quota that a queue lent.

The members are gone through in order on the snapshot, as dry runs. One that finds no node asks the
PostFilter plugins, as a single pod would; its victims are taken out of the snapshot, it is put where
they were, and the next member sees both. If enough members get a node that way, each is nominated
to its own and all victims go; if not, no pod is deleted. A victim takes the rest of its gang with it
where that would fall below its quorum; more important pods stay whatever becomes of their gang.

Owners of quota come before borrowers whatever their priorities. Of the pods in queues that borrow, the
least important and youngest go first, and only as long as a queue keeps at least its own capacity.
Pods that are terminating count as gone. If that does not free enough, none goes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from grange.scheduler.cycle import Cycle
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.framework import SUCCESS, CycleState, PostFilterResult
from grange.scheduler.gangs.pod_groups import ON_NODES, Gang, PodGroups, Quorum
from grange.scheduler.gangs.quotas import Amounts, Quotas, subtract, total
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evaluator import was_preempted
from grange.scheduler.preemption.lower_priority import LowerPriority
from grange.scheduler.preemption.victim_selection import importance
from grange.scheduler.queued_pods import QueuedPod

Members = Sequence[tuple[QueuedPod, PodInfo]]
"""Candidates in order, and what is decided instead of each one's own pod."""

_ANY_PRIORITY = 2**31  # above all there are


class GangPreemption:
    """Finds nodes and victims for gangs.

    Args:
        info: a pod on a node by its UID.
        withdrawn: called with pods whose nominations were withdrawn: others may use the resources.
    """

    def __init__(
        self,
        cycle: Cycle,
        groups: PodGroups,
        quotas: Quotas,
        info: Callable[[str], PodInfo | None],
        withdrawn: Callable[[Sequence[PodInfo]], None],
    ) -> None:
        self._cycle = cycle
        self._groups = groups
        self._quotas = quotas
        self._info = info
        self._withdrawn = withdrawn
        self._lower = LowerPriority(cycle.snapshot)

    def gang_victims(
        self, victims: Sequence[PodInfo], priority: int, gone: Sequence[PodInfo] = ()
    ) -> tuple[PodInfo, ...]:
        """The victims, and those of their gangs that go with them.

        None of the preemptor's ``priority`` or above is added; pods that are ``gone`` go already.
        """
        found = {info.uid: info for info in victims}
        going = self._by_gang((*gone, *victims))
        for gang in self._by_gang(victims):
            if not gang.is_whole_without(going[gang]):
                for info in self._on_nodes(gang):
                    if info.priority < priority:
                        found.setdefault(info.uid, info)
        return tuple(info for info in found.values() if not info.pod.metadata.deletion_timestamp)

    def preempt(
        self,
        members: Members,
        quorum: Quorum,
        nominated: Sequence[PodInfo],
        going: Sequence[PodInfo] = (),
    ) -> dict[str, PostFilterResult]:
        """By member's UID, where it goes and which pods have to go for it; empty if it cannot be.

        Args:
            members: the candidates.
            quorum: which of them must have a node.
            nominated: members that wait; they lose nominations whose victims are not terminating.
            going: pods that have to go in any case; without them too few could be admitted.
        """
        if self.under_way(nominated) or not (going or self._may_help(members)):
            return {}
        try:
            for victim in going:
                # One whose node is gone uses quota, and no node.
                if victim.pod.spec.node_name in self._cycle.snapshot.node_info_map:
                    self._cycle.snapshot.take_out(victim)
            found = self._try(members, quorum, going)
            if going and found:
                first = next(iter(found))
                victims = (*going, *found[first].victims)
                lent = frozenset(victim.uid for victim in going)
                found[first] = replace(found[first], victims=victims, lent=lent)
            return found
        finally:
            self._cycle.snapshot.undo_trials()

    def _try(
        self, members: Members, quorum: Quorum, going: Sequence[PodInfo]
    ) -> dict[str, PostFilterResult]:
        snapshot = self._cycle.snapshot
        found: dict[str, PostFilterResult] = {}
        preempts = bool(going)
        gone = [*going]
        for queued, overridden in members:
            if not quorum.is_open:
                break
            if not quorum.takes(queued.uid):
                continue
            state = CycleState()
            node = self._cycle.decide_on_snapshot(overridden, state)
            result = PostFilterResult(SUCCESS)
            if isinstance(node, Diagnosis):
                asked = None if node.pre_filter else self._cycle.find_preemption(overridden, state)
                if asked is None or not asked.nominated:
                    quorum.tried(queued.uid, placed=False)
                    continue
                preempts, node, result = True, asked.nominated, asked
            victims = self.gang_victims(result.victims, overridden.priority, gone)
            gone.extend(victims)
            for victim in victims:
                snapshot.take_out(victim)
            snapshot.assume_pod(self._cycle.info_on(queued.info, node))
            found[queued.uid] = PostFilterResult(SUCCESS, node, victims, result.cleared)
            quorum.tried(queued.uid, placed=True)
        return found if preempts and quorum.is_met else {}

    def may_preempt(self, pod: PodInfo) -> bool:
        """Whether any pod on any node has a lower priority."""
        return self._lower.any_below(pod.priority)

    def room(self, priority: int | None, names: Iterable[str]) -> dict[str, int]:
        """Of each resource, what nodes that take pods have free with all pods of lower priority gone.

        Without a priority, what all nodes have: cordoned ones may open, and any pod may end.
        """
        table = self._cycle.snapshot.table
        rows = table.all
        usable = table.valid[rows] & (~table.unschedulable[rows] | (priority is None))
        found = {}
        for name in names:
            offered, used = table.amounts(name, rows)
            if priority is None:
                found[name] = int(offered[usable].sum())
                continue
            left = np.maximum(offered - used, 0) + self._lower.amounts_below(name, priority)
            found[name] = int(np.minimum(left, offered)[usable].sum())
        return found

    def _may_help(self, members: Members) -> bool:
        """Whether a member of any shape would find victims at all; most gangs would not.

        One that finds a node without any may still need some for those after it.
        """
        for overridden in {
            queued.info.signature: overridden for queued, overridden in members
        }.values():
            state = CycleState()
            if not isinstance(self._cycle.decide_on_snapshot(overridden, state), Diagnosis):
                if self._lower.any_below(overridden.priority):
                    return True
            elif self._cycle.find_preemption(overridden, state) is not None:
                return True
        return False

    def under_way(self, nominated: Sequence[PodInfo]) -> bool:
        """Whether victims of these pods are still terminating; otherwise nominations are withdrawn."""
        nominator = self._cycle.nominator
        for info in nominated:
            entry = self._cycle.snapshot.node_info_map.get(nominator.node_of(info.uid))
            pods = () if entry is None else entry.pods
            if any(
                other.pod.metadata.deletion_timestamp and was_preempted(other.pod) for other in pods
            ):
                return True
        return self.withdraw(nominated)

    def withdraw(self, nominated: Sequence[PodInfo]) -> bool:
        """Withdraw nominations of pods that have no use for them now.

        Returns:
            True if their victims are just being deleted: the nominations stand until that is done,
            and then the pods are tried again.
        """
        nominator = self._cycle.nominator
        evicting = [info.uid for info in nominated if info.uid in nominator.evicting]
        nominator.evicting.update(dict.fromkeys(evicting, True))
        removed = [] if evicting else [info for info in nominated if nominator.remove(info.uid)]
        if removed:
            self._withdrawn(removed)
        return bool(evicting)

    def _by_gang(self, pods: Iterable[PodInfo]) -> dict[Gang, list[str]]:
        found: dict[Gang, list[str]] = {}
        for info in pods:
            gang = self._groups.of(info.pod) if info.pod.metadata.labels else None
            if info.pod.metadata.deletion_timestamp:
                continue  # its gang does not count it
            if gang is not None and gang.group is not None:
                found.setdefault(gang, []).append(info.uid)
        return found

    def _on_nodes(self, gang: Gang) -> list[PodInfo]:
        found = []
        for uid, member in gang.members.items():
            if member.state in ON_NODES:
                entry = self._cycle.snapshot.node_info_map.get(member.pod.spec.node_name)
                pods = () if entry is None else entry.pods
                found += [info for info in pods if info.uid == uid]
        return found

    # --- quota that was lent -----------------------------------------------------------------

    def borrowers(self, queue: str, wanted: Amounts) -> tuple[PodInfo, ...]:
        """The pods that have to go so that a queue can admit that much of its capacity.

        None where the queue would have to borrow itself, nothing is missing, or not enough can be had.
        """
        quotas = self._quotas
        if not quotas.entitled(queue, wanted):
            return ()
        short, candidates = self._lent_by(queue, wanted)
        gone: dict[str, PodInfo] = {}
        for pod in sorted(candidates, key=importance, reverse=True):
            if not short:
                break
            if pod.uid in gone or not any(quotas.charge_of(pod.uid)[1].get(name) for name in short):
                continue
            going = self.gang_victims([pod], _ANY_PRIORITY, [*gone.values()])
            together = {**gone, **{item.uid: item for item in going}}
            if self._keep_their_own(together):
                for item in going:
                    if item.uid not in gone:
                        short = subtract(short, quotas.charge_of(item.uid)[1])
                gone = together
        return () if short else tuple(gone.values())

    def _lent_by(self, queue: str, wanted: Amounts) -> tuple[dict[str, int], list[PodInfo]]:
        """What is missing once terminating pods are gone, and the pods of queues that borrow."""
        quotas = self._quotas
        short = quotas.shortage(queue, wanted)
        found = []
        for peer in quotas.peers(queue):
            if peer == queue or not quotas.borrowed(peer):
                continue
            for uid, held in quotas.charged(peer).items():
                pod = self._info(uid)
                if pod is not None and pod.pod.metadata.deletion_timestamp:
                    short = subtract(short, held)
                elif pod is not None:
                    found.append(pod)
        return short, found

    def _keep_their_own(self, gone: dict[str, PodInfo]) -> bool:
        """Whether every queue that loses pods still uses its own capacity of what they used."""
        quotas = self._quotas
        lost: dict[str, list[Amounts]] = {}
        for uid in gone:
            queue, held = quotas.charge_of(uid)
            lost.setdefault(queue, []).append(held)
        return not any(
            subtract(quotas.limited(queue, total(parts)), quotas.borrowed(queue))
            for queue, parts in lost.items()
        )
