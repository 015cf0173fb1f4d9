"""GangJob of grange.dev: pods in several roles that start together and end as one job."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import msgspec

from grange.api import names, template_warnings
from grange.api.fields import lookup
from grange.api.job_status import JobStatus
from grange.api.kinds.gangjob_schema import DEFINITIONS, NAME
from grange.api.kinds.run_policy import RunPolicy
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo, Scaling
from grange.api.validation.gangjobs import ROLES, check, is_elastic

_ROLE_TO_SCALE = "worker"


class GangJobDependency(View, frozen=True):
    """A role that has to be ``Ready`` or ``Complete`` before another one begins."""

    role: str
    condition: str = "Ready"


class GangJobRole(View, frozen=True):
    """One kind of member.

    Attributes:
        replicas: how many.
        min_replicas: it goes on with so many; set for elastic roles.
        max_replicas: it may be scaled to so many; set for elastic roles.
        min_available: of the gang's quorum; None: ``min_replicas`` or all.
        restart_policy: what happens to a pod that fails and matches no rule.
        leader: whether its outcome is the job's.
        completes: false for servers, which do not end by themselves.
        depends_on: what has to be reached before its pods are created.
        backoff_limit_per_index: charged restarts of one index before it is given up.
        max_failed_indexes: so many may be given up before the job fails.
        template: the pod to copy: metadata and spec, as a full document.
    """

    replicas: int = 1
    min_replicas: int | None = None
    max_replicas: int | None = None
    min_available: int | None = None
    restart_policy: str = "OnFailure"
    leader: bool = False
    completes: bool = True
    depends_on: tuple[GangJobDependency, ...] = ()
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    template: Document = msgspec.field(default_factory=dict)


class GangJobSuccessPolicy(View, frozen=True):
    """When the job has succeeded: ``All`` or ``Any`` of the targeted indexes, or a number of them."""

    operator: str = "All"
    roles: tuple[str, ...] = ()
    indexes: str = ""
    count: int | None = None


class GangJobExitCodes(View, frozen=True):
    """Exit codes that a rule is about: ``In`` or ``NotIn`` the values."""

    container_name: str = ""
    operator: str = "In"
    values: tuple[int, ...] = ()


class GangJobPodCondition(View, frozen=True):
    """A condition of a pod that a rule is about."""

    type: str
    status: str = "True"


class GangJobFailureRule(View, frozen=True):
    """What to do with failures of some sort; every part that is given has to match."""

    action: str
    name: str = ""
    roles: tuple[str, ...] = ()
    on_reasons: tuple[str, ...] = ()
    on_exit_codes: GangJobExitCodes | None = None
    on_pod_conditions: tuple[GangJobPodCondition, ...] = ()


class GangJobFailurePolicy(View, frozen=True):
    """What follows from failures of pods.

    Attributes:
        max_restarts: of the whole job before it fails; None: no limit.
        restart_strategy: ``BlockingRecreate`` creates no pod before all old ones are gone.
        rules: in order; the first that matches decides.
    """

    max_restarts: int | None = None
    restart_strategy: str = "Recreate"
    rules: tuple[GangJobFailureRule, ...] = ()


class GangJobSpec(View, frozen=True):
    """The desired state."""

    framework: str = "Generic"
    replica_specs: dict[str, GangJobRole] = msgspec.field(default_factory=dict)
    run_policy: RunPolicy = msgspec.field(default_factory=RunPolicy)
    success_policy: GangJobSuccessPolicy | None = None
    failure_policy: GangJobFailurePolicy | None = None


class GangJob(Resource, frozen=True):
    """A job of several roles."""

    spec: GangJobSpec = msgspec.field(default_factory=GangJobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


def _review(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    before = lookup(old, ROLES) or {} if old else {}
    return template_warnings.warnings(ROLES, document["spec"]["replicaSpecs"], before)


def _scaled_role(document: Document) -> str:
    """The role that ``scale`` is about: the only elastic one, else ``worker``, else the first."""
    roles: Document = lookup(document, ROLES) or {}
    elastic = [name for name, role in roles.items() if isinstance(role, dict) and is_elastic(role)]
    if len(elastic) == 1:
        return elastic[0]
    return _ROLE_TO_SCALE if _ROLE_TO_SCALE in roles else next(iter(roles), _ROLE_TO_SCALE)


def _scaling(role: str, choose: Callable[[Document], Scaling] | None = None) -> Scaling:
    selector = f"status.replicaStatuses.{role}.selector"
    return Scaling(
        replicas=f"{ROLES}.{role}.replicas",
        current=f"status.replicaStatuses.{role}.active",
        selector=lambda document: lookup(document, selector) or "",
        selector_path=selector,
        choose=choose,
    )


def _ready(document: Document, now: float) -> cells.Cell:
    wanted = sum(role_sizes(lookup(document, ROLES)))
    statuses = lookup(document, "status.replicaStatuses")
    ready = [item.get("ready") for item in _values(statuses)]
    return f"{sum(number for number in ready if isinstance(number, int))}/{wanted}"


def role_sizes(roles: Any) -> Iterable[int]:
    """How many pods the roles of a document want; tolerant of what is not there."""
    numbers = [role.get("replicas", 1) for role in _values(roles)]
    return [number for number in numbers if isinstance(number, int)]


def _values(holder: Any) -> list[Document]:
    found = holder.values() if isinstance(holder, dict) else ()
    return [item for item in found if isinstance(item, dict)]


GANGJOB = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="GangJob",
    plural="gangjobs",
    view=GangJob,
    schema=NAME,
    definitions=DEFINITIONS,
    short_names=("gj",),
    categories=("all", "grange"),
    columns=(
        Column("Phase", cells.text("status.phase", "Pending"), description="How far it is."),
        Column("Ready", _ready, description="Pods that are ready, of all that are wanted."),
        Column(
            "Restarts",
            cells.integer("status.restarts"),
            type="integer",
            description="Restarts that are charged.",
        ),
        Column("Queue", cells.text("status.queue"), description="Whose quota it uses.", priority=1),
        Column(
            "Framework",
            cells.text("spec.framework", "Generic"),
            description="How its pods find each other.",
            priority=1,
        ),
        Column(
            "Message",
            cells.text("status.progress.message"),
            description="What a pod last reported.",
            priority=1,
        ),
    ),
    scale=_scaling(_ROLE_TO_SCALE, lambda document: _scaling(_scaled_role(document))),
    validate=check,
    review=_review,
    name_rule=names.check_dns_1035_label,
)
