"""Admission of gangs whose pods do not exist yet: groups with ``spec.admission: Gated``.

Such a group waits in line like one with pods, by its queue's quota and by the room on all nodes
together, for ``minMember`` and ``minResources``. When both suffice it is admitted, and its quota is
*held* until its pods were tried for the first time; from then on it is a gang like any other. If they
are not there within ``HOLD_S``, the quota is returned and the gang goes behind all others. It is
decided again, too, when its last pod is gone.

Pods of lower priority count as room, and quota that was lent as free: the pods are created, and
preempt. A gang that was overtaken by as many pods as the queue policy allows is admitted whatever
room there is, since nodes can only be reserved for pods that exist.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from grange.api import conditions
from grange.api.kinds.podgroup import ADMITTED_CONDITION, PodGroup
from grange.api.kinds.priorityclass import PriorityClass
from grange.api.pod_requests import PODS
from grange.api.quantity import QuantityError
from grange.base.backoff import Exponential
from grange.scheduler.gangs.pod_groups import Gang
from grange.scheduler.gangs.quotas import Amounts, Quotas, listed, read, total
from grange.scheduler.gangs.wait_line import QuotaWaiter, WaitLine

HOLD_S = 60.0
"""For so long the quota of an admitted gang is held without its pods."""
OVER_QUOTA = "OverQuota"
NO_ROOM = "NoRoom"
NOT_CREATED = "PodsNotCreated"

_AGAIN = Exponential(initial_s=60.0, cap_s=1800.0)
_PAUSE_S = 0.00025  # after a pass, for each that waits: ten times what the pass takes
_POSITIONS_MAX = 10  # each admission changes the status of so many that wait behind


class GateState(Enum):
    """Where a gated gang is."""

    WAITING = "waiting"
    HELD = "held"
    ADMITTED = "admitted"


@dataclass(slots=True, eq=False)
class GatedGang:
    """A gang that is gated.

    Attributes:
        gang: the gang.
        uid: of its group.
        wanted: the quota of its quorum.
        state: where it is.
        until: monotonic seconds; while held, when its pods must be there; while it waits, not before.
        expiries: how often they were not, in a row.
        reclaims: it was admitted to quota that others have borrowed, so none is charged.
        is_overdue: it is admitted whatever room there is.
    """

    gang: Gang
    uid: str
    wanted: Amounts
    state: GateState = GateState.WAITING
    until: float = 0.0
    expiries: int = 0
    reclaims: bool = False
    is_overdue: bool = False

    @property
    def owner(self) -> str:
        """The name under which its quota is charged."""
        return owner_of(self.uid)

    @property
    def created(self) -> str:
        """When its group was created, RFC 3339."""
        group = self.gang.group
        return "" if group is None else group.metadata.creation_timestamp or ""


def owner_of(uid: str) -> str:
    """The name under which quota is charged for the group of a UID; no pod's UID."""
    return f"group {uid}"


