"""Problems of an object: unmet conditions, warnings, and of a pod the cause in one line."""

from contextlib import aclosing, suppress
from datetime import datetime, timedelta

from grange.api import timestamps
from grange.api.http import Request
from grange.api.kinds import EVENT, POD
from grange.api.meta import Document
from grange.api.pod_fields import ISOLATED
from grange.api.status import ApiError
from grange.api.timestamps import TimestampError
from grange.base.plurals import counted
from grange.cli import failure_causes, readiness, watch_stream
from grange.cli.printers import events as printer
from grange.cli.session import ApiSession

_LATEST = 5
_BEFORE = timedelta(seconds=2)  # a warning may be older than the condition that follows from it
# Conditions of these types report a problem when they are True.
_BAD = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"}) | {
    "Paused",
    "InsufficientNodes",
    "Misplaced",
    "RolloutFailed",
    "AuditRefused",
}
# Conditions of these types state how an object is, and no problem of it.
_STATED = frozenset({ISOLATED})
_LINES = 20  # the last of these that is not empty is shown
_LONGEST = 300


def summary(pod: Document) -> str:
    """Why the pod is not ready, from its status alone."""
    return readiness.ready({**pod, "kind": POD.kind}).text


async def describe(session: ApiSession, pod: Document) -> str:
    """Why the pod is not ready.

    Where its status has no cause, the latest warning about it has: kubelets put the message of a
    probe into an Event only. The message of a pod that failed as a whole (an eviction, a deadline)
    comes before the exit of its containers, which follows from it.
    """
    status = pod.get("status") or {}
    if status.get("phase") == "Failed" and status.get("message"):
        return ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key))
    cause = failure_causes.of_pod(pod)
    if cause is not None and (cause.ended or not cause.is_vague):
        return await _with_output(session, pod, cause)
    return await _latest_warning(session, pod) or summary(pod)


async def describe_restarts(session: ApiSession, pod: Document, now: datetime) -> str:
    """How often a ready pod was restarted lately, and why; empty where it was not."""
    if (found := failure_causes.of_restart(pod, now)) is None:
        return ""
    cause, count = found
    return f"{counted(count, 'restart')}; the last one: {await _with_output(session, pod, cause)}"


async def _with_output(
    session: ApiSession, pod: Document, cause: failure_causes.FailureCause
) -> str:
    line = await _last_line(session, pod, cause) if cause.ended else ""
    return cause.with_output(line) if line else str(cause)


async def _last_line(session: ApiSession, pod: Document, cause: failure_causes.FailureCause) -> str:
    """The last line of the run that ended; it may have become the previous one meanwhile."""
    for previous in (cause.previous, not cause.previous):
        if line := await _output(session, pod, cause.container, previous=previous):
            return line
    return ""


async def _output(session: ApiSession, pod: Document, container: str, *, previous: bool) -> str:
    meta = pod["metadata"]
    path = POD.path(meta.get("namespace") or "default", meta["name"], "log")
    query = {"container": container, "tailLines": str(_LINES)}
    if previous:
        query["previous"] = "true"
    try:
        response = await session.fetch(Request("GET", path, query=query))
        async with aclosing(watch_stream.chunks_of(response)) as chunks:
            text = response.body + b"".join([chunk async for chunk in chunks])
    except ApiError:
        return ""  # the log is gone, or may not be read: the cause itself is known
    lines = [line.strip() for line in text.decode(errors="replace").splitlines()]
    return next((line[:_LONGEST] for line in reversed(lines) if line), "")


async def _latest_warning(session: ApiSession, pod: Document) -> str:
    try:
        found = await latest_warnings(session, pod)
    except ApiError:
        return ""
    return str(found[-1].get("message", "")).strip() if found else ""


def unmet(document: Document) -> list[Document]:
    """The conditions that report a problem."""
    found = []
    for item in (document.get("status") or {}).get("conditions") or []:
        if item.get("type") in _STATED:
            continue
        wanted = "False" if item.get("type") in _BAD else "True"
        if item.get("status") != wanted:
            found.append(item)
    return found


async def latest_warnings(session: ApiSession, document: Document) -> list[Document]:
    """The latest warnings about an object, the latest last; none from before it was last well."""
    meta = document["metadata"]
    selector = f"involvedObject.uid={meta.get('uid', '')},type=Warning"
    events = await session.listed(EVENT, meta.get("namespace") or "default", fields=selector)
    since = last_well(document)
    found = [item for item in events if _is_after(item, since)]
    return printer.in_order(found)[-_LATEST:]


def last_well(document: Document) -> datetime | None:
    """When all conditions were as they should be for the last time; None where that is not known.

    While something is wrong that is when it began; else it is when the last condition became so.
    """
    wrong = _times(unmet(document))
    if wrong:
        return min(wrong) - _BEFORE
    return max(_times((document.get("status") or {}).get("conditions") or []), default=None)


def _times(conditions: list[Document]) -> list[datetime]:
    found = []
    for item in conditions:
        with suppress(TimestampError):
            found.append(timestamps.parse(str(item.get("lastTransitionTime"))))
    return found


def _is_after(event: Document, since: datetime | None) -> bool:
    seen = printer.last_seen(event)
    return since is None or seen is None or seen >= since
