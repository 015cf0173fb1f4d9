"""Who belongs to which group, and how far each member is.

Fed by the informers and by the scheduling loop; says what it knows and decides nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import (
    GROUP_LABEL,
    RUNNING as GROUP_RUNNING,
    SCHEDULED as GROUP_SCHEDULED,
    PodGroup,
)
from grange.api.meta import ObjectKey

_HELD = (GROUP_SCHEDULED, GROUP_RUNNING)


class Place(Enum):
    """How far a member is."""

    WAITING = "waiting"
    ASSUMED = "assumed"
    BOUND = "bound"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


ON_NODES = (Place.ASSUMED, Place.BOUND)


@dataclass(slots=True)
class Member:
    """A pod of a group."""

    pod: Pod
    place: Place

    @property
    def goes(self) -> bool:
        """Whether it has a node and is on its way out: its gang is as good as without it."""
        return self.place in ON_NODES and bool(self.pod.metadata.deletion_timestamp)


@dataclass(slots=True, eq=False)
class Gang:
    """A group and its members.

    Attributes:
        key: namespace and name of the group.
        group: the object; None while only pods name it.
        members: by UID, in the order in which they appeared.
        placed_once: a quorum was placed, and not all of them have gone since.
        since: monotonic seconds when it could first be tried, or when its time started anew.
        overtaken: how many pods that come after it were placed while it waited.
        reason: a word for what it waits for; empty when it waits for nothing.
        message: the same in a sentence.
        rank: its place in line: priority (negated), then since when it waits.
        timeouts: how often its time was over.
        hopeless: not even all nodes together, empty, would do.
        tally: how many members are how far.
        going: how many of those with a node are on their way out.
    """

    key: ObjectKey
    group: PodGroup | None = None
    members: dict[str, Member] = field(default_factory=dict)
    placed_once: bool = False
    since: float | None = None
    overtaken: int = 0
    rank: tuple[float, float] = (0.0, 0.0)
    reason: str = ""
    message: str = ""
    timeouts: int = 0
    hopeless: bool = False
    tally: dict[Place, int] = field(default_factory=lambda: dict.fromkeys(Place, 0))
    going: int = 0

    def waiting(self) -> list[Pod]:
        """The members that have no node."""
        return [item.pod for item in self.members.values() if item.place is Place.WAITING]

    def move(self, uid: str, pod: Pod, place: Place) -> None:
        """A member is as far as this now; a new one joins."""
        member = self.members.get(uid)
        if member is None:
            member = self.members[uid] = Member(pod, place)
        else:
            self.tally[member.place] -= 1
            self.going -= member.goes
            member.pod, member.place = pod, place
        self.tally[place] += 1
        self.going += member.goes

    def drop(self, uid: str) -> None:
        """Somebody is a member no longer, if ever."""
        member = self.members.pop(uid, None)
        if member is not None:
            self.tally[member.place] -= 1
            self.going -= member.goes

    @property
    def present(self) -> int:
        """How many members there are, without those that failed or give up their nodes."""
        return len(self.members) - self.tally[Place.FAILED] - self.going

    @property
    def there(self) -> int:
        """How many have a node, have not ended and are not on their way out."""
        return self.tally[Place.ASSUMED] + self.tally[Place.BOUND] - self.going

    @property
    def min_member(self) -> int:
        """The quorum; 1 while the group is not known."""
        return 1 if self.group is None else self.group.spec.min_member

    @property
    def quorum(self) -> int:
        """How many members count towards it already: with a node, or successfully ended."""
        return self.there + self.tally[Place.SUCCEEDED]

    @property
    def started(self) -> bool:
        """Whether it was placed as a gang and members are there: then others come one by one."""
        if not self.there or self.group is None:
            return False
        return (
            self.placed_once or self.quorum >= self.min_member or self.group.status.phase in _HELD
        )

    @property
    def queue(self) -> str:
        """The queue whose quota it uses; empty for none."""
        return "" if self.group is None else self.group.spec.queue


class Book:
    """All groups."""

    def __init__(self) -> None:
        self._gangs: dict[ObjectKey, Gang] = {}
        self._homes: dict[str, ObjectKey] = {}  # of every member, by UID: labels may change

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs.values())

    def __len__(self) -> int:
        return len(self._gangs)

    def of(self, pod: Pod) -> Gang | None:
        """The gang that the pod names, if any; made now if nobody named it before."""
        name = pod.metadata.labels.get(GROUP_LABEL)
        if not name:
            return None
        key = ObjectKey(pod.metadata.namespace, name)
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key)
        return gang

    def member(self, pod: Pod) -> Gang | None:
        """The gang that the pod is a member of, if any."""
        key = self._homes.get(pod.metadata.uid)
        return None if key is None else self._gangs.get(key)

    def get(self, key: ObjectKey) -> Gang | None:
        """The gang of a group."""
        return self._gangs.get(key)

    def group_seen(self, group: PodGroup) -> Gang:
        """The object appeared or changed."""
        gang = self._gangs.get(group.key)
        if gang is None:
            gang = self._gangs[group.key] = Gang(group.key)
        gang.group = group
        return gang

    def group_gone(self, key: ObjectKey) -> Gang | None:
        """The object is gone; its pods may still be there."""
        gang = self._gangs.get(key)
        if gang is not None:
            gang.group = None
            self._tidy(gang)
        return gang

    def pod_moved(self, pod: Pod) -> Gang | None:
        """The gang that the pod was in until now, if its label names that no longer.

        If the label names another one, the pod is in that from now on, as far as it was.
        """
        uid = pod.metadata.uid
        home = self._homes.get(uid)
        if home is None or home.name == pod.metadata.labels.get(GROUP_LABEL, ""):
            return None
        left = self._gangs[home]
        place = left.members[uid].place
        self._drop(left, uid)
        gang = self.of(pod)
        if gang is not None:
            gang.move(uid, pod, place)
            self._homes[uid] = gang.key
        return left

    def pod_seen(self, pod: Pod) -> Gang | None:
        """A pod appeared or changed; its gang, if it is in one."""
        self.pod_moved(pod)
        gang = self.of(pod)
        if gang is None:
            return None
        uid = pod.metadata.uid
        self._homes[uid] = gang.key
        place = _place(pod)
        known = gang.members.get(uid)
        if place is Place.WAITING and known is not None and known.place is Place.ASSUMED:
            place = Place.ASSUMED
        gang.move(uid, pod, place)
        if place in (Place.SUCCEEDED, Place.FAILED) or gang.members[uid].goes:
            _settle(gang)
        return gang

    def pod_gone(self, pod: Pod) -> Gang | None:
        """A pod is gone, or does not want a node any more; its gang, if it was in one."""
        gang = self.member(pod) or self._named(pod)
        if gang is not None:
            self._drop(gang, pod.metadata.uid)
        return gang

    def assumed(self, pod: Pod) -> Gang | None:
        """The pod was given a node; its gang, if it is in one."""
        gang = self.member(pod)
        if gang is not None:
            gang.move(pod.metadata.uid, pod, Place.ASSUMED)
        return gang

    def forgotten(self, pod: Pod) -> Gang | None:
        """The node was taken back; its gang, if it is in one."""
        gang = self.member(pod)
        if gang is None:
            return self._named(pod)
        member = gang.members[pod.metadata.uid]
        if member.place is Place.ASSUMED:
            gang.move(pod.metadata.uid, member.pod, Place.WAITING)
        _settle(gang)
        return gang

    def clear(self) -> None:
        """Forget the members, to be told of them anew; groups and how they wait are kept."""
        for gang in self._gangs.values():
            gang.members.clear()
            gang.tally = dict.fromkeys(Place, 0)
            gang.going = 0
        self._homes.clear()

    def _named(self, pod: Pod) -> Gang | None:
        """The gang that the pod names, if it is known."""
        name = pod.metadata.labels.get(GROUP_LABEL, "")
        return self._gangs.get(ObjectKey(pod.metadata.namespace, name))

    def _drop(self, gang: Gang, uid: str) -> None:
        gang.drop(uid)
        self._homes.pop(uid, None)
        _settle(gang)
        self._tidy(gang)

    def _tidy(self, gang: Gang) -> None:
        if gang.group is None and not gang.members:
            self._gangs.pop(gang.key, None)


def _settle(gang: Gang) -> None:
    if not gang.there:
        gang.placed_once = False


def _place(pod: Pod) -> Place:
    if pod.status.phase == "Succeeded":
        return Place.SUCCEEDED
    if pod.status.phase == "Failed":
        return Place.FAILED
    return Place.BOUND if pod.spec.node_name else Place.WAITING
