"""Whether an object is ready, and a short text of its state: pure functions of its document.

A wait asks ``rollout_status``, which also looks at pods and at the time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grange.api.job_status import FAILED, QUEUED, RESTARTING, SUCCEEDED, SUSPENDED
from grange.api.kinds import machinelease
from grange.api.meta import Document
from grange.cli import failure_causes, job_view, testsession_view
from grange.cli.failure_causes import condition


@dataclass(frozen=True, slots=True)
class WaitState:
    """The state of an object that is waited for.

    Attributes:
        done: what was waited for holds.
        text: a few words for its row of the progress.
        failed: it never will without a change; waiting longer is useless.
        again_s: seconds after which time alone may change the answer; None for never.
    """

    done: bool
    text: str
    failed: bool = False
    again_s: float | None = None


Check = Callable[[Document | None], WaitState]

_SUCCESS = frozenset({SUCCEEDED, "Complete"})
ENDED_BADLY = frozenset({"Failed", "RolledBack", "Refused"})
"""Phases of rollouts, within a controller and between two."""


def ready(document: Document | None) -> WaitState:
    """Whether an object of any kind is ready; kinds without readiness are so once they exist."""
    if document is None:
        return WaitState(done=False, text="not there yet")
    check = _BY_KIND.get(str(document.get("kind", "")), _exists)
    return check(document)


def gone(document: Document | None) -> WaitState:
    """Whether the object is no longer there."""
    if document is None:
        return WaitState(done=True, text="gone")
    if not is_terminating(document):
        return WaitState(done=False, text="still there")
    shown = condition(
        document, "Terminating"
    )  # of a NodePool: which machines it waits for, and why
    why = str(shown.get("message") or "") if shown is not None else ""
    return WaitState(done=False, text=f"terminating: {why}" if why else "terminating")


def is_terminating(document: Document) -> bool:
    """Whether the object is marked for deletion."""
    return bool((document.get("metadata") or {}).get("deletionTimestamp"))


def has_condition(kind: str, status: str) -> Check:
    """A check for ``--for=condition=TYPE[=STATUS]``; statuses compare without case."""

    def check(document: Document | None) -> WaitState:
        if document is None:
            return WaitState(done=False, text="not there")
        found = condition(document, kind)
        if kind in _SUCCESS and (ended := _failed(document)) is not None:
            return ended
        if found is None:
            return WaitState(done=False, text=f"no condition {kind}")
        done = str(found.get("status", "")).lower() == status.lower()
        return WaitState(done=done, text=_because(found))

    return check


def _failed(document: Document) -> WaitState | None:
    """The end of a job or a test session that will never succeed."""
    kind = document.get("kind")
    if kind != "TestSession" and kind not in {known.kind for known in job_view.KINDS}:
        return None
    state = ready(document)
    return state if state.failed else None


def _because(found: Document) -> str:
    text = f"{found.get('type')}={found.get('status')}"
    reason = found.get("reason")
    message = found.get("message")
    detail = ": ".join(str(part) for part in (reason, message) if part)
    return f"{text} ({detail})" if detail and found.get("status") != "True" else text


def _exists(document: Document) -> WaitState:
    return WaitState(done=True, text="exists")


def _pod(document: Document) -> WaitState:
    status = document.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase == "Succeeded":
        return WaitState(done=True, text="completed")
    cause = failure_causes.of_pod(document)
    if phase == "Failed":
        text = f"failed {status.get('reason', '')}".strip()
        why = status.get("message") or cause
        return WaitState(done=False, text=f"{text}: {why}" if why else text, failed=True)
    if is_ready(document):
        return WaitState(done=True, text="ready")
    return WaitState(done=False, text=str(cause) if cause else phase.lower())


def is_ready(document: Document) -> bool:
    """Whether the condition Ready is True."""
    return (condition(document, "Ready") or {}).get("status") == "True"


def _replication_controller(document: Document) -> WaitState:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    if not is_observed(document):
        return WaitState(done=False, text="waiting for the controller")
    wanted = int(spec.get("replicas") or 0)
    ready, updated, available, total = (
        int(status.get(key) or 0)
        for key in ("readyReplicas", "updatedReplicas", "availableReplicas", "replicas")
    )
    text, rollout = f"{ready}/{wanted} ready", status.get("rollout") or {}
    on_delete = (spec.get("rollout") or {}).get("type") == "OnDelete"
    is_updated = on_delete or updated >= wanted
    if not is_updated and rollout.get("stableHash"):  # it means nothing at the first template
        text += f", {updated} of {wanted} updated"
    elif total > wanted:
        text += f", {total - wanted} to be removed"
    elif ready == wanted and available < wanted:
        text += f", {available} of {wanted} available"
    if (phase := rollout.get("phase")) in ENDED_BADLY:
        text += f", {phase}: {rollout.get('message') or 'see its conditions'}"
        return WaitState(done=False, text=text, failed=True)
    if is_updated and ready == total == wanted <= available and phase != "Progressing":
        return WaitState(done=True, text=text)
    why = condition(document, "Reconciled") or {}
    if ready < wanted and why.get("status") == "False" and why.get("message"):
        text += f" ({why['message']})"
    return WaitState(done=False, text=text)


def is_observed(document: Document) -> bool:
    """Whether its controller has seen the present spec."""
    seen = (document.get("status") or {}).get("observedGeneration") or 0
    return int(seen) >= int((document.get("metadata") or {}).get("generation") or 0)


def _workload(document: Document) -> WaitState:
    """A workload of Kubernetes that has replicas, as ``kubectl rollout status`` reads it."""
    if not is_observed(document):
        return WaitState(done=False, text="waiting for the controller")
    spec, status = document.get("spec") or {}, document.get("status") or {}
    wanted = status.get("desiredNumberScheduled", spec.get("replicas", 1))
    updated = status.get("updatedNumberScheduled", status.get("updatedReplicas", 0))
    available = status.get("numberAvailable", status.get("availableReplicas", 0))
    if document.get("kind") == "ReplicaSet":
        updated = wanted
    text = f"{available}/{wanted} available"
    progressing = condition(document, "Progressing") or {}
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return WaitState(done=False, text=f"{text}: {progressing.get('message', '')}", failed=True)
    if updated < wanted:
        return WaitState(done=False, text=f"{text}, {updated} of {wanted} updated")
    surplus = int(status.get("replicas") or 0) > wanted
    return WaitState(done=available >= wanted and not surplus, text=text)


def _job(document: Document) -> WaitState:
    """A job of any kind: it is ready when it has succeeded."""
    job = job_view.view(document)
    if job.is_finished:
        word = "completed" if job.phase == SUCCEEDED else "failed"
        text = ": ".join(filter(None, [word, job.message]))
        return WaitState(done=job.phase == SUCCEEDED, text=text, failed=job.phase == FAILED)
    wanted = sum(role.wanted for role in job.roles)
    text = f"{job.phase.lower()}, {sum(role.active for role in job.roles)}/{wanted} active"
    if job.percent is not None:
        text += f", {job.percent:g}% {job.report}".rstrip()
    if job.message and job.phase in {QUEUED, RESTARTING, SUSPENDED}:
        text += f" ({job.message})"
    return WaitState(done=False, text=text)


def _test_session(document: Document) -> WaitState:
    """A test session: it is ready when it has passed and everything is cleaned up."""
    session = testsession_view.view(document)
    phase, detail = testsession_view.phase(session), testsession_view.detail(session)
    ended = testsession_view.is_finished(session)
    done = ended and testsession_view.exit_code(session) == 0
    text = ": ".join(filter(None, [phase.lower(), detail]))
    return WaitState(done=done, text=text, failed=ended and not done)


def _machine_lease(document: Document) -> WaitState:
    """A lease of machines: it is ready when it is granted."""
    status = document.get("status") or {}
    phase = str(status.get("phase") or machinelease.QUEUED)
    text = ": ".join(filter(None, [phase.lower(), str(status.get("message") or "")]))
    failed = phase in {machinelease.REJECTED, machinelease.EXPIRED}
    return WaitState(done=phase == machinelease.GRANTED, text=text, failed=failed)


def _node(document: Document) -> WaitState:
    found = condition(document, "Ready") or {}
    if found.get("status") != "True":
        return WaitState(done=False, text=str(found.get("message") or "not ready"))
    cordoned = (document.get("spec") or {}).get("unschedulable")
    return WaitState(done=True, text="ready, cordoned" if cordoned else "ready")


def _namespace(document: Document) -> WaitState:
    phase = (document.get("status") or {}).get("phase", "Active")
    return WaitState(done=phase == "Active", text=str(phase).lower())


def rolling_update(document: Document) -> WaitState:
    """How far replicas have moved from one controller to another, and what that waits for."""
    status = document.get("status") or {}
    phase = str(status.get("phase") or "")
    moved = (status.get("replicas") or {}).get("new", 0)
    text = f"{phase or 'not begun'}, {moved} of {document['spec']['desired']} moved"
    failed = phase in ENDED_BADLY
    if phase == "Failed" and not is_observed(document):  # a change of the spec lets it go on
        return WaitState(done=False, text=f"{text}: waiting for the controller")
    if phase == "Waiting":
        text += f": {at_canaries('spec.canary')}"
    elif failed or phase == "Pending" or _stands_still(document):
        reported = condition(document, "RolloutFailed" if failed else "Progressing") or {}
        text += f": {reported['message']}" if reported.get("message") else ""
    return WaitState(done=phase == "Complete", text=text, failed=failed)


def _stands_still(document: Document) -> bool:
    """Whether a malformed annotation blocks it, which its phase does not show."""
    return (condition(document, "Progressing") or {}).get("reason") == "InvalidAnnotation"


def at_canaries(field: str) -> str:
    """The text for a rollout that waits at its canaries."""
    return f"the canaries are there; raise or remove {field} to go on"


_BY_KIND: Mapping[str, Callable[[Document], WaitState]] = {
    "Pod": _pod,
    "ReplicationController": _replication_controller,
    "RollingUpdate": rolling_update,
    "Namespace": _namespace,
    "Node": _node,
    "DaemonSet": _workload,
    "Deployment": _workload,
    "ReplicaSet": _workload,
    "StatefulSet": _workload,
    "TestSession": _test_session,
    "MachineLease": _machine_lease,
    **dict.fromkeys((kind.kind for kind in job_view.KINDS), _job),
}
