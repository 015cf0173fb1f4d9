"""Which pods belong to which group, and the state of each member.

Fed by the informers and by the scheduling loop; decides nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import (
    GATED,
    GROUP_LABEL,
    PREFERRED,
    RUNNING as GROUP_RUNNING,
    SCHEDULED as GROUP_SCHEDULED,
    PodGroup,
)
from grange.api.meta import ObjectKey
from grange.scheduler.gangs.quorum import NO_PART, MemberState, MemberTally, Quorum

_HELD = (GROUP_SCHEDULED, GROUP_RUNNING)


ON_NODES = (MemberState.ASSUMED, MemberState.BOUND)


@dataclass(slots=True)
class GangMember:
    """A pod of a group.

    Attributes:
        part: number of the first part of the group that it belongs to.
    """

    pod: Pod
    state: MemberState
    part: int = NO_PART

    @property
    def is_terminating(self) -> bool:
        """Whether it has a node and is being deleted: its gang is as good as without it."""
        return self.state in ON_NODES and bool(self.pod.metadata.deletion_timestamp)


@dataclass(slots=True, eq=False)
class Gang:
    """A group and its members.

    Attributes:
        key: namespace and name of the group.
        group: the object; None while only pods name it.
        members: by UID, in the order in which they appeared.
        was_placed: a quorum was placed, and not all of them have gone since.
        waiting_since: monotonic seconds when it could first be tried, or when its timeout was restarted.
        overtaken: how many pods that come after it were placed while it waited.
        priority: of its most important member that waits.
        reason: what it waits for, as the reason of a condition; empty when it waits for nothing.
        message: the same as a message.
        rank: its place in line, by the queue policy; the smaller comes first.
        timeouts: how often its timeout was over.
        is_infeasible: not even all nodes together, empty, would hold it.
        tally: of all members.
        part_tallies: of each part of the group.
        admitted: its pods may be created; without meaning where the group is not gated.
    """

    key: ObjectKey
    group: PodGroup | None = None
    members: dict[str, GangMember] = field(default_factory=dict)
    was_placed: bool = False
    waiting_since: float | None = None
    overtaken: int = 0
    priority: int = 0
    rank: tuple[float, float] = (0.0, 0.0)
    reason: str = ""
    message: str = ""
    timeouts: int = 0
    is_infeasible: bool = False
    tally: MemberTally = field(default_factory=MemberTally)
    part_tallies: list[MemberTally] = field(default_factory=list)
    admitted: bool = False

    def waiting(self) -> list[Pod]:
        """The members that have no node."""
        return [item.pod for item in self.members.values() if item.state is MemberState.WAITING]

    def move(self, uid: str, pod: Pod, state: MemberState) -> None:
        """Set the state of a member, perhaps a new one."""
        member = self.members.get(uid)
        if member is None:
            member = self.members[uid] = GangMember(pod, state)
        else:
            self._count(member, -1)
            member.pod, member.state = pod, state
        if self.part_tallies:
            member.part = self._part(pod)
        self._count(member, 1)

    def drop(self, uid: str) -> None:
        """Remove a member; a pod that is none is fine."""
        member = self.members.pop(uid, None)
        if member is not None:
            self._count(member, -1)

    def clear(self) -> None:
        """Remove all members."""
        self.members.clear()
        self.recount()

    def recount(self) -> None:
        """Count all members once more: the parts of the group are others."""
        parts = () if self.group is None else self.group.spec.min_parts
        self.tally, self.part_tallies = MemberTally(), [MemberTally() for _ in parts]
        for member in self.members.values():
            member.part = self._part(member.pod)
            self._count(member, 1)

    def _count(self, member: GangMember, by: int) -> None:
        terminating = member.is_terminating
        self.tally.add(member.state, by, terminating=terminating)
        if member.part != NO_PART:
            self.part_tallies[member.part].add(member.state, by, terminating=terminating)

    def _part(self, pod: Pod) -> int:
        labels = pod.metadata.labels
        parts = () if self.group is None else self.group.spec.min_parts
        for number, part in enumerate(parts):
            if all(labels.get(key) == value for key, value in part.match_labels.items()):
                return number
        return NO_PART

    @property
    def counts(self) -> Mapping[MemberState, int]:
        """Members by state."""
        return self.tally.counts

    @property
    def num_present(self) -> int:
        """How many members there are, without those that failed or are being deleted."""
        return self.tally.num_present

    @property
    def num_placed(self) -> int:
        """How many have a node, have not ended and are not being deleted."""
        return self.tally.num_placed

    @property
    def min_member(self) -> int:
        """The quorum; 1 while the group is not known."""
        if self.group is None:
            return 1
        parts = self.group.spec.min_parts
        return max(self.group.spec.min_member, sum(part.min_member for part in parts))

    @property
    def num_counted(self) -> int:
        """How many members count towards it already: with a node, or successfully ended."""
        return self.tally.num_counted

    @property
    def num_missing(self) -> int:
        """How many more have to be placed for the quorum and its parts."""
        of_parts = sum(self._missing_parts().values())
        return max(0, self.min_member - self.num_counted, of_parts)

    def _missing_parts(self, without: Mapping[int, int] | None = None) -> dict[int, int]:
        without = without or {}
        parts = () if self.group is None else self.group.spec.min_parts
        found = {
            number: part.min_member - self.part_tallies[number].num_counted + without.get(number, 0)
            for number, part in enumerate(parts)
        }
        return {number: count for number, count in found.items() if count > 0}

    def quorum(self, candidates: Sequence[str]) -> Quorum:
        """What is missing, to be found among these members."""
        missing = self._missing_parts()
        part_of = {uid: self.members[uid].part for uid in candidates} if missing else {}
        return Quorum(self.num_missing, candidates, missing, part_of)

    def is_whole_without(self, going: Iterable[str]) -> bool:
        """Whether the quorum is left when these members with a node are gone."""
        lost = Counter(self.members[uid].part for uid in going if uid in self.members)
        left = self.num_counted - lost.total()
        return left >= self.min_member and not self._missing_parts(lost)

    @property
    def shortage(self) -> str:
        """Which pods of the quorum do not exist; empty for none."""
        if self.num_present < self.min_member:
            return f"waits for minMember: {self.num_present} of {self.min_member} pods exist"
        parts = () if self.group is None else self.group.spec.min_parts
        for part, tally in zip(parts, self.part_tallies, strict=True):
            if tally.num_present < part.min_member:
                labels = ",".join(f"{key}={value}" for key, value in part.match_labels.items())
                count = f"{tally.num_present} of {part.min_member}"
                return f"waits for minParts: {count} pods with {labels} exist"
        return ""

    def is_completed_by(self, pod: Pod) -> bool:
        """Whether the quorum exists, and did not before this member existed."""
        if self.shortage:
            return False
        parts = () if self.group is None else self.group.spec.min_parts
        part = self._part(pod)
        last = part != NO_PART and self.part_tallies[part].num_present == parts[part].min_member
        return last or self.num_present == self.min_member

    @property
    def started(self) -> bool:
        """Whether it was placed as a gang and members are there: then others come one by one."""
        if not self.num_placed or self.group is None:
            return False
        return self.was_placed or not self.num_missing or self.group.status.phase in _HELD

    @property
    def is_gated(self) -> bool:
        """Whether its pods are created only when it is admitted."""
        return self.group is not None and self.group.spec.admission == GATED

    @property
    def required_topology(self) -> str:
        """The label of which all members must share a value; empty for none."""
        topology = None if self.group is None else self.group.spec.topology
        return "" if topology is None or topology.mode == PREFERRED else topology.key

    @property
    def queue(self) -> str:
        """The queue whose quota it uses; empty for none."""
        return "" if self.group is None else self.group.spec.queue


class PodGroups:
    """All groups."""

    def __init__(self) -> None:
        self._gangs: dict[ObjectKey, Gang] = {}
        self._keys: dict[str, ObjectKey] = {}  # of every member, by UID: labels may change

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs.values())

    def __len__(self) -> int:
        return len(self._gangs)

    def of(self, pod: Pod) -> Gang | None:
        """The gang that the pod names, if any; made now if it is new."""
        name = pod.metadata.labels.get(GROUP_LABEL)
        if not name:
            return None
        key = ObjectKey(pod.metadata.namespace, name)
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def containing(self, pod: Pod) -> Gang | None:
        """The gang that the pod is a member of, if any."""
        key = self._keys.get(pod.metadata.uid)
        return None if key is None else self._gangs.get(key)

    def get(self, key: ObjectKey) -> Gang | None:
        """The gang of a group."""
        return self._gangs.get(key)

    def update_group(self, group: PodGroup) -> Gang:
        """Add or update the object of a group."""
        gang = self._gangs.get(group.key)
        if gang is None:
            gang = self._gangs[group.key] = Gang(group.key)
        before, gang.group = gang.group, group
        if before is None or before.spec.min_parts != group.spec.min_parts:
            gang.recount()
        return gang

    def delete_group(self, key: ObjectKey) -> Gang | None:
        """Remove the object of a group; its pods may still exist."""
        gang = self._gangs.get(key)
        if gang is not None:
            gang.group = None
            gang.recount()
            self._prune(gang)
        return gang

    def move_pod(self, pod: Pod) -> Gang | None:
        """The gang that the pod was in until now, if its label names that no longer.

        If the label names another one, the pod is in that from now on, as far as it was.
        """
        uid = pod.metadata.uid
        key = self._keys.get(uid)
        if key is None or key.name == pod.metadata.labels.get(GROUP_LABEL, ""):
            return None
        left = self._gangs[key]
        state = left.members[uid].state
        self._drop(left, uid)
        gang = self.of(pod)
        if gang is not None:
            gang.move(uid, pod, state)
            self._keys[uid] = gang.key
        return left

    def update_pod(self, pod: Pod) -> Gang | None:
        """Add or update a pod; return its gang, if it is in one."""
        self.move_pod(pod)
        gang = self.of(pod)
        if gang is None:
            return None
        uid = pod.metadata.uid
        self._keys[uid] = gang.key
        state = _state_of(pod)
        known = gang.members.get(uid)
        if (
            state is MemberState.WAITING
            and known is not None
            and known.state is MemberState.ASSUMED
        ):
            state = MemberState.ASSUMED
        gang.move(uid, pod, state)
        if state in (MemberState.SUCCEEDED, MemberState.FAILED) or gang.members[uid].is_terminating:
            _reset_if_empty(gang)
        return gang

    def delete_pod(self, pod: Pod) -> Gang | None:
        """Remove a pod; return its gang, if it was in one."""
        gang = self.containing(pod) or self._known(pod)
        if gang is not None:
            self._drop(gang, pod.metadata.uid)
        return gang

    def assume_pod(self, pod: Pod) -> Gang | None:
        """Note that a pod is assumed on a node; return its gang, if it is in one."""
        gang = self.containing(pod)
        if gang is not None:
            gang.move(pod.metadata.uid, pod, MemberState.ASSUMED)
        return gang

    def forget_pod(self, pod: Pod) -> Gang | None:
        """Note that an assumed pod is forgotten; return its gang, if it is in one."""
        gang = self.containing(pod)
        if gang is None:
            return self._known(pod)
        member = gang.members[pod.metadata.uid]
        if member.state is MemberState.ASSUMED:
            gang.move(pod.metadata.uid, member.pod, MemberState.WAITING)
        _reset_if_empty(gang)
        return gang

    def clear(self) -> None:
        """Forget the members, before they are all added again; groups and how they wait are kept."""
        for gang in self._gangs.values():
            gang.clear()
        self._keys.clear()

    def _known(self, pod: Pod) -> Gang | None:
        """The gang that the pod names, if it is known."""
        name = pod.metadata.labels.get(GROUP_LABEL, "")
        return self._gangs.get(ObjectKey(pod.metadata.namespace, name))

    def _drop(self, gang: Gang, uid: str) -> None:
        gang.drop(uid)
        self._keys.pop(uid, None)
        _reset_if_empty(gang)
        self._prune(gang)

    def _prune(self, gang: Gang) -> None:
        if gang.group is None and not gang.members:
            self._gangs.pop(gang.key, None)


def _reset_if_empty(gang: Gang) -> None:
    if not gang.num_placed:
        gang.was_placed = False


def _state_of(pod: Pod) -> MemberState:
    if pod.status.phase == "Succeeded":
        return MemberState.SUCCEEDED
    if pod.status.phase == "Failed":
        return MemberState.FAILED
    return MemberState.BOUND if pod.spec.node_name else MemberState.WAITING
