"""Job of batch/v1: pods that run to completion."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

import msgspec

from grange.api import schema_builder, template_warnings, timestamps
from grange.api.fields import lookup, reader
from grange.api.job_status import JobStatus
from grange.api.kinds import job_schema
from grange.api.meta import Condition, Document, LabelSelector, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.validation.batch_jobs import (
    LEGACY_NAME_LABEL,
    LEGACY_UID_LABEL,
    NAME_LABEL,
    UID_LABEL,
    check_job,
    check_job_name,
)

BACKOFF_LIMIT = 6
_NO_LIMIT = 2**31 - 1
_GENERATED = (UID_LABEL, LEGACY_UID_LABEL, NAME_LABEL, LEGACY_NAME_LABEL)
COMPLETE = "Complete"
FAILED = "Failed"
SUSPENDED = "Suspended"
FAILURE_TARGET = "FailureTarget"
SUCCESS_CRITERIA_MET = "SuccessCriteriaMet"


class PodFailureExitCodes(View, frozen=True):
    """Exit codes that a rule is about: ``In`` or ``NotIn`` the values."""

    operator: str
    values: tuple[int, ...] = ()
    container_name: str = ""


class PodFailureCondition(View, frozen=True):
    """A condition of a pod that a rule is about."""

    type: str
    status: str = "True"


class PodFailureRule(View, frozen=True):
    """What to do with failures of some sort."""

    action: str
    on_exit_codes: PodFailureExitCodes | None = None
    on_pod_conditions: tuple[PodFailureCondition, ...] = ()


class PodFailurePolicy(View, frozen=True):
    """What follows from failures of pods: the first rule that matches decides."""

    rules: tuple[PodFailureRule, ...] = ()


class JobSuccessRule(View, frozen=True):
    """Indexes that are enough: all that are listed, or a number of them."""

    succeeded_indexes: str = ""
    succeeded_count: int | None = None


class JobSuccessPolicy(View, frozen=True):
    """When the Job has succeeded before all of its indexes are complete."""

    rules: tuple[JobSuccessRule, ...] = ()


class BatchJobSpec(View, frozen=True):
    """The desired state.

    Attributes:
        parallelism: pods at a time; None: one.
        completions: pods that have to succeed; None: one of several that share a queue.
        completion_mode: ``Indexed``: every index has to succeed.
        backoff_limit: charged restarts before it fails.
        backoff_limit_per_index: the same of one index.
        max_failed_indexes: so many may be given up before the Job fails.
        template: the pod to copy: metadata and spec, as a full document.
    """

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = BACKOFF_LIMIT
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    pod_failure_policy: PodFailurePolicy | None = None
    success_policy: JobSuccessPolicy | None = None
    pod_replacement_policy: str = ""
    managed_by: str | None = None
    manual_selector: bool = False
    selector: LabelSelector | None = None
    template: Document = msgspec.field(default_factory=dict)


class BatchJobStatus(View, frozen=True):
    """What is, in the fields of batch/v1.

    Attributes:
        gang_job: the same in the words of all kinds of jobs, with what batch/v1 has no field for.
    """

    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    failed_indexes: str | None = None
    start_time: str | None = None
    completion_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    gang_job: JobStatus | None = None


class BatchJob(Resource, frozen=True):
    """Pods that run to completion, as batch/v1 has them."""

    spec: BatchJobSpec = msgspec.field(default_factory=BatchJobSpec)
    status: BatchJobStatus = msgspec.field(default_factory=BatchJobStatus)


def _default(document: Document) -> None:
    spec = document.get("spec")
    if spec is None:
        return
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        per_index = spec.get("backoffLimitPerIndex") is not None
        spec["backoffLimit"] = _NO_LIMIT if per_index else BACKOFF_LIMIT
    policy = spec.get("podFailurePolicy")
    for field, value in (
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("podReplacementPolicy", "TerminatingOrFailed" if policy is None else "Failed"),
    ):
        if spec.get(field) is None:
            spec[field] = value
    for rule in (policy or {}).get("rules") or ():
        for item in rule.get("onPodConditions") or ():
            item.setdefault("status", "True")
    _default_selector(document, spec)


def _default_selector(document: Document, spec: Document) -> None:
    """The labels of the template, and a selector that finds this Job's pods by its uid."""
    meta = document.get("metadata") or {}
    labels = lookup(spec, "template.metadata.labels") or {}
    plain = {key: value for key, value in labels.items() if key not in _GENERATED}
    if plain and not meta.get("labels"):
        meta["labels"] = plain
    name, uid = meta.get("name"), meta.get("uid")
    if spec.get("manualSelector") or not uid or not name or not spec.get("template"):
        return
    if spec.get("selector") is None:
        spec["selector"] = {"matchLabels": {UID_LABEL: uid}}
    wanted = {
        UID_LABEL: uid,
        LEGACY_UID_LABEL: uid,
        NAME_LABEL: name,
        LEGACY_NAME_LABEL: name,
    }
    if wanted.items() <= labels.items():
        return
    # The template may be shared with the object as it was.
    template = spec["template"] = dict(spec["template"])
    template["metadata"] = {**(template.get("metadata") or {}), "labels": {**labels, **wanted}}


