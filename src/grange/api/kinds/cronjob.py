"""CronJob of batch/v1: Jobs that are created on a schedule."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from grange.api.fields import lookup
from grange.api.kinds.batchjob import review_template, template_columns
from grange.api.kinds.event import ObjectReference
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.validation.batch_jobs import check_cronjob, check_cronjob_name

_TEMPLATE = "spec.jobTemplate.spec.template"


class CronJobSpec(View, frozen=True):
    """The desired state.

    Attributes:
        schedule: five fields of cron, or a macro.
        time_zone: of the schedule; None: UTC.
        concurrency_policy: ``Allow``, ``Forbid`` or ``Replace`` Jobs that still run.
        suspend: whether no Jobs are created.
        starting_deadline_seconds: a Job that is later than that is left out; None: never.
        successful_jobs_history_limit: how many complete Jobs are kept.
        failed_jobs_history_limit: how many failed Jobs are kept.
        job_template: the Job to copy: metadata and spec, as a full document.
    """

    schedule: str = ""
    time_zone: str | None = None
    concurrency_policy: str = "Allow"
    suspend: bool = False
    starting_deadline_seconds: int | None = None
    successful_jobs_history_limit: int = 3
    failed_jobs_history_limit: int = 1
    job_template: Document = msgspec.field(default_factory=dict)


class CronJobStatus(View, frozen=True):
    """What is.

    Attributes:
        active: its Jobs that run.
        last_schedule_time: when a Job was last due and created.
        last_successful_time: when one last succeeded.
    """

    active: tuple[ObjectReference, ...] = ()
    last_schedule_time: str | None = None
    last_successful_time: str | None = None


class CronJob(Resource, frozen=True):
    """Jobs that are created by a schedule."""

    spec: CronJobSpec = msgspec.field(default_factory=CronJobSpec)
    status: CronJobStatus = msgspec.field(default_factory=CronJobStatus)


def _default(document: Document) -> None:
    spec = document.get("spec")
    if spec is None:
        return
    for field, value in (
        ("concurrencyPolicy", "Allow"),
        ("suspend", False),
        ("successfulJobsHistoryLimit", 3),
        ("failedJobsHistoryLimit", 1),
    ):
        if spec.get(field) is None:
            spec[field] = value


def _review(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    known = lookup(old, _TEMPLATE) if old else None
    return review_template(lookup(document, _TEMPLATE) or {}, known, _TEMPLATE)


def _suspended(document: Document, now: float) -> cells.Cell:
    return str(bool(lookup(document, "spec.suspend")))


def _last(document: Document, now: float) -> cells.Cell:
    instant = lookup(document, "status.lastScheduleTime")
    return cells.NONE if instant is None else cells.age_of(instant, now)


CRONJOB = KindInfo(
    group="batch",
    version="v1",
    kind="CronJob",
    plural="cronjobs",
    view=CronJob,
    schema="io.k8s.api.batch.v1.CronJob",
    short_names=("cj",),
    categories=("all",),
    columns=(
        Column("Schedule", cells.text("spec.schedule"), description="When Jobs are created."),
        Column("Timezone", cells.text("spec.timeZone"), description="Of the schedule."),
        Column("Suspend", _suspended, description="Whether no Jobs are created."),
        Column(
            "Active",
            cells.count("status.active"),
            type="integer",
            description="Jobs that run.",
        ),
        Column("Last Schedule", _last, description="How long ago a Job was created."),
        *template_columns(_TEMPLATE),
        Column(
            "Selector",
            cells.labels("spec.jobTemplate.spec.selector.matchLabels"),
            description="How a Job finds its pods.",
            priority=1,
        ),
    ),
    default=_default,
    validate=check_cronjob,
    review=_review,
    name_rule=check_cronjob_name,
)
