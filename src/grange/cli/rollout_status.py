"""Whether a rollout has happened: the one rule of every wait for readiness, as a pure function.

A controller's own status comes first: it must be of the present spec, with all replicas updated and
available. Then its pods: a container without a readiness or startup probe is ready as soon as it
starts, so it counts only after it has run for ``SETTLE_S``. Until then the cause of a pod that is not
ready is part of the text. A container in a crash loop and a rollout that failed end the wait.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from grange.api import names, timestamps
from grange.api.kinds import POD, REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.timestamps import TimestampError
from grange.cli import failure_causes, readiness
from grange.cli.readiness import WaitState

SETTLE_S = 2.0
"""A container without a probe counts as ready after it has run for so long."""

_HASH = "grange.dev/template-hash"

Pods = Sequence[Document] | None


def rollout_status(
    document: Document | None, pods: Pods, now: datetime, *, own: readiness.Check = readiness.ready
) -> WaitState:
    """The state of an object of any kind.

    Args:
        document: the object; None while it is not there.
        pods: pods of its namespace, its own among them; None where they cannot be read: then only
            the object's own status counts.
        now: wall time.
        own: reads the object's own status.
    """
    state = own(document)
    kind = "" if document is None else str(document.get("kind", ""))
    if document is None or state.failed:
        return state
    if kind == POD.kind:
        return _of_pod(document, state, now)
    if kind == REPLICATIONCONTROLLER.kind and pods is not None and readiness.is_observed(document):
        return _of_controller(document, state, pods, now)
    if kind == ROLLINGUPDATE.kind and pods is not None and not state.done:
        return _of_move(document, state, pods, now)
    return state


def pod_selector(kind: AnyKind, name: str) -> str:
    """Label selector of the pods that explain the state of an object of this kind; empty for none."""
    if kind.qualified == REPLICATIONCONTROLLER.qualified:
        return f"{NAME_LABEL}={names.label_value(name)}"
    return NAME_LABEL if kind.qualified == ROLLINGUPDATE.qualified else ""


def settle_s(pod: Document, now: datetime) -> float:
    """Seconds until the containers without a probe have run for ``SETTLE_S``; zero if they have.

    A start in the future only shows that clocks differ, so it is not waited for.
    """
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    probed = {
        item.get("name")
        for item in containers
        if item.get("readinessProbe") or item.get("startupProbe")
    }
    status = pod.get("status") or {}
    found = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    left_s = [_left_s(item, now) for item in found if item.get("name") not in probed]
    return max(left_s, default=0.0)


def _left_s(item: Document, now: datetime) -> float:
    stamp = ((item.get("state") or {}).get("running") or {}).get("startedAt")
    try:
        age_s = (now - timestamps.parse(str(stamp))).total_seconds()
    except TimestampError:
        return 0.0
    needed_s = SETTLE_S if "." in str(stamp) else SETTLE_S + 1.0  # whole seconds are cut off
    return 0.0 if age_s < -SETTLE_S else max(0.0, needed_s - age_s)


def _of_pod(document: Document, state: WaitState, now: datetime) -> WaitState:
    if not state.done:
        cause = failure_causes.of_pod(document)
        return replace(state, failed=cause is not None and cause.final)
    if (document.get("status") or {}).get("phase") != "Running":
        return state
    return _settled(state, settle_s(document, now))


def _settled(state: WaitState, left_s: float) -> WaitState:
    if not left_s:
        return state
    text = f"{state.text}, running for less than {SETTLE_S:g} s"
    return WaitState(done=False, text=text, again_s=left_s)


def _of_controller(
    document: Document, state: WaitState, pods: Sequence[Document], now: datetime
) -> WaitState:
    uid = document["metadata"].get("uid")
    own = [item for item in pods if _is_active(item) and _is_owned(item, uid)]
    if not state.done:
        return _with_cause(document, state, own, pods, now)
    wanted = int((document.get("spec") or {}).get("replicas") or 0)
    left_s = sorted(settle_s(item, now) for item in own if readiness.is_ready(item))[:wanted]
    if len(left_s) < wanted:  # the controller has seen more than we have
        return replace(state, done=False)
    settled = _settled(state, max(left_s, default=0.0))
    return settled if settled.done else _with_cause(document, settled, own, pods, now)


def _of_move(
    document: Document, state: WaitState, pods: Sequence[Document], now: datetime
) -> WaitState:
    """A move of replicas to another controller; one that goes back or is paused needs no pod there."""
    if (document.get("status") or {}).get("phase") not in {"Progressing", "Waiting"}:
        return state
    mark = names.label_value(str(document["spec"]["new"]))
    new = [item for item in pods if (item["metadata"].get("labels") or {}).get(NAME_LABEL) == mark]
    return _with_cause(document, state, [item for item in new if _is_active(item)], pods, now)


def _with_cause(
    document: Document,
    state: WaitState,
    own: Sequence[Document],
    pods: Sequence[Document],
    now: datetime,
) -> WaitState:
    """The state with the cause of one unready or just restarted pod, and failed where one will not become ready.

    Pods of earlier templates are being replaced and give no cause.

    Args:
        document: the controller.
        state: by its own status.
        own: its pods.
        pods: all that are known, those that terminate among them.
        now: wall time.
    """
    present = ((document.get("status") or {}).get("rollout") or {}).get("templateHash")
    found: list[tuple[str, failure_causes.FailureCause]] = []
    for item in sorted(own, key=lambda pod: str(pod["metadata"].get("name"))):
        made_from = (item["metadata"].get("labels") or {}).get(_HASH)
        cause = _cause(item, now) if not present or made_from in {present, None} else None
        if cause is None or cause.is_vague or cause.is_starting:
            continue
        if cause.final and _is_held_by_terminating(cause, pods):
            cause = replace(cause, final=False)
        found.append((f"pod/{item['metadata'].get('name')}", cause))
    if not found:
        return state
    label, cause = max(found, key=lambda pair: pair[1].final)  # the first of the final ones
    if cause.text in state.text:
        return replace(state, failed=cause.final)
    return replace(state, text=f"{state.text}; {label}: {cause}", failed=cause.final)


def _cause(pod: Document, now: datetime) -> failure_causes.FailureCause | None:
    """Why a pod is not ready, or why it was restarted a moment ago."""
    if (cause := failure_causes.of_pod(pod)) is not None or not settle_s(pod, now):
        return cause
    restart = failure_causes.of_restart(pod, now)
    return restart[0] if restart is not None else None


def _is_held_by_terminating(cause: failure_causes.FailureCause, pods: Sequence[Document]) -> bool:
    """Whether the address is in use by a pod that will release it, because it terminates."""
    return cause.is_address_in_use and any(
        f"pod {pod['metadata'].get('namespace')}/{pod['metadata'].get('name')}," in cause.text
        for pod in pods
        if readiness.is_terminating(pod)
    )


def _is_active(pod: Document) -> bool:
    ended = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
    return not ended and not readiness.is_terminating(pod)


def _is_owned(pod: Document, uid: object) -> bool:
    references = pod["metadata"].get("ownerReferences") or ()
    return any(item.get("controller") and item.get("uid") == uid for item in references)