def review_template(
    template: Mapping[str, Document], known: Mapping[str, Document] | None, path: str
) -> Iterable[str]:
    """Warnings about what has no effect in a template, unless it is one that was reviewed."""
    if template == known:
        return ()
    return template_warnings.of_spec(template.get("spec") or {}, f"{path}.spec")


def _review(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    known = lookup(old, "spec.template") if old else None
    return review_template(document["spec"]["template"], known, "spec.template")


def _is_true(document: Document, kind: str) -> bool:
    conditions = lookup(document, "status.conditions")
    return any(
        item.get("type") == kind and item.get("status") == "True"
        for item in (conditions if isinstance(conditions, list) else ())
    )


def _state(document: Document, now: float) -> cells.Cell:
    """As kubectl prints it."""
    for kind in (COMPLETE, FAILED):
        if _is_true(document, kind):
            return kind
    if lookup(document, "metadata.deletionTimestamp"):
        return "Terminating"
    for kind in (SUSPENDED, FAILURE_TARGET, SUCCESS_CRITERIA_MET):
        if _is_true(document, kind):
            return kind
    return "Running"


def _completions(document: Document, now: float) -> cells.Cell:
    """As kubectl prints it: how many of how many, or of a queue."""
    done = lookup(document, "status.succeeded") or 0
    wanted = lookup(document, "spec.completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = lookup(document, "spec.parallelism") or 0
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _duration(document: Document, now: float) -> cells.Cell:
    """From its start to its end, of whichever sort that was, or to now."""
    start = lookup(document, "status.startTime")
    if not isinstance(start, str):
        return ""
    end = lookup(document, "status.completionTime")
    if end is None:
        found = lookup(document, "status.conditions")
        ends = [
            item.get("lastTransitionTime")
            for item in (found if isinstance(found, list) else ())
            if item.get("type") == FAILED and item.get("status") == "True"
        ]
        end = ends[0] if ends else None
    try:
        until = now if end is None else timestamps.parse(end).timestamp()
        return timestamps.age(until - timestamps.parse(start).timestamp())
    except timestamps.TimestampError:
        return cells.UNKNOWN


def _of_containers(path: str, field: str) -> Callable[[Document, float], cells.Cell]:
    def cell(document: Document, now: float) -> cells.Cell:
        containers = lookup(document, f"{path}.spec.containers") or ()
        return ",".join(str(item.get(field, "")) for item in containers) or cells.NONE

    return cell


def template_columns(path: str) -> tuple[Column, ...]:
    """The wide columns of a template's containers."""
    return (
        Column(
            "Containers", _of_containers(path, "name"), description="What pods run.", priority=1
        ),
        Column(
            "Images", _of_containers(path, "image"), description="Of the containers.", priority=1
        ),
    )


_STATUS = "dev.grange.v1alpha1.BatchJobExecution"
_BATCH = "io.k8s.api.batch.v1"
_TIME = {"type": "string", "format": "date-time"}
# Definitions of Kubernetes, but for one more field of the status.
DEFINITIONS: dict[str, Document] = {
    **job_schema.status_definitions(_STATUS),
    _STATUS: {"type": "object", "properties": job_schema.status_fields(_STATUS)},
    f"{_BATCH}.JobStatus": {
        "type": "object",
        "properties": {
            "active": schema_builder.whole("Pods that are pending or running."),
            "ready": schema_builder.whole("Pods that are ready."),
            "terminating": schema_builder.whole("Pods that are being deleted."),
            "succeeded": schema_builder.whole("Pods that succeeded."),
            "failed": schema_builder.whole("Pods that failed."),
            "completedIndexes": schema_builder.text("Indexes that are complete, like 0-3,7."),
            "failedIndexes": schema_builder.text("Indexes that are given up."),
            "startTime": {**_TIME, "description": "When it started, again after a resumption."},
            "completionTime": {**_TIME, "description": "When it succeeded."},
            "conditions": {
                "type": "array",
                "description": "Complete, Failed, Suspended, FailureTarget, SuccessCriteriaMet.",
                "items": {"$ref": f"#/definitions/{_BATCH}.JobCondition"},
                "x-kubernetes-list-type": "atomic",
                "x-kubernetes-patch-merge-key": "type",
                "x-kubernetes-patch-strategy": "merge",
            },
            "uncountedTerminatedPods": schema_builder.reference(
                f"{_BATCH}.UncountedTerminatedPods", "Written by other controllers; kept."
            ),
            "gangJob": schema_builder.reference(
                _STATUS, "The same for all kinds of jobs, with restarts and attempts."
            ),
        },
    },
}

JOB = KindInfo(
    group="batch",
    version="v1",
    kind="Job",
    plural="jobs",
    view=BatchJob,
    schema=f"{_BATCH}.Job",
    definitions=DEFINITIONS,
    categories=("all",),
    columns=(
        Column("Status", _state, description="How far it is."),
        Column("Completions", _completions, description="Pods that succeeded, of those wanted."),
        Column("Duration", _duration, description="How long it runs, or ran."),
        *template_columns("spec.template"),
        Column(
            "Selector",
            cells.labels("spec.selector.matchLabels"),
            description="How it finds its pods.",
            priority=1,
        ),
    ),
    fields={"status.successful": reader("status.succeeded", "0")},
    default=_default,
    validate=check_job,
    review=_review,
    name_rule=check_job_name,
)
