"""Job of batch/v1 as the core sees it: one role without a name."""

from msgspec.structs import replace

from grange.api import index_ranges, names
from grange.api.job_status import FAILED, SUCCEEDED, SUSPENDED, JobStatus, RoleStatus
from grange.api.kinds.batchjob import (
    COMPLETE,
    FAILURE_TARGET,
    JOB,
    SUCCESS_CRITERIA_MET,
    BatchJob,
    BatchJobSpec,
    BatchJobStatus,
    JobSuccessPolicy,
    PodFailurePolicy,
    PodFailureRule,
)
from grange.api.meta import Condition, Document
from grange.api.scheme import KindInfo
from grange.api.validation.batch_jobs import NAME_LABEL
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.adapters.conversion import (
    check_spec,
    common_fields,
    document_of,
    is_managed,
)
from grange.controllers.gangjob.job_reasons import JobReason
from grange.controllers.gangjob.model import (
    ExitCodeMatch,
    FailureAction,
    FailureRule,
    GangBackend,
    JobModel,
    JobRole,
    RestartPolicy,
    SchedulingPolicy,
    ServiceMode,
    SuccessRule,
)

ROLE = ""
_SHOWN_ROLE = "worker"  # how users name it where a role has to be named
INDEX = "batch.kubernetes.io/job-completion-index"
MANAGERS = ("kubernetes.io/job-controller",)
_ACTIONS = {
    "FailJob": FailureAction.FAIL_JOB,
    "FailIndex": FailureAction.FAIL_INDEX,
    "Ignore": FailureAction.IGNORE,
    "Count": FailureAction.RESTART_POD,
}
# What is true of a Job along with the condition that ends it: it is named before the pods are gone.
_ENDS = {SUCCEEDED: (SUCCESS_CRITERIA_MET, COMPLETE), FAILED: (FAILURE_TARGET, FAILED)}


class BatchJobAdapter:
    """Converts Jobs."""

    @property
    def kind(self) -> KindInfo[BatchJob]:
        """Job."""
        return JOB

    @property
    def labels(self) -> JobLabels:
        """The labels of its pods; the other ones of batch/v1 are in the template."""
        return JobLabels(
            operator=("grange.dev/job-operator", "job"),
            job=NAME_LABEL,
            role="",
            index=INDEX,
            leader="",
            index_annotation=INDEX,
        )

    def manages(self, job: BatchJob) -> bool:
        """Whether ``managedBy`` names our controller, or none."""
        return is_managed(job.spec.managed_by, MANAGERS)

    def model(self, job: BatchJob) -> JobModel:
        """What is wanted.

        Raises:
            InvalidJob: the spec breaks a rule that the server did not check.
        """
        check_spec(JOB, job)
        spec, fields = job.spec, common_fields(JOB.kind, job.metadata)
        asked = fields["minimum_attempts"].get(_SHOWN_ROLE, 0)
        fields["minimum_attempts"] = {ROLE: asked} if asked else {}
        return JobModel(
            **fields,
            roles=(_role(spec),),
            framework="",
            ttl_s=spec.ttl_seconds_after_finished,
            active_deadline_s=spec.active_deadline_seconds,
            backoff_limit=spec.backoff_limit,
            suspend=spec.suspend,
            failure_rules=_failure_rules(spec.pod_failure_policy),
            default_action=FailureAction.RESTART_POD,
            success=_success(spec),
            scheduling=SchedulingPolicy(backend=GangBackend.NONE),
            services=ServiceMode.NONE,
            counts_pending=True,
        )

    def status(self, job: BatchJob) -> JobStatus:
        """What was written last, or the values of the fields of batch/v1."""
        status = job.status
        if status.gang_job is not None:
            return status.gang_job
        named = {COMPLETE: SUCCEEDED, FAILED: FAILED, SUSPENDED: SUSPENDED}
        role = RoleStatus(
            active=status.active,
            ready=status.ready or 0,
            succeeded=status.succeeded,
            failed=status.failed,
            completed_indexes=status.completed_indexes,
            failed_indexes=status.failed_indexes or "",
        )
        return JobStatus(
            conditions=tuple(
                replace(item, type=named[item.type])
                for item in status.conditions
                if item.type in named
            ),
            start_time=status.start_time or "",
            completion_time=status.completion_time or "",
            replica_statuses={} if status == BatchJobStatus() else {ROLE: role},
        )

    def status_document(self, status: JobStatus) -> Document:
        """The status in the fields of batch/v1, and complete in one of ours."""
        role = status.replica_statuses.get(ROLE, RoleStatus())
        conditions = [made for item in status.conditions for made in _conditions(item)]
        succeeded = any(item.type == COMPLETE for item in conditions)
        return document_of(
            BatchJobStatus(
                active=role.active + role.pending,
                ready=role.ready,
                succeeded=role.succeeded,
                failed=role.failed,
                completed_indexes=role.completed_indexes,
                failed_indexes=role.failed_indexes or None,
                start_time=status.start_time or None,
                completion_time=(status.completion_time or None) if succeeded else None,
                conditions=tuple(conditions),
                gang_job=status,
            )
        )

    def pod_name(self, model: JobModel, role: str, index: int) -> str:
        """The name of a pod."""
        return names.job_pod_name(model.name, role, index)


def _role(spec: BatchJobSpec) -> JobRole:
    restart = (spec.template.get("spec") or {}).get("restartPolicy")
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    return JobRole(
        name=ROLE,
        replicas=parallelism if spec.completions is None else spec.completions,
        template=spec.template,
        restart_policy=RestartPolicy(restart),
        parallelism=parallelism,
        backoff_limit_per_index=spec.backoff_limit_per_index,
        max_failed_indexes=spec.max_failed_indexes,
    )


def _success(spec: BatchJobSpec) -> tuple[SuccessRule, ...]:
    """All completions; or what the policy lists; or one, of pods that share a queue."""
    if spec.completions is None and spec.parallelism is not None:
        return (SuccessRule(count=1, drain=True, reason=JobReason.COMPLETIONS),)
    policy = spec.success_policy or JobSuccessPolicy()
    rules = [
        SuccessRule(
            indexes=index_ranges.parse(rule.succeeded_indexes) if rule.succeeded_indexes else None,
            count=rule.succeeded_count,
            reason=JobReason.SUCCESS_POLICY,
        )
        for rule in policy.rules
    ]
    return (*rules, SuccessRule(reason=JobReason.COMPLETIONS))


def _failure_rules(policy: PodFailurePolicy | None) -> tuple[FailureRule, ...]:
    return () if policy is None else tuple(_failure_rule(rule) for rule in policy.rules)


def _failure_rule(rule: PodFailureRule) -> FailureRule:
    codes = rule.on_exit_codes
    return FailureRule(
        action=_ACTIONS[rule.action],
        exit_codes=None
        if codes is None
        else ExitCodeMatch(
            frozenset(codes.values),
            negated=codes.operator == "NotIn",
            container=codes.container_name,
        ),
        pod_conditions=tuple((item.type, item.status) for item in rule.on_pod_conditions),
    )


def _conditions(condition: Condition) -> list[Condition]:
    """The conditions of batch/v1 that one of ours stands for; none for those that it does not have."""
    if condition.type == SUSPENDED:
        return [condition]
    kinds = _ENDS.get(condition.type, ()) if condition.status == "True" else ()
    return [replace(condition, type=kind) for kind in kinds]


BATCHJOB_ADAPTER = BatchJobAdapter()
