"""A job of any kind as the command line shows it: a pure function of its document.

The document may come from Grange, from a training operator or from Kubernetes itself, so that every
field of the status may be missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grange.api.fields import lookup
from grange.api.job_status import (
    CONDITION_TYPES,
    CREATED,
    FAILED,
    FINISHED_TYPES,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
)
from grange.api.kinds import GANGJOB, JOB, PYTORCHJOB, TFJOB
from grange.api.meta import Document
from grange.api.scheme import AnyKind

KINDS: tuple[AnyKind, ...] = (GANGJOB, TFJOB, PYTORCHJOB, JOB)
"""In the order in which a name without a kind is looked up."""

BATCH_ROLE = "worker"
"""The only role of a batch/v1 Job."""

_COMPLETE = "Complete"
_ROLE_LABELS = ("grange.dev/replica-type", "training.kubeflow.org/replica-type")
_INDEX_LABELS = (
    "grange.dev/replica-index",
    "training.kubeflow.org/replica-index",
    "batch.kubernetes.io/job-completion-index",
)


@dataclass(frozen=True, slots=True)
class RoleView:
    """The counts of one role.

    Attributes:
        name: as the kind spells it.
        wanted: pods that the spec asks for.
        attempt: how often the role was restarted as a whole.
    """

    name: str
    wanted: int
    active: int
    ready: int
    succeeded: int
    failed: int
    restarts: int
    attempt: int


@dataclass(frozen=True, slots=True)
class JobView:
    """One job.

    Attributes:
        phase: type of the condition that describes it best.
        message: of that condition, with its reason.
        restarts: charged ones.
        uncharged: restarts that no limit counts.
        in_place: restarts inside of pods at work, which are charged when these end.
        queue: whose quota it uses; empty for none.
        quota_used: how much of it: ``cpu 4, pods 2``; empty where it uses none.
        percent: reported progress; None where no pod reports any.
        report: what the pod wrote with it.
        created, started, ended: RFC 3339; empty where it has not happened.
        runs_since: when the attempt that runs began to run; empty where none runs.
    """

    kind: AnyKind
    name: str
    namespace: str
    uid: str
    phase: str
    message: str
    roles: tuple[RoleView, ...]
    restarts: int
    uncharged: int
    in_place: int
    queue: str
    quota_used: str
    percent: float | None
    report: str
    created: str
    started: str
    ended: str
    runs_since: str

    @property
    def label(self) -> str:
        """Kind and name, as other verbs take them."""
        word = self.kind.short_names[0] if self.kind.short_names else self.kind.singular
        return f"{word}/{self.name}"

    @property
    def is_finished(self) -> bool:
        """Whether it has succeeded or failed."""
        return self.phase in FINISHED_TYPES

    @property
    def exit_code(self) -> int:
        """0 for a job that has succeeded, else 1."""
        return 0 if self.phase == SUCCEEDED else 1


def is_job(kind: AnyKind) -> bool:
    """Whether the kind is one of a job."""
    return any(kind.group == known.group and kind.kind == known.kind for known in KINDS)


def view(document: Document) -> JobView:
    """What a document of one of ``KINDS`` shows."""
    kind = next(known for known in KINDS if known.kind == document.get("kind"))
    meta, status = document["metadata"], document.get("status") or {}
    own = status.get("gangJob") or status
    phase, message = _phase(document, own)
    progress = own.get("progress")
    return JobView(
        kind=kind,
        name=str(meta.get("name", "")),
        namespace=str(meta.get("namespace", "")),
        uid=str(meta.get("uid", "")),
        phase=phase,
        message=message,
        roles=tuple(_roles(document, own)),
        restarts=_number(own, "restarts"),
        uncharged=_number(own, "unchargedRestarts"),
        in_place=sum(
            _number(counts, "inPlaceRestarts")
            for counts in (own.get("replicaStatuses") or {}).values()
        ),
        queue=str(own.get("queue") or ""),
        quota_used=", ".join(
            f"{name} {amount}" for name, amount in sorted((own.get("quotaUsed") or {}).items())
        ),
        percent=float(progress.get("percent") or 0) if progress else None,
        report=str((progress or {}).get("message") or ""),
        created=str(meta.get("creationTimestamp") or ""),
        started=str(status.get("startTime") or ""),
        ended=_ended(status),
        runs_since=_runs_since(own),
    )


def sizes_path(document: Document) -> str:
    """Path of the roles in the document; empty for a batch/v1 Job."""
    for name in document.get("spec") or {}:
        if name.lower().endswith("replicaspecs"):
            return f"spec.{name}"
    return ""


def suspend_path(document: Document) -> tuple[str, ...]:
    """Path of the field that suspends the job."""
    return ("spec", "runPolicy", "suspend") if sizes_path(document) else ("spec", "suspend")


def member_of(pod: Document) -> tuple[str, str]:
    """Role and index of a pod; the index is empty where it has none."""
    labels = pod["metadata"].get("labels") or {}
    role = next((str(labels[key]) for key in _ROLE_LABELS if key in labels), BATCH_ROLE)
    return role, next((str(labels[key]) for key in _INDEX_LABELS if key in labels), "")


def is_member(pod: Document, uid: str) -> bool:
    """Whether the job of this UID controls the pod."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid and owner.get("controller") for owner in owners)