@dataclass(slots=True)
class GangAdmission:
    """All gated gangs.

    Attributes:
        quotas: charged with what is held.
        line: those that wait are in it.
        room: of resources, how much pods of a priority could get on all nodes together; without a
            priority, what nodes have, cordoned ones too.
        can_reclaim: whether a queue can have that much of its capacity back from borrowers.
        changed: called with gangs and queues whose status may be different.
    """

    quotas: Quotas
    line: WaitLine
    room: Callable[[int | None, Amounts], Mapping[str, int]]
    can_reclaim: Callable[[str, Amounts], bool]
    changed: Callable[[Gang | str], None]
    _gated: dict[Gang, GatedGang] = field(default_factory=dict)
    _timed: dict[GatedGang, None] = field(default_factory=dict)  # by ``until``
    _classes: dict[str, PriorityClass] = field(default_factory=dict)
    _is_due: bool = False
    _not_before: float = 0.0

    # --- events ------------------------------------------------------------------------------

    def update_group(self, gang: Gang, now: float) -> None:
        """A group is new, or its spec changed."""
        group = gang.group
        if group is None or not gang.is_gated:
            self.delete_group(gang)
            return
        wanted = _wanted(gang, group)
        known = self._gated.get(gang)
        if known is None or known.uid != group.metadata.uid:
            self.delete_group(gang)
            known = self._gated[gang] = GatedGang(gang, group.metadata.uid, wanted)
            if conditions.is_true(group.status.conditions, ADMITTED_CONDITION):
                self._admit(known, now)  # by a scheduler before this one
        known.wanted = wanted
        if known.state is GateState.HELD:
            self._charge(known)
        elif known.state is GateState.WAITING:
            known.until = now
        if gang.started:
            self.tried(gang)
        self._is_due = True

    def delete_group(self, gang: Gang) -> None:
        """A group is gone, or not gated any more."""
        known = self._gated.pop(gang, None)
        gang.admitted = False
        if known is not None:
            self._timed.pop(known, None)
            self.quotas.release(known.owner)

    def update_class(self, found: PriorityClass) -> None:
        """Add or update a PriorityClass."""
        self._classes[found.metadata.name] = found

    def delete_class(self, found: PriorityClass) -> None:
        """Remove a PriorityClass."""
        self._classes.pop(found.metadata.name, None)

    def freed(self) -> None:
        """There may be more room, or more quota."""
        self._is_due = True

    def tried(self, gang: Gang) -> None:
        """All pods of a gang exist and were tried: from now on they count, or wait."""
        known = self._gated.get(gang)
        if known is not None and known.state is not GateState.ADMITTED:
            known.state, known.expiries = GateState.ADMITTED, 0
            gang.admitted = True
            self._timed.pop(known, None)
            self.quotas.release(known.owner)
            self.changed(gang)

    def emptied(self, gang: Gang, now: float) -> None:
        """A gang lost its last pod."""
        known = self._gated.get(gang)
        if known is not None and known.state is GateState.ADMITTED:
            self._wait(known, now)
            known.until = now

    def overtaken(self, gang: Gang) -> None:
        """So many pods overtook a gang that it must not wait for room any more."""
        known = self._gated.get(gang)
        if known is not None and known.state is GateState.WAITING:
            known.is_overdue = self._is_due = True

    def clear(self) -> None:
        """Charge what is held once more, after all quota was released."""
        for known in self._gated.values():
            if known.state is GateState.HELD:
                self._charge(known)

    # --- what is held ------------------------------------------------------------------------

    def beyond_hold(self, gang: Gang, wanted: Amounts) -> Amounts:
        """What a gang wants apart from what is held for it."""
        known = self._gated.get(gang)
        held = {} if known is None else self.quotas.charge_of(known.owner)[1]
        return {name: max(0, amount - held.get(name, 0)) for name, amount in wanted.items()}

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Return quota that is not used, and admit the gangs that can be."""
        for known in [known for known in self._timed if known.until <= now]:
            del self._timed[known]
            if known.state is GateState.HELD:
                self._expire(known, now)
            self._is_due = True
        if self._is_due and now >= self._not_before:
            self._is_due = False
            self._not_before = now + _PAUSE_S * self._pass(now)

    def next_deadline(self, now: float) -> float | None:
        """When ``tick`` may next have something to do."""
        found = [item.until for item in self._timed]
        if self._is_due and self._gated:
            found.append(max(now, self._not_before))
        return min(found, default=None)

    # --- inside ------------------------------------------------------------------------------

    def _pass(self, now: float) -> int:
        """Decide about all that wait, in order, among the pods that wait in the same line; return how many."""
        waiting = [
            item
            for item in self._gated.values()
            if item.state is GateState.WAITING and item.until <= now
        ]
        if not waiting:
            return 0
        for gated in waiting:
            self.line.rank(gated.gang, self._priority(gated.gang), now)
        # Gangs that wait equally long come in the order of their creation.
        entries = [
            *((waiter.rank, "", None, waiter.queue, waiter.wanted) for waiter in self._others()),
            *((item.gang.rank, item.created, item, item.gang.queue, {}) for item in waiting),
        ]
        found = _Pass(self._reclaimed())
        for rank, _, item, queue, wanted in sorted(entries, key=lambda entry: entry[:2]):
            found.places[queue] = found.places.get(queue, 0) + 1
            if item is not None:
                self._decide(item, found, now)
                continue
            together = total([found.ahead.get(queue, {}), wanted])
            if not self.quotas.refusal(queue, together, rank):
                # It was activated already; what it turns out to need is known at the next pass.
                found.ahead[queue], self._is_due = together, True
        return len(waiting)

    def _priority(self, gang: Gang) -> int:
        name = "" if gang.group is None else gang.group.spec.priority_class_name
        if name:
            found = self._classes.get(name)
            return 0 if found is None else found.value
        defaults = (item.value for item in self._classes.values() if item.global_default)
        return next(defaults, 0)

    def _others(self) -> Iterator[QuotaWaiter]:
        """The pods, and gangs with pods, that wait for quota."""
        for waiter in self.line.for_quota:
            gated = None if waiter.gang is None else self._gated.get(waiter.gang)
            if gated is None or gated.state is not GateState.WAITING:
                yield waiter

    def _reclaimed(self) -> dict[str, Amounts]:
        """By queue, what gangs want that were admitted without a charge."""
        found: dict[str, Amounts] = {}
        for item in self._gated.values():
            if item.state is GateState.HELD and item.reclaims:
                queue = item.gang.queue
                found[queue] = total([found.get(queue, {}), item.wanted])
        return found

    def _decide(self, item: GatedGang, found: "_Pass", now: float) -> None:
        gang, queue, wanted = item.gang, item.gang.queue, item.wanted
        place = found.places[queue]
        shape = queue, gang.priority, item.is_overdue, tuple(sorted(wanted.items()))
        self.quotas.renew(str(gang.key), wanted, gang.rank)
        # What was refused to one is refused to all alike that come after it.
        reason, why = found.refused.get(shape, ("", ""))
        reclaims = False
        if not reason and queue:
            together = total([found.ahead.get(queue, {}), wanted])
            why = self.quotas.refusal(queue, together, gang.rank)
            reclaims = bool(why) and self.can_reclaim(queue, together)
            reason = OVER_QUOTA if why and not reclaims else ""
        if not reason and not reclaims and not item.is_overdue:
            why = self._lacking(item)
            reason = NO_ROOM if why else ""
        if reason:
            found.refused[shape] = reason, why
            self._refuse(gang, wanted, reason, now)
            self._note(item, reason, why, place)
            return
        item.reclaims = reclaims
        if reclaims:
            found.ahead[queue] = total([found.ahead.get(queue, {}), wanted])
        self.line.remove(gang, now)
        self._admit(item, now)

    def _refuse(self, gang: Gang, wanted: Amounts, reason: str, now: float) -> None:
        if reason == OVER_QUOTA:
            self.line.wait_for_quota(gang, wanted, now)
        elif str(gang.key) not in self.line.for_nodes:
            self.line.wait_for_nodes(gang, now)

    def _lacking(self, item: GatedGang) -> str:
        """What all nodes together do not have for a gang, in addition to what is held for others."""
        found = self.room(item.gang.priority, item.wanted)
        held = total(
            other.wanted for other in self._gated.values() if other.state is GateState.HELD
        )
        left = {name: max(0, found.get(name, 0) - held.get(name, 0)) for name in item.wanted}
        short = [name for name, amount in item.wanted.items() if left[name] < amount]
        if not short:
            return ""
        lacking = listed(short, left, item.wanted)
        text = f"gang wants more than nodes have free: {lacking}"
        empty = self.room(None, item.wanted)
        never = [name for name in short if empty.get(name, 0) < item.wanted[name]]
        if never:
            text += (
                f" (can never fit on these nodes: {listed(never, empty, item.wanted)} when empty)"
            )
        return text

    def _note(self, item: GatedGang, reason: str, why: str, place: int) -> None:
        gang = item.gang
        number = str(place) if place <= _POSITIONS_MAX else f"over {_POSITIONS_MAX}"
        where = f"position {number} in queue {gang.queue}" if gang.queue else ""
        rest = self.quotas.remedy(gang.queue, item.wanted) or where
        if gang.note(reason, f"{why}; {rest}" if rest else why):
            self.changed(gang)
            if gang.queue:
                self.changed(gang.queue)

    def _admit(self, item: GatedGang, now: float) -> None:
        gang = item.gang
        item.state, item.until, item.is_overdue = GateState.HELD, now + HOLD_S, False
        self._timed[item] = None
        gang.admitted = True
        gang.reason = gang.message = ""
        self._charge(item)
        self.changed(gang)

    def _charge(self, item: GatedGang) -> None:
        queue = item.gang.queue
        self.quotas.release(item.owner)
        if queue and not item.reclaims:
            self.quotas.charge(item.owner, queue, item.wanted)
        if queue:
            self.changed(queue)

    def _expire(self, item: GatedGang, now: float) -> None:
        gang = item.gang
        item.expiries += 1
        self.quotas.release(item.owner)
        if gang.started:
            self.tried(gang)
            return
        self._wait(item, now)
        again_s = _AGAIN.delay(item.expiries)
        item.until = now + again_s
        self._timed[item] = None
        count = f"{gang.counts.num_present} of {gang.min_member}"
        gang.reason = NOT_CREATED
        gang.message = f"{count} pods were created within {HOLD_S:g} s; waits {again_s:g} s"

    def _wait(self, item: GatedGang, now: float) -> None:
        gang = item.gang
        item.state, item.reclaims, self._is_due = GateState.WAITING, False, True
        self.line.remove(gang, now)
        gang.admitted, gang.waiting_since = False, None
        self.changed(gang)


@dataclass(slots=True)
class _Pass:
    """What one pass has found so far.

    Attributes:
        ahead: by queue, the quota of those that come first and are not charged yet.
        places: by queue, how many were looked at.
        refused: by queue, priority and amounts, why gangs were refused.
    """

    ahead: dict[str, Amounts]
    places: dict[str, int] = field(default_factory=dict)
    refused: dict[tuple[object, ...], tuple[str, str]] = field(default_factory=dict)


def _wanted(gang: Gang, group: PodGroup) -> Amounts:
    members = {PODS: gang.min_member}
    try:
        return {**read(group.spec.min_resources), **members}
    except QuantityError:
        return members  # the server refuses such a group
