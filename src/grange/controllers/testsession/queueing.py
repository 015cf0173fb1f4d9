"""What a waiting session shows of its place in the queue, and when it gives way to others. Pure."""

from collections.abc import Iterable
from datetime import datetime
from statistics import median

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.testsession import TestSession
from grange.controllers.testsession.session_draft import SessionDraft
from grange.controllers.testsession.session_inputs import GroupMembers

QUEUE, SUPERSEDE = "Queue", "Supersede"

_EXACT = 10  # positions up to here are shown as they are
_STEP = 0.1
_RUNS = 20  # of which the median is taken
_KNOWN_S = 2.0  # the second of a creation time, and one more in which watches show what it brought


def mirror(draft: SessionDraft, lease: MachineLease) -> None:
    """Show the lease's place in the queue.

    Far behind, it follows in steps of a tenth: a write for every place of every session would make the
    writes of a queue grow with its square. The lease always has the exact one.
    """
    shown, status = draft.status, lease.status
    moved = abs(status.position - shown.position)
    near = min(status.position, shown.position) <= _EXACT
    moved_start = near and status.expected_start != shown.expected_start
    changed = moved > 0 if near else moved >= shown.position * _STEP
    if changed or moved_start or status.reason != shown.reason:
        draft.set(
            position=status.position,
            reason=status.reason,
            message=status.message,
            expected_start=status.expected_start,
        )


def order(session: TestSession) -> tuple[str, str]:
    """The order in which sessions of a group run.

    Creation times are whole seconds: within one, UIDs decide, which is not the order of creation.
    """
    return session.metadata.creation_timestamp or "", session.metadata.uid


def group_members(
    session: TestSession, others: Iterable[TestSession], now: datetime
) -> GroupMembers:
    """What the other sessions of a namespace and a concurrency group mean for one of them.

    A session is superseded only by one whose creation time shows that it is newer. Those of one second run one
    after the other, and each waits until all of them are known: who started first might be last in their order.
    """
    own = session.spec.concurrency
    if own is None:
        return GroupMembers()
    created = session.metadata.creation_timestamp or ""
    superseding = unfinished = ""
    for other in others:
        its = other.spec.concurrency
        if its is None or its.group != own.group or other.metadata.uid == session.metadata.uid:
            continue
        if other.metadata.deletion_timestamp:
            continue
        if order(other) < order(session):
            if other.status.phase not in testsession.FINAL_PHASES:
                unfinished = unfinished or other.metadata.name
        elif its.policy == SUPERSEDE and (other.metadata.creation_timestamp or "") > created:
            superseding = other.metadata.name
    # Where the server's clock is ahead, the time since the session was queued here counts.
    times = (created, session.status.phase_time)
    begun = min(timestamps.parse_or(text, now) for text in times)
    known_in_s = max(0.0, _KNOWN_S - (now - begun).total_seconds())
    return GroupMembers(superseding, unfinished, known_in_s)


def test_name(session: TestSession) -> str:
    """By which runs of one test are known."""
    if session.spec.test_name:
        return session.spec.test_name
    generated = session.metadata.generate_name.rstrip("-")
    return generated or session.metadata.name


test_name.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


def expected_seconds(session: TestSession, others: Iterable[TestSession]) -> int | None:
    """How long a run of this test has its machines: the median of the last ones; None: not known."""
    name = test_name(session)
    runs: list[tuple[datetime, float]] = []
    for other in others:
        if other.status.verdict not in (testsession.PASSED, testsession.TEST_FAILED):
            continue
        if other.status.phase in testsession.FINAL_PHASES and test_name(other) == name:
            start = timestamps.parse_or(other.status.start_time, timestamps.EPOCH)
            end = timestamps.parse_or(other.status.completion_time, timestamps.EPOCH)
            if start < end and start != timestamps.EPOCH:
                runs.append((end, (end - start).total_seconds()))
    if not runs:
        return None
    latest = [length for _, length in sorted(runs)[-_RUNS:]]
    return max(1, round(median(latest)))
