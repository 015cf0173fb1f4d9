"""Barriers and topics between the components of one attempt: state, without waiting; pure.

Every change is an entry of a journal, and the same entries give the same state: a restart replays
them. A call is checked first and gives the entry; it is applied when it is in the journal, so that nothing
is seen that a restart would forget. A component that repeats a call, because it lost the answer, changes nothing.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from grange.api.meta import View
from grange.base.errors import GrangeError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
ENTRY_BYTES = 64 * 1024
_MOST_NAMES = 1000  # barriers, and topics
_MOST_COMPONENTS = 10_000
_MOST_ENTRIES = 10_000  # of one topic
_MOST_BYTES = 16 * 1024 * 1024  # of all topics


class CoordinationError(GrangeError):
    """A call is refused; the message names what is wrong with it."""


class JournalEntry(View, frozen=True):
    """One change.

    Attributes:
        barrier: arrived at; empty for a publication.
        topic: published to.
        component: who called.
        count: of the barrier.
        text: what was published.
        id: by which a component repeats a publication; empty where it does not.
    """

    barrier: str = ""
    topic: str = ""
    component: str = ""
    count: int = 0
    text: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class BarrierState:
    """How far a barrier is.

    Attributes:
        arrived: components.
        count: that are needed.
    """

    arrived: int
    count: int

    @property
    def is_open(self) -> bool:
        """Whether all are there."""
        return self.arrived >= self.count


@dataclass(slots=True)
class _Barrier:
    count: int
    arrived: set[str] = field(default_factory=set)


class Coordination:
    """The barriers and topics of one attempt.

    Args:
        journal: of an earlier process.
    """

    def __init__(self, journal: Iterable[JournalEntry] = ()) -> None:
        self._barriers: dict[str, _Barrier] = {}
        self._topics: dict[str, list[str]] = {}
        self._published: dict[tuple[str, str, str], int] = {}
        self._bytes = 0
        for entry in journal:
            self.apply(entry)

    def barrier(self, name: str) -> BarrierState:
        """How far a barrier is that was arrived at."""
        found = self._barriers[name]
        return BarrierState(len(found.arrived), found.count)

    def arrival(self, name: str, component: str, count: int) -> JournalEntry | None:
        """The entry for a component that arrives at a barrier; None where it was there already.

        Raises:
            CoordinationError: the call is malformed, or others wait there for another number.
        """
        _check_name("barrier", name)
        _check_name("component", component)
        if not 1 <= count <= _MOST_COMPONENTS:
            raise CoordinationError(
                f"count: {count} is out of range; give a number from 1 to {_MOST_COMPONENTS}"
            )
        found = self._barriers.get(name)
        if found is None:
            _check_room("barriers", len(self._barriers), _MOST_NAMES)
        elif found.count != count:
            raise CoordinationError(
                f"count: barrier {name!r} waits for {found.count} components, not {count}; "
                "give the same number in all of them"
            )
        elif component in found.arrived:
            return None
        elif len(found.arrived) >= found.count:
            raise CoordinationError(
                f"barrier {name!r} is open: {found.count} components have passed it; "
                "use another name for another round"
            )
        return JournalEntry(barrier=name, component=component, count=count)

    def publication(
        self,
        topic: str,
        component: str,
        text: str,
        id: str = "",  # noqa: A002  the field's name
    ) -> JournalEntry | None:
        """The entry that is appended to a topic; None where the component did so with this id already.

        Raises:
            CoordinationError: the call is malformed, or a limit is reached.
        """
        _check_name("topic", topic)
        _check_name("component", component)
        if len(id) > 128:
            raise CoordinationError("id: it has more than 128 characters; give a shorter one")
        if id and (topic, component, id) in self._published:
            return None
        size = len(text.encode())
        if size > ENTRY_BYTES:
            raise CoordinationError(
                f"entry: {size} bytes exceed {ENTRY_BYTES}; upload it as an artifact"
            )
        if topic not in self._topics:
            _check_room("topics", len(self._topics), _MOST_NAMES)
        entries = self._topics.get(topic, ())
        _check_room(f"entries of topic {topic!r}", len(entries), _MOST_ENTRIES)
        _check_room("bytes of all topics", self._bytes + size, _MOST_BYTES)
        return JournalEntry(topic=topic, component=component, text=text, id=id)

    def apply(self, entry: JournalEntry) -> None:
        """Make a change that was checked; one that was made before changes nothing."""
        if entry.barrier:
            self._barriers.setdefault(entry.barrier, _Barrier(entry.count)).arrived.add(
                entry.component
            )
            return
        ident = (entry.topic, entry.component, entry.id)
        if ident in self._published:
            return
        entries = self._topics.setdefault(entry.topic, [])
        if entry.id:
            self._published[ident] = len(entries)
        entries.append(entry.text)
        self._bytes += len(entry.text.encode())

    def offset(self, topic: str, component: str, id: str = "") -> int:  # noqa: A002  the field's name
        """Where the component's entry with an id is, or else the last entry of the topic."""
        last = len(self._topics.get(topic, ())) - 1
        return self._published.get((topic, component, id), last) if id else last

    def read(self, topic: str, offset: int, limit: int = 100) -> list[str]:
        """The entries of a topic from an offset on.

        Raises:
            CoordinationError: the call is malformed.
        """
        _check_name("topic", topic)
        if offset < 0:
            raise CoordinationError(f"offset: {offset} is negative; begin with 0")
        return self._topics.get(topic, [])[offset : offset + limit]


def _check_name(what: str, name: str) -> None:
    if NAME.fullmatch(name) is None:
        raise CoordinationError(
            f"{what}: {name[:80]!r} is no name; use up to 63 letters, digits, '.', '_' and '-'"
        )


def _check_room(what: str, count: int, most: int) -> None:
    if count >= most:
        raise CoordinationError(f"there are {count} {what}, the limit is {most}; use fewer")
