"""The status of groups and queues, with one condition each, and their events.

Only the newest is ever written, a moment after the first change, so a gang of hundreds costs a few
writes. Messages are those of the pods' conditions.
"""

import asyncio
from collections.abc import Callable, Mapping

from grange.api import conditions, timestamps
from grange.api.kinds import PODGROUP, QUEUE, podgroup
from grange.api.kinds.podgroup import (
    ADMITTED_CONDITION,
    SCHEDULED_CONDITION,
    PodGroup,
    PodGroupStatus,
)
from grange.api.kinds.queue import Queue, QueueStatus
from grange.api.meta import Condition, Document, ObjectKey, all_fields, preconditions
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, Conflict, Invalid, NotFound
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.plurals import counted
from grange.client.client import Client
from grange.reconcile.recorder import NORMAL, WARNING, Recorder
from grange.scheduler.gangs import quotas
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.gangs.gang_admission import owner_of
from grange.scheduler.gangs.pod_groups import ON_NODES, Gang, MemberState

ADMITTING = "Admitting"
"""The condition of a queue: nothing waits for it."""

_SOON_S = 0.2
_BACKOFF = Exponential(initial_s=0.2, cap_s=10.0)
_MESSAGE_CHARS = 1024
_NOTHING: Mapping[str, str] = {}


def phase_of(gang: Gang, running: int) -> str:
    """The phase of a group."""
    counts, quorum = gang.counts, gang.min_member
    succeeded, failed = counts[MemberState.SUCCEEDED], counts[MemberState.FAILED]
    if succeeded >= quorum:
        return podgroup.FINISHED
    if failed and failed + succeeded + running >= quorum and not counts[MemberState.WAITING]:
        return podgroup.FAILED
    if not gang.num_missing or gang.started:
        return podgroup.RUNNING if running + succeeded >= quorum else podgroup.SCHEDULED
    return podgroup.PENDING if gang.shortage else podgroup.SCHEDULING


def group_status(
    gang: Gang, group: PodGroup, now: str, used: Mapping[str, str] = _NOTHING
) -> PodGroupStatus:
    """The status of a group at a time (RFC 3339); ``used`` is from ``group_use``."""
    counts = gang.counts
    running = sum(
        1
        for member in gang.members.values()
        if member.state in ON_NODES and member.pod.status.phase == "Running"
    )
    phase = phase_of(gang, running)
    placed = phase not in (podgroup.PENDING, podgroup.SCHEDULING)
    if placed:
        message = f"{counted(gang.min_member, 'member')} or more have nodes"
        wanted = Condition(
            type=SCHEDULED_CONDITION, status="True", reason="Placed", message=message
        )
    else:
        missing = gang.shortage.removeprefix("waits for minMember: ")
        reason = gang.reason or ("NotEnoughMembers" if phase == podgroup.PENDING else "Waiting")
        message = gang.message or (missing if phase == podgroup.PENDING else "waits for its turn")
        if gang.timeouts:
            message += f" (its time was over {counted(gang.timeouts, 'time')})"
        message = message[:_MESSAGE_CHARS]
        wanted = Condition(type=SCHEDULED_CONDITION, status="False", reason=reason, message=message)
    return PodGroupStatus(
        observed_generation=group.metadata.generation or 0,
        phase=phase,
        pending=counts[MemberState.WAITING],
        scheduled=len(gang.members) - counts[MemberState.WAITING],
        running=running,
        succeeded=counts[MemberState.SUCCEEDED],
        failed=counts[MemberState.FAILED],
        used=dict(used),
        conditions=_with_admission(
            gang, conditions.set_condition(group.status.conditions, wanted, now), now
        ),
    )


def _with_admission(gang: Gang, present: tuple[Condition, ...], now: str) -> tuple[Condition, ...]:
    """The conditions with ``Admitted`` where the group is gated, without it where it is not."""
    if not gang.is_gated:
        return tuple(item for item in present if item.type != ADMITTED_CONDITION)
    wanted = Condition(
        type=ADMITTED_CONDITION,
        status="True" if gang.admitted else "False",
        reason="Admitted" if gang.admitted else gang.reason or "Waiting",
        message="its pods may be created"
        if gang.admitted
        else (gang.message or "waits for its turn")[:_MESSAGE_CHARS],
    )
    return conditions.set_condition(present, wanted, now)


def group_use(gang: Gang, group: PodGroup, gangs: Coscheduling) -> dict[str, str]:
    """What counts for a gang in its queue: its pods, and what is kept for those that are created soon."""
    if not gang.queue:
        return {}
    uids = [member.pod.metadata.uid for member in gang.members.values()]
    return gangs.quotas.shown_use(gang.queue, [*uids, owner_of(group.metadata.uid)])


