"""When an object is ready, and what to say until then: pure functions of its document."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grange.api.meta import Document


@dataclass(frozen=True, slots=True)
class State:
    """How far an object is.

    Attributes:
        done: what was waited for holds.
        text: a few words for the board.
        failed: it never will without a change; waiting longer is useless.
    """

    done: bool
    text: str
    failed: bool = False


Check = Callable[[Document | None], State]

ENDED_BADLY = frozenset({"Failed", "RolledBack", "Refused"})
"""Phases of rollouts, within a controller and between two."""


def condition(document: Document, kind: str) -> Document | None:
    """The condition of this type, if it is there."""
    for item in (document.get("status") or {}).get("conditions") or []:
        if item.get("type") == kind:
            found: Document = item
            return found
    return None


def ready(document: Document | None) -> State:
    """Whether an object of any kind is ready; kinds without readiness are so once they exist."""
    if document is None:
        return State(done=False, text="not there yet")
    check = _BY_KIND.get(str(document.get("kind", "")), _exists)
    return check(document)


def gone(document: Document | None) -> State:
    """Whether the object is no longer there."""
    if document is None:
        return State(done=True, text="gone")
    deleting = (document.get("metadata") or {}).get("deletionTimestamp")
    return State(done=False, text="terminating" if deleting else "still there")


def has_condition(kind: str, status: str) -> Check:
    """A check for ``--for=condition=TYPE[=STATUS]``; statuses compare without case."""

    def check(document: Document | None) -> State:
        if document is None:
            return State(done=False, text="not there")
        found = condition(document, kind)
        if found is None:
            return State(done=False, text=f"no condition {kind}")
        done = str(found.get("status", "")).lower() == status.lower()
        return State(done=done, text=_because(found))

    return check


def _because(found: Document) -> str:
    text = f"{found.get('type')}={found.get('status')}"
    reason = found.get("reason")
    message = found.get("message")
    detail = ": ".join(str(part) for part in (reason, message) if part)
    return f"{text} ({detail})" if detail and found.get("status") != "True" else text


def _exists(document: Document) -> State:
    return State(done=True, text="created")


def _pod(document: Document) -> State:
    status = document.get("status") or {}
    phase = status.get("phase") or "Pending"
    if phase == "Succeeded":
        return State(done=True, text="completed")
    if phase == "Failed":
        return State(done=False, text=f"failed {status.get('reason', '')}".strip(), failed=True)
    found = condition(document, "Ready")
    if found is not None and found.get("status") == "True":
        return State(done=True, text="ready")
    for item in status.get("containerStatuses") or []:
        waiting = (item.get("state") or {}).get("waiting")
        if waiting:
            ended = (item.get("lastState") or {}).get("terminated") or {}
            told = (
                ended.get("message") or _ending(ended),
                waiting.get("message"),
                waiting.get("reason"),
            )
            why = next((text for text in told if text), "waiting")
            return State(done=False, text=f"{item.get('name')}: {why}")
    scheduled = condition(document, "PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return State(done=False, text=str(scheduled.get("message") or "unschedulable"))
    return State(done=False, text=phase.lower())


def _ending(ended: Document) -> str:
    """How a container's last run ended; empty if it had none."""
    code = ended.get("exitCode")
    return "" if code is None else f"ended with exit code {code}; see its log"


def _replication_controller(document: Document) -> State:
    spec, status = document.get("spec") or {}, document.get("status") or {}
    wanted = int(spec.get("replicas") or 0)
    current = int(document["metadata"].get("generation") or 0)
    if int(status.get("observedGeneration") or 0) < current:
        return State(done=False, text="waiting for the controller")
    have = int(status.get("readyReplicas") or 0)
    total = int(status.get("replicas") or 0)
    text = f"{have}/{wanted} ready"
    if have == wanted == total:
        return State(done=True, text=text)
    why = condition(document, "Reconciled") or {}
    if have < wanted and why.get("status") == "False" and why.get("message"):
        text += f" ({why['message']})"
    return State(done=False, text=text)


def _node(document: Document) -> State:
    found = condition(document, "Ready") or {}
    if found.get("status") != "True":
        return State(done=False, text=str(found.get("message") or "not ready"))
    cordoned = (document.get("spec") or {}).get("unschedulable")
    return State(done=True, text="ready, cordoned" if cordoned else "ready")


def _namespace(document: Document) -> State:
    phase = (document.get("status") or {}).get("phase", "Active")
    return State(done=phase == "Active", text=str(phase).lower())


def rolling_update(document: Document) -> State:
    """How far replicas have moved from one controller to another, and what that waits for."""
    status = document.get("status") or {}
    phase = str(status.get("phase") or "")
    moved = (status.get("replicas") or {}).get("new", 0)
    text = f"{phase or 'not begun'}, {moved} of {document['spec']['desired']} moved"
    failed = phase in ENDED_BADLY
    if phase == "Waiting":
        text += f": {at_canaries('spec.canary')}"
    elif failed or phase == "Pending" or _stands_still(document):
        said = condition(document, "RolloutFailed" if failed else "Progressing") or {}
        text += f": {said['message']}" if said.get("message") else ""
    return State(done=phase == "Complete", text=text, failed=failed)


def _stands_still(document: Document) -> bool:
    """Whether an order that nobody can read holds it up: its phase does not tell."""
    return (condition(document, "Progressing") or {}).get("reason") == "OrderUnreadable"


def at_canaries(field: str) -> str:
    """What to say of a rollout that stopped where it was told to."""
    return f"the canaries are there; raise or remove {field} to go on"


_BY_KIND: Mapping[str, Callable[[Document], State]] = {
    "Pod": _pod,
    "ReplicationController": _replication_controller,
    "RollingUpdate": rolling_update,
    "Namespace": _namespace,
    "Node": _node,
}