def _phase(document: Document, own: Mapping[str, Any]) -> tuple[str, str]:
    conditions = lookup(document, "status.conditions") or []
    true = {item.get("type"): item for item in conditions if item.get("status") == "True"}
    if _COMPLETE in true:
        return SUCCEEDED, _text(true[_COMPLETE])
    ended = next((name for name in FINISHED_TYPES if name in true), "")
    phase = str(ended or own.get("phase") or "")
    if not phase and SUSPENDED in true:
        phase = SUSPENDED
    if not phase:
        known = [name for name in true if name in CONDITION_TYPES]
        active = bool(_number(document.get("status") or {}, "active"))
        phase = known[-1] if known else RUNNING if active else CREATED
    shown = true.get(phase)
    if shown is None:
        listed = own.get("conditions") or ()
        shown = next((item for item in listed if item.get("type") == phase), None)
    return phase, _text(shown) if shown else ""


def _text(condition: Document) -> str:
    parts = [str(condition[key]) for key in ("reason", "message") if condition.get(key)]
    return ": ".join(parts)


def _ended(status: Mapping[str, Any]) -> str:
    if status.get("completionTime"):
        return str(status["completionTime"])
    for item in status.get("conditions") or ():  # a Job that failed has no completion time
        if item.get("type") == FAILED and item.get("status") == "True":
            return str(item.get("lastTransitionTime") or "")
    return ""


def _runs_since(own: Mapping[str, Any]) -> str:
    for item in own.get("conditions") or ():
        if item.get("type") == RUNNING and item.get("status") == "True":
            return str(item.get("lastTransitionTime") or "")
    return ""


def _roles(document: Document, own: Mapping[str, Any]) -> list[RoleView]:
    path = sizes_path(document)
    counts = own.get("replicaStatuses") or {}
    if path:
        specs: Document = lookup(document, path) or {}
        return [
            _role(name, _wanted(spec.get("replicas")), counts.get(name) or {})
            for name, spec in specs.items()
        ]
    spec, status = document.get("spec") or {}, document.get("status") or {}
    completions = spec.get("completions")
    wanted = _wanted(spec.get("parallelism") if completions is None else completions)
    return [_role(BATCH_ROLE, wanted, next(iter(counts.values()), status))]


def _wanted(value: Any) -> int:
    return value if isinstance(value, int) else 1


def _role(name: str, wanted: int, counts: Mapping[str, Any]) -> RoleView:
    active, ready, succeeded, failed, restarts, attempt = (
        _number(counts, key)
        for key in ("active", "ready", "succeeded", "failed", "restarts", "attempt")
    )
    return RoleView(name, wanted, active, ready, succeeded, failed, restarts, attempt)


def _number(holder: Mapping[str, Any], key: str) -> int:
    value = holder.get(key)
    return value if isinstance(value, int) else 0


def pod_selector(job: JobView) -> str:
    """Label selector of the job's pods; ``is_member`` selects those that it controls."""
    prefix = {"grange.dev": "grange.dev", "batch": "batch.kubernetes.io"}
    return f"{prefix.get(job.kind.group, 'training.kubeflow.org')}/job-name={job.name}"


def position(pod: Document, order: Sequence[str]) -> tuple[int, int, str]:
    """A key that sorts pods by role and index.

    Args:
        pod: the pod.
        order: names of the roles in lower case.
    """
    role, index = member_of(pod)
    at = order.index(role) if role in order else len(order)
    return at, int(index) if index.isdecimal() else -1, str(pod["metadata"]["name"])