def queue_status(queue: Queue, gangs: Coscheduling, now: str) -> QueueStatus:
    """The status of a queue."""
    name = queue.metadata.name
    used = gangs.quotas.limited(name, gangs.quotas.used(name))
    waiting = [waiter.gang for waiter in gangs.wait_line.for_quota if waiter.queue == name]
    pending = len(waiting)
    first = min((gang for gang in waiting if gang), key=lambda gang: gang.rank, default=None)
    message = f"{counted(pending, 'pod waits', 'pods wait')}" if pending else "no pod waits"
    if first is not None:
        message = f"{first.key}: {first.message}"[:_MESSAGE_CHARS]
    wanted = Condition(
        type=ADMITTING,
        status="False" if pending else "True",
        reason="OverQuota" if pending else "WithinQuota",
        message=message,
    )
    return QueueStatus(
        observed_generation=queue.metadata.generation or 0,
        used={resource: quotas.shown(resource, amount) for resource, amount in used.items()},
        admitted=gangs.quotas.count(name),
        pending=pending,
        conditions=conditions.set_condition(queue.status.conditions, wanted, now),
    )


class StatusWriter:
    """Writes the status of groups and queues, as the informers have them."""

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        groups: Callable[[ObjectKey], PodGroup | None],
        queues: Callable[[ObjectKey], Queue | None],
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._groups = groups
        self._queues = queues
        self._clock = clock
        self._log = log
        self._changed: dict[Gang | str, None] = {}
        self._wake = asyncio.Event()
        # By group its UID, and the reason of the last event.
        self._last_reasons: dict[ObjectKey, tuple[str, str]] = {}

    def changed(self, what: Gang | str) -> None:
        """Write the status of a gang, or of a queue by its name, if it is different."""
        self._changed[what] = None
        self._wake.set()

    async def run(self, gangs: Coscheduling) -> None:
        """Write until cancelled. What cannot be written now is tried again, each time later."""
        failures = 0
        while True:
            await self._wake.wait()
            await self._clock.sleep(_SOON_S if not failures else _BACKOFF.delay(failures))
            self._wake.clear()
            waiting, self._changed = self._changed, {}
            failed = False
            for what in waiting:
                try:
                    await self._write(what, gangs)
                except NotFound:
                    continue  # its deletion is on its way
                except Conflict:
                    self.changed(what)  # written by others: once more, on what they wrote
                    failed = True
                except Invalid as error:
                    self._log.warning("status refused", what=_name(what), error=error)
                except ApiError as error:
                    self._log.warning("status not written", what=_name(what), error=error)
                    self.changed(what)
                    failed = True
            failures = failures + 1 if failed else 0

    async def _write(self, what: Gang | str, gangs: Coscheduling) -> None:
        now = timestamps.rfc3339(self._clock.now())
        if isinstance(what, str):
            queue = self._queues(ObjectKey("", what))
            if queue is not None:
                admission = queue_status(queue, gangs, now)
                if admission != queue.status:
                    await self._patch(QUEUE, queue, _document(admission, queue.status))
            return
        group = self._groups(what.key)
        if group is None:
            self._last_reasons.pop(what.key, None)
            return
        status = group_status(what, group, now, group_use(what, group, gangs))
        self._record_event(group, status)
        if status != group.status:
            await self._patch(PODGROUP, group, _document(status, group.status))

    async def _patch(self, kind: AnyKind, what: PodGroup | Queue, status: Document) -> None:
        meta = what.metadata
        # Only the very object that was read: a merge patch replaces all conditions at once.
        patch = {"metadata": preconditions(meta), "status": status}
        await self._client.patch(kind, meta.name, meta.namespace, patch=patch, subresource="status")

    def _record_event(self, group: PodGroup, status: PodGroupStatus) -> None:
        """An event when a group starts to wait for something else, or has its nodes."""
        condition = conditions.find(status.conditions, SCHEDULED_CONDITION)
        if condition is None:
            return
        uid = group.metadata.uid
        last = self._last_reasons.get(group.key)
        if last is None or last[0] != uid:
            written = conditions.find(group.status.conditions, SCHEDULED_CONDITION)
            last = uid, "" if written is None else written.reason
        self._last_reasons[group.key] = uid, condition.reason
        if condition.reason == last[1]:
            return
        if condition.status == "True":
            message = counted(status.scheduled, "member has a node", "members have nodes")
            self._recorder.event(group, NORMAL, "Scheduled", message, kind=PODGROUP)
        elif condition.message:
            self._recorder.event(group, WARNING, condition.reason, condition.message, kind=PODGROUP)


def _name(what: Gang | str) -> str:
    return what if isinstance(what, str) else str(what.key)


def _document(
    status: PodGroupStatus | QueueStatus, before: PodGroupStatus | QueueStatus
) -> Document:
    """The status with every field, so that a merge patch also takes zeros."""
    document = all_fields(status)
    # Resources that are not used or limited any more are taken out of the map by name.
    gone = {name: None for name in before.used if name not in status.used}
    return {**document, "used": {**gone, **document["used"]}}
