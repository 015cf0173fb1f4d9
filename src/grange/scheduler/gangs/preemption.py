"""Capacity for a whole gang by preemption, or for nobody.

The members are gone through in order on the snapshot, as trials. One that finds no node asks the
PostFilter plugins, as a single pod would; its victims are taken out of the snapshot, it is put where
they were, and the next member sees both. If enough members get a node that way, each is nominated
to its own and all victims go; if not, everything is put back and nobody is disturbed.

A victim takes the rest of its own gang with it where that would fall below its quorum: half a gang
is of no use to anybody. More important pods stay whatever becomes of their gang.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from grange.scheduler.cycle import Cycle
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.framework import SUCCESS, CycleState, PostFilterResult
from grange.scheduler.gangs.pod_groups import Gang, MemberState, PodGroups
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.preemption.evaluator import was_preempted
from grange.scheduler.preemption.lower_priority import LowerPriority
from grange.scheduler.queued_pods import QueuedPod

Seen = Sequence[tuple[QueuedPod, PodInfo]]


class GangPreemption:
    """Makes room for gangs.

    Args:
        cycle: decides, and knows the PostFilter plugins.
        book: who belongs to which group.
        withdrawn: told of pods that gave up their promised room: others may have it.
    """

    def __init__(
        self, cycle: Cycle, groups: PodGroups, withdrawn: Callable[[Sequence[PodInfo]], None]
    ) -> None:
        self._withdrawn = withdrawn
        self._cycle = cycle
        self._groups = groups
        self._removable = LowerPriority(cycle.snapshot)

    def gang_victims(
        self, victims: Sequence[PodInfo], priority: int, gone: Sequence[PodInfo] = ()
    ) -> tuple[PodInfo, ...]:
        """The victims, and those who go with them.

        Args:
            victims: pods that are to go.
            priority: of who preempts; nobody of this priority or above goes.
            gone: pods that are to go already.
        """
        found = {info.uid: info for info in victims}
        going = self._by_gang((*gone, *victims))
        for gang in self._by_gang(victims):
            if gang.num_counted - going[gang] < gang.min_member:
                for info in self._on_nodes(gang):
                    if info.pod.spec.priority < priority:
                        found.setdefault(info.uid, info)
        return tuple(info for info in found.values() if not info.pod.metadata.deletion_timestamp)

    def make_room(
        self,
        members: Seen,
        need: int,
        promised: Sequence[PodInfo],
        going: Sequence[PodInfo] = (),
    ) -> dict[str, PostFilterResult]:
        """Where members go and who has to go for it, by the member's UID; empty if it cannot be.

        Args:
            members: the candidates in order, with how they look at nodes.
            need: how many of them must have a node.
            promised: members of the gang that wait; what was promised to them is taken back, unless
                its victims are still on their way out.
            going: pods that have to go in any case; without them too few could.
        """
        if self.under_way(promised) or not (going or self._may_help(members)):
            return {}
        try:
            for victim in going:
                # One whose node is gone uses quota, and no room.
                if victim.pod.spec.node_name in self._cycle.snapshot.node_info_map:
                    self._cycle.snapshot.take_out(victim)
            found = self._try(members, need, going)
            if going and found:
                first = next(iter(found))
                victims = (*going, *found[first].victims)
                lent = frozenset(victim.uid for victim in going)
                found[first] = replace(found[first], victims=victims, lent=lent)
            return found
        finally:
            snapshot = self._cycle.snapshot
            snapshot.forget_all_assumed_pods()
            snapshot.put_back_all()

    def _try(
        self, members: Seen, need: int, going: Sequence[PodInfo]
    ) -> dict[str, PostFilterResult]:
        snapshot = self._cycle.snapshot
        found: dict[str, PostFilterResult] = {}
        spare = len(members) - need
        preempts = bool(going)
        gone = [*going]
        for queued, seen in members:
            if len(found) == need:
                break
            state = CycleState()
            node = self._cycle.judge(seen, state)
            room = PostFilterResult(SUCCESS)
            if isinstance(node, Diagnosis):
                asked = None if node.pre_filter else self._cycle.ask(seen, state)
                if asked is None or not asked.nominated:
                    spare -= 1
                    if spare < 0:
                        return {}
                    continue
                preempts, node, room = True, asked.nominated, asked
            victims = self.gang_victims(room.victims, seen.pod.spec.priority, gone)
            gone.extend(victims)
            for victim in victims:
                snapshot.take_out(victim)
            snapshot.assume_pod(self._cycle.on(queued.info, node))
            found[queued.uid] = PostFilterResult(SUCCESS, node, victims, room.cleared)
        return found if preempts and len(found) == need else {}

    def _may_help(self, members: Seen) -> bool:
        """Whether a member of any shape would find victims at all; most gangs would not.

        Who finds a node without any may still need some for those who come after it.
        """
        for seen in {queued.info.signature: seen for queued, seen in members}.values():
            state = CycleState()
            if not isinstance(self._cycle.judge(seen, state), Diagnosis):
                if self._removable.any_below(seen.pod.spec.priority):
                    return True
            elif self._cycle.ask(seen, state) is not None:
                return True
        return False

    def under_way(self, promised: Sequence[PodInfo]) -> bool:
        """Whether victims of these pods are still going; otherwise their promises are taken back."""
        nominator = self._cycle.nominator
        for info in promised:
            entry = self._cycle.snapshot.node_info_map.get(nominator.node_of(info.uid))
            pods = () if entry is None else entry.pods
            if any(
                other.pod.metadata.deletion_timestamp and was_preempted(other.pod) for other in pods
            ):
                return True
        return self.withdraw(promised)

    def withdraw(self, promised: Sequence[PodInfo]) -> bool:
        """Take back what was promised to these pods, who are of no use to it now.

        Returns:
            True if victims are just being told to go: it stands until that is done, and then the
            pods are tried again.
        """
        nominator = self._cycle.nominator
        told = [info.uid for info in promised if info.uid in nominator.evicting]
        nominator.evicting.update(dict.fromkeys(told, True))
        held = [] if told else [info for info in promised if nominator.remove(info.uid)]
        if held:
            self._withdrawn(held)
        return bool(told)

    def _by_gang(self, pods: Iterable[PodInfo]) -> dict[Gang, int]:
        found: dict[Gang, int] = {}
        for info in pods:
            gang = self._groups.of(info.pod) if info.pod.metadata.labels else None
            if info.pod.metadata.deletion_timestamp:
                continue  # its gang counts it no more
            if gang is not None and gang.group is not None:
                found[gang] = found.get(gang, 0) + 1
        return found

    def _on_nodes(self, gang: Gang) -> list[PodInfo]:
        found = []
        for uid, member in gang.members.items():
            if member.state in (MemberState.ASSUMED, MemberState.BOUND):
                entry = self._cycle.snapshot.node_info_map.get(member.pod.spec.node_name)
                pods = () if entry is None else entry.pods
                found += [info for info in pods if info.uid == uid]
        return found
