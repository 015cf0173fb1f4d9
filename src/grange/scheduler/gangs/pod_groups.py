"""Which pods belong to which group, the state of each member, and what a group needs to start.

Fed by the informers and by the scheduling loop; decides nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import (
    GATED,
    GROUP_LABEL,
    PREFERRED,
    RUNNING,
    SCHEDULED,
    PodGroup,
    PodGroupPart,
)
from grange.api.meta import ObjectKey

_NO_PART = -1
_NONE: Mapping[int, int] = {}
_NOWHERE: Mapping[str, int] = {}


class MemberState(Enum):
    """The state of a member; terminating ones have a node, and their gang is as good as without them."""

    WAITING = "waiting"
    ASSUMED = "assumed"
    BOUND = "bound"
    TERMINATING = "terminating"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    __hash__ = object.__hash__  # members are singletons; the inherited one is slow


ON_NODES = (MemberState.ASSUMED, MemberState.BOUND, MemberState.TERMINATING)
_ENDED = (MemberState.TERMINATING, MemberState.SUCCEEDED, MemberState.FAILED)


class MemberTally(Counter[MemberState]):
    """How many members there are by state: of a gang, or of one part of it."""

    @property
    def num_present(self) -> int:
        """How many there are, without those that failed or are being deleted."""
        return self.total() - self[MemberState.FAILED] - self[MemberState.TERMINATING]

    @property
    def num_placed(self) -> int:
        """How many have a node, have not ended and are not being deleted."""
        return self[MemberState.ASSUMED] + self[MemberState.BOUND]

    @property
    def num_counted(self) -> int:
        """How many count towards the quorum already: with a node, or successfully ended."""
        return self.num_placed + self[MemberState.SUCCEEDED]


@dataclass(slots=True)
class GangMember:
    """A pod of a group.

    Attributes:
        part: number of the first part of the group that it belongs to.
    """

    pod: Pod
    state: MemberState
    part: int = _NO_PART

    @property
    def is_assumed(self) -> bool:
        """Whether it has a node that the informer has not shown."""
        state = self.state
        return state is MemberState.ASSUMED or (
            state is MemberState.TERMINATING and not self.pod.spec.node_name
        )


@dataclass(slots=True, eq=False)
class Gang:
    """A group and its members.

    Attributes:
        group: the object; None while only pods name it.
        members: by UID, in the order in which they appeared.
        was_placed: a quorum was placed, and not all of them have gone since.
        waiting_since: monotonic seconds when it could first be tried, or when its timeout was restarted.
        overtaken: how many pods that come after it were placed while it waited.
        priority: of its most important member that waits.
        rank: its place in line, by the queue policy; the smaller comes first.
        reason, message: what it waits for, as a condition has it; empty when it waits for nothing.
        timeouts: how often its timeout was over.
        is_infeasible: not even all nodes together, empty, would hold it.
        admitted: its pods may be created; without meaning where the group is not gated.
    """

    key: ObjectKey
    group: PodGroup | None = None
    members: dict[str, GangMember] = field(default_factory=dict)
    counts: MemberTally = field(default_factory=MemberTally)
    part_counts: list[MemberTally] = field(default_factory=list)
    was_placed: bool = False
    waiting_since: float | None = None
    overtaken: int = 0
    priority: int = 0
    rank: tuple[float, float] = (0.0, 0.0)
    reason: str = ""
    message: str = ""
    timeouts: int = 0
    is_infeasible: bool = False
    admitted: bool = False

    # --- members -----------------------------------------------------------------------------

    def waiting(self) -> list[Pod]:
        """The members that have no node."""
        return [item.pod for item in self.members.values() if item.state is MemberState.WAITING]

    def move(self, uid: str, pod: Pod, state: MemberState) -> None:
        """Set the state of a member, perhaps a new one."""
        if pod.metadata.deletion_timestamp and state in ON_NODES:
            state = MemberState.TERMINATING
        member = self.members.get(uid)
        if member is None:
            member = self.members[uid] = GangMember(pod, state)
        else:
            self._count(member, -1)
            member.pod, member.state = pod, state
        member.part = self._part(pod)
        self._count(member, 1)

    def drop(self, uid: str) -> None:
        """Remove a member; a pod that is none is fine."""
        member = self.members.pop(uid, None)
        if member is not None:
            self._count(member, -1)

    def recount(self) -> None:
        """Count all members once more: the parts of the group are others."""
        self.counts, self.part_counts = MemberTally(), [MemberTally() for _ in self._parts]
        for member in self.members.values():
            member.part = self._part(member.pod)
            self._count(member, 1)

    def _count(self, member: GangMember, by: int) -> None:
        self.counts[member.state] += by
        if member.part != _NO_PART:
            self.part_counts[member.part][member.state] += by

    @property
    def _parts(self) -> tuple[PodGroupPart, ...]:
        return () if self.group is None else self.group.spec.min_parts

    def _part(self, pod: Pod) -> int:
        labels = pod.metadata.labels
        for number, part in enumerate(self._parts):
            if all(labels.get(key) == value for key, value in part.match_labels.items()):
                return number
        return _NO_PART

    # --- the quorum --------------------------------------------------------------------------

    @property
    def min_member(self) -> int:
        """The quorum; 1 while the group is not known."""
        if self.group is None:
            return 1
        return max(self.group.spec.min_member, sum(part.min_member for part in self._parts))

    @property
    def num_missing(self) -> int:
        """How many more have to be placed for the quorum and its parts."""
        of_parts = sum(self._missing_parts().values())
        return max(0, self.min_member - self.counts.num_counted, of_parts)

    def _missing_parts(self, without: Mapping[int, int] = _NONE) -> dict[int, int]:
        found = {
            number: part.min_member - self.part_counts[number].num_counted + without.get(number, 0)
            for number, part in enumerate(self._parts)
        }
        return {number: count for number, count in found.items() if count > 0}

    def quorum(self, candidates: Sequence[str]) -> "Quorum":
        """What is missing, to be found among these members."""
        missing = self._missing_parts()
        part_of = {uid: self.members[uid].part for uid in candidates} if missing else {}
        return Quorum(self.num_missing, candidates, missing, part_of)

    def is_whole_without(self, going: Iterable[str]) -> bool:
        """Whether the quorum is left when these members with a node are gone."""
        lost = Counter(self.members[uid].part for uid in going if uid in self.members)
        left = self.counts.num_counted - lost.total()
        return left >= self.min_member and not self._missing_parts(lost)

    @property
    def shortage(self) -> str:
        """Which pods of the quorum do not exist; empty for none."""
        present = self.counts.num_present
        if present < self.min_member:
            return f"waits for minMember: {present} of {self.min_member} pods exist"
        for part, counts in zip(self._parts, self.part_counts, strict=True):
            if counts.num_present < part.min_member:
                labels = ",".join(f"{key}={value}" for key, value in part.match_labels.items())
                count = f"{counts.num_present} of {part.min_member}"
                return f"waits for minParts: {count} pods with {labels} exist"
        return ""

    def is_completed_by(self, pod: Pod) -> bool:
        """Whether the quorum exists, and did not before this member existed."""
        if self.shortage:
            return False
        part = self._part(pod)
        return self.counts.num_present == self.min_member or (
            part != _NO_PART and self.part_counts[part].num_present == self._parts[part].min_member
        )

    # --- the group ---------------------------------------------------------------------------

    def note(self, reason: str, message: str) -> bool:
        """Note what it waits for; whether that is news."""
        before = self.reason, self.message
        self.reason, self.message = reason, message
        return before != (reason, message)

    @property
    def started(self) -> bool:
        """Whether it was placed as a gang and members are there: then others come one by one."""
        if not self.counts.num_placed or self.group is None:
            return False
        phase = self.group.status.phase
        return self.was_placed or not self.num_missing or phase in (SCHEDULED, RUNNING)

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

    @property
    def deadline(self) -> float | None:
        """When its timeout is over; None without one, and while it does not wait."""
        timeout = None if self.group is None else self.group.spec.schedule_timeout_seconds
        return (
            None if timeout is None or self.waiting_since is None else self.waiting_since + timeout
        )


class Quorum:
    """The members that are still to be placed, while candidates are tried one after another.

    So many are missing in ``total``, at least the sum of the parts.
    """

    def __init__(
        self,
        total: int,
        candidates: Sequence[str],
        parts: Mapping[int, int] = _NONE,
        part_of: Mapping[str, int] = _NOWHERE,
    ) -> None:
        self._needs = {part: count for part, count in parts.items() if count > 0}
        self._part_of = part_of
        self._total = total
        self._left = len(candidates)
        self._left_of = Counter(map(self._part, candidates)) if self._needs else {}

    @property
    def is_met(self) -> bool:
        """Whether enough are placed."""
        return self._total <= 0

    @property
    def is_open(self) -> bool:
        """Whether more are needed, and the candidates that were not tried yet could be enough."""
        return 0 < self._total <= self._left and (
            not self._needs
            or all(self._left_of[part] >= count for part, count in self._needs.items())
        )

    def takes(self, uid: str) -> bool:
        """Whether the candidate is of use; one that is not is left for later."""
        if self._total <= 0:
            return False
        if not self._needs or self._needs.get(self._part(uid), 0):
            return True
        return self._total > sum(self._needs.values())

    def tried(self, uid: str, *, placed: bool) -> None:
        """A candidate was placed, or cannot be."""
        self._left -= 1
        self._total -= placed
        if self._needs:
            part = self._part(uid)
            self._left_of[part] -= 1
            if placed and self._needs.get(part):
                self._needs[part] -= 1

    def _part(self, uid: str) -> int:
        return self._part_of.get(uid, _NO_PART)


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
        return self._get_or_add(ObjectKey(pod.metadata.namespace, name)) if name else None

    def containing(self, pod: Pod) -> Gang | None:
        """The gang that the pod is a member of, if any."""
        key = self._keys.get(pod.metadata.uid)
        return None if key is None else self._gangs.get(key)

    def get(self, key: ObjectKey) -> Gang | None:
        """The gang of a group."""
        return self._gangs.get(key)

    def update_group(self, group: PodGroup) -> Gang:
        """Add or update the object of a group."""
        gang = self._get_or_add(group.key)
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
        if state is MemberState.WAITING and known is not None and known.is_assumed:
            state = MemberState.ASSUMED
        gang.move(uid, pod, state)
        if gang.members[uid].state in _ENDED:
            _reset_if_empty(gang)
        return gang

    def delete_pod(self, pod: Pod) -> Gang | None:
        """Remove a pod; return its gang, if it was in one."""
        gang = self.containing(pod)
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
            return None
        member = gang.members[pod.metadata.uid]
        if member.is_assumed:
            gang.move(pod.metadata.uid, member.pod, MemberState.WAITING)
        _reset_if_empty(gang)
        return gang

    def clear(self) -> None:
        """Forget the members, before they are all added again; groups and how they wait are kept."""
        for gang in self._gangs.values():
            gang.members.clear()
            gang.recount()
        self._keys.clear()

    def _get_or_add(self, key: ObjectKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def _drop(self, gang: Gang, uid: str) -> None:
        gang.drop(uid)
        self._keys.pop(uid, None)
        _reset_if_empty(gang)
        self._prune(gang)

    def _prune(self, gang: Gang) -> None:
        if gang.group is None and not gang.members:
            self._gangs.pop(gang.key, None)


def _reset_if_empty(gang: Gang) -> None:
    if not gang.counts.num_placed:
        gang.was_placed = False


def _state_of(pod: Pod) -> MemberState:
    if pod.status.phase == "Succeeded":
        return MemberState.SUCCEEDED
    if pod.status.phase == "Failed":
        return MemberState.FAILED
    return MemberState.BOUND if pod.spec.node_name else MemberState.WAITING
