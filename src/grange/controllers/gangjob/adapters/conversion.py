"""What the adapters have in common: rules, run policy, selectors and the status as a document."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypedDict, TypeVar

import msgspec
from msgspec.structs import replace

from grange.api import codec, minimum_attempts, names
from grange.api.job_status import JobStatus, RoleStatus
from grange.api.kinds.run_policy import JobScheduling, RunPolicy
from grange.api.meta import Document, ObjectMeta, Resource, View
from grange.api.scheme import KindInfo
from grange.api.validation.run_policies import MANAGER
from grange.base.bounded import BoundedDict
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.job_names import gen_labels
from grange.controllers.gangjob.model import CleanPodPolicy, GangBackend, SchedulingPolicy

R = TypeVar("R", bound=Resource)
Digests = Mapping[str, str]
_SHOWN = 3
_REMEMBERED = 4_096
# Of specs that broke no rule, by UID and generation: a job is converted in each of its reconciles.
_checked: BoundedDict[tuple[str, int], Digests] = BoundedDict(_REMEMBERED)


class CommonFields(TypedDict):
    """The arguments of ``JobModel`` that are the same for all kinds."""

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    deleting: bool
    minimum_attempts: dict[str, int]


def _no_parts(document: Document) -> dict[str, Any]:
    return {}


def check_spec(
    kind: KindInfo[R], job: R, fixed_parts: Callable[[Document], Mapping[str, Any]] = _no_parts
) -> Digests:
    """Check the rules of the kind, which a server that has only its schema did not check.

    Args:
        kind: of the job.
        job: to check.
        fixed_parts: the parts of the spec that may not change while the job runs, by their paths.

    Returns:
        A digest of each of these parts; none where the server does not count generations.

    Raises:
        InvalidJob: the spec breaks some; the message names their fields.
    """
    meta = job.metadata
    version = (meta.uid, meta.generation)
    if (known := _checked.get(version)) is not None:
        return known
    document: Document = {
        "metadata": codec.to_document(meta),
        "spec": codec.to_document(getattr(job, "spec")),  # noqa: B009  every kind of job has one
    }
    kind.default(document)
    causes = kind.validate(document, None)
    if not causes:
        if not meta.generation:  # counted by the server: without it changes would not be seen
            return {}
        digests = {path: _digest(part) for path, part in fixed_parts(document).items()}
        _checked[version] = digests
        return digests
    listed = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:_SHOWN])
    more = f"; and {len(causes) - _SHOWN} more" if len(causes) > _SHOWN else ""
    raise InvalidJob(f"{listed}{more}")


def _digest(part: Any) -> str:
    return names.digest(msgspec.json.encode(part, order="sorted").decode())


def common_fields(kind: str, meta: ObjectMeta) -> CommonFields:
    """Who the job is."""
    return {
        "kind": kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "generation": meta.generation,
        "deleting": meta.deletion_timestamp is not None,
        "minimum_attempts": minimum_attempts.parse(
            meta.annotations.get(minimum_attempts.ANNOTATION, "")
        ),
    }


class RunFields(TypedDict):
    """The arguments of ``JobModel`` that a run policy gives."""

    clean_pod_policy: CleanPodPolicy
    ttl_s: int | None
    active_deadline_s: int | None
    backoff_limit: int | None
    suspend: bool
    scheduling: SchedulingPolicy


def run_fields(policy: RunPolicy) -> RunFields:
    """What a run policy means."""
    return {
        "clean_pod_policy": CleanPodPolicy(policy.clean_pod_policy),
        "ttl_s": policy.ttl_seconds_after_finished,
        "active_deadline_s": policy.active_deadline_seconds,
        "backoff_limit": policy.backoff_limit,
        "suspend": policy.suspend,
        "scheduling": _scheduling(policy.scheduling_policy),
    }


def is_managed(manager: str | None, managers: Iterable[str] = ()) -> bool:
    """Whether our controller acts on the job; an empty name is no controller.

    Args:
        manager: ``managedBy`` of the job.
        managers: its values in addition to our own, for which we stand in.
    """
    return manager is None or manager in (MANAGER, *managers)


def _scheduling(policy: JobScheduling) -> SchedulingPolicy:
    topology = policy.topology
    return SchedulingPolicy(
        backend=GangBackend(policy.backend),
        min_available=policy.min_available,
        min_resources=policy.min_resources,
        queue=policy.queue,
        priority_class=policy.priority_class,
        timeout_s=policy.schedule_timeout_seconds,
        topology_key="" if topology is None else topology.key,
        topology_required=topology is None or topology.mode == "Required",
    )


def with_selectors(
    status: JobStatus, labels: JobLabels, job: str, roles: Iterable[str]
) -> JobStatus:
    """The status with the label selector of each role, which autoscalers read.

    Args:
        status: what was written last.
        labels: of the kind's pods.
        job: name of the job.
        roles: the job's roles.
    """
    found: dict[str, RoleStatus] = dict(status.replica_statuses)
    for role in roles:
        pairs = {**gen_labels(labels, job), labels.role: role.lower()}
        selector = ",".join(f"{key}={value}" for key, value in sorted(pairs.items()))
        found[role] = replace(found.get(role, RoleStatus()), selector=selector)
    return replace(status, replica_statuses=found)


def document_of(status: View) -> Document:
    """The status as it is written."""
    return codec.to_document(status)
