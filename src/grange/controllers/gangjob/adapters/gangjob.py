"""GangJob of grange.dev as the core sees it."""

from collections.abc import Mapping

from grange.api import index_ranges, names
from grange.api.job_status import JobStatus
from grange.api.kinds.gangjob import (
    GANGJOB,
    GangJob,
    GangJobFailurePolicy,
    GangJobFailureRule,
    GangJobRole,
    GangJobSuccessPolicy,
)
from grange.api.meta import Document
from grange.api.scheme import KindInfo
from grange.api.validation import gangjobs
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.adapters.conversion import (
    check_spec,
    common_fields,
    document_of,
    is_managed,
    run_fields,
    with_selectors,
)
from grange.controllers.gangjob.model import (
    Await,
    ExitCodeMatch,
    FailureAction,
    FailureRule,
    JobModel,
    JobRole,
    RestartPolicy,
    RoleDependency,
    SuccessRule,
)


class GangJobAdapter:
    """Converts GangJobs."""

    @property
    def kind(self) -> KindInfo[GangJob]:
        """GangJob."""
        return GANGJOB

    @property
    def labels(self) -> JobLabels:
        """The labels of its pods."""
        return JobLabels(
            operator=("grange.dev/job-operator", "gangjob"),
            job="grange.dev/job-name",
            role="grange.dev/replica-type",
            index="grange.dev/replica-index",
        )

    def manages(self, job: GangJob) -> bool:
        """Whether ``managedBy`` names our controller, or none."""
        return is_managed(job.spec.run_policy.managed_by)

    def model(self, job: GangJob) -> JobModel:
        """What is wanted.

        Raises:
            InvalidJob: the spec breaks a rule that the server did not check.
        """
        digests = check_spec(GANGJOB, job, gangjobs.fixed_parts)
        spec = job.spec
        failure = spec.failure_policy or GangJobFailurePolicy()
        # A limit of restarts without a rule asks for restarts of the job.
        default = (
            FailureAction.FAIL_JOB if failure.max_restarts is None else FailureAction.RESTART_JOB
        )
        return JobModel(
            **common_fields(GANGJOB.kind, job.metadata),
            **run_fields(spec.run_policy),
            roles=_roles(spec.replica_specs),
            framework=spec.framework,
            failure_rules=tuple(_failure_rule(rule) for rule in failure.rules),
            max_restarts=failure.max_restarts,
            blocking_restart=failure.restart_strategy == "BlockingRecreate",
            default_action=default,
            success=(_success_rule(spec.success_policy),),
            spec_digests=digests,
        )

    def status(self, job: GangJob) -> JobStatus:
        """What was written last, with the selectors of the roles."""
        return with_selectors(job.status, self.labels, job.metadata.name, job.spec.replica_specs)

    def status_document(self, status: JobStatus) -> Document:
        """The status as GangJob has it."""
        return document_of(status)

    def pod_name(self, model: JobModel, role: str, index: int) -> str:
        """The name of a pod."""
        return names.job_pod_name(model.name, role, index)


def _roles(specs: Mapping[str, GangJobRole]) -> tuple[JobRole, ...]:
    """The roles so that none comes before one that it waits for, else in the order of the document."""
    ordered: dict[str, JobRole] = {}
    waiting = dict(specs)
    while waiting:
        for name, role in waiting.items():
            if all(item.role in ordered for item in role.depends_on):
                ordered[name] = _role(name, role)
                break
        else:  # a cycle, which the rules refuse
            name = next(iter(waiting))
            ordered[name] = _role(name, waiting[name])
        del waiting[name]
    return tuple(ordered.values())


def _role(name: str, role: GangJobRole) -> JobRole:
    elastic = role.min_replicas is not None or role.max_replicas is not None
    return JobRole(
        name=name,
        replicas=role.replicas,
        template=role.template,
        restart_policy=RestartPolicy(role.restart_policy),
        min_replicas=role.min_replicas,
        max_replicas=(role.max_replicas or role.replicas) if elastic else None,
        min_available=role.min_available,
        depends_on=tuple(
            RoleDependency(item.role, Await(item.condition)) for item in role.depends_on
        ),
        leader=role.leader,
        completes=role.completes,
        backoff_limit_per_index=role.backoff_limit_per_index,
        max_failed_indexes=role.max_failed_indexes,
    )


def _failure_rule(rule: GangJobFailureRule) -> FailureRule:
    codes = rule.on_exit_codes
    return FailureRule(
        action=FailureAction(rule.action),
        name=rule.name,
        roles=frozenset(rule.roles),
        exit_codes=None
        if codes is None
        else ExitCodeMatch(
            frozenset(codes.values),
            negated=codes.operator == "NotIn",
            container=codes.container_name,
        ),
        reasons=frozenset(rule.on_reasons),
        pod_conditions=tuple((item.type, item.status) for item in rule.on_pod_conditions),
    )


def _success_rule(policy: GangJobSuccessPolicy | None) -> SuccessRule:
    if policy is None:
        return SuccessRule()
    return SuccessRule(
        any_of=policy.operator == "Any",
        roles=frozenset(policy.roles),
        indexes=index_ranges.parse(policy.indexes) if policy.indexes else None,
        count=policy.count,
    )


GANGJOB_ADAPTER = GangJobAdapter()
