"""Which pods belong to which group, and the state of each member.

Fed by the informers and by the scheduling loop; decides nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

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

_HELD = (GROUP_SCHEDULED, GROUP_RUNNING)


class MemberState(Enum):
    """The state of a member."""

    WAITING = "waiting"
    ASSUMED = "assumed"
    BOUND = "bound"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ON_NODES = (MemberState.ASSUMED, MemberState.BOUND)


@dataclass(slots=True)
class GangMember:
    """A pod of a group."""

    pod: Pod
    state: MemberState

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
        counts: members by state.
        num_terminating: how many of those with a node are being deleted.
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
    counts: dict[MemberState, int] = field(default_factory=lambda: dict.fromkeys(MemberState, 0))
    num_terminating: int = 0
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
            self.counts[member.state] -= 1
            self.num_terminating -= member.is_terminating
            member.pod, member.state = pod, state
        self.counts[state] += 1
        self.num_terminating += member.is_terminating

    def drop(self, uid: str) -> None:
        """Remove a member; a pod that is none is fine."""
        member = self.members.pop(uid, None)
        if member is not None:
            self.counts[member.state] -= 1
            self.num_terminating -= member.is_terminating

    @property
    def num_present(self) -> int:
        """How many members there are, without those that failed or are being deleted."""
        return len(self.members) - self.counts[MemberState.FAILED] - self.num_terminating

    @property
    def num_placed(self) -> int:
        """How many have a node, have not ended and are not being deleted."""
        return (
            self.counts[MemberState.ASSUMED] + self.counts[MemberState.BOUND] - self.num_terminating
        )

    @property
    def min_member(self) -> int:
        """The quorum; 1 while the group is not known."""
        return 1 if self.group is None else self.group.spec.min_member

    @property
    def num_counted(self) -> int:
        """How many members count towards it already: with a node, or successfully ended."""
        return self.num_placed + self.counts[MemberState.SUCCEEDED]

    @property
    def started(self) -> bool:
        """Whether it was placed as a gang and members are there: then others come one by one."""
        if not self.num_placed or self.group is None:
            return False
        return (
            self.was_placed
            or self.num_counted >= self.min_member
            or self.group.status.phase in _HELD
        )

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
        gang.group = group
        return gang

    def delete_group(self, key: ObjectKey) -> Gang | None:
        """Remove the object of a group; its pods may still exist."""
        gang = self._gangs.get(key)
        if gang is not None:
            gang.group = None
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
            gang.members.clear()
            gang.counts = dict.fromkeys(MemberState, 0)
            gang.num_terminating = 0
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
