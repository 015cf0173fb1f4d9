"""GangJob of grange.dev."""

import msgspec

from grange.api import index_ranges
from grange.api.job_status import JobStatus
from grange.api.kinds import GANGJOB
from grange.api.kinds.gangjob import GangJob, GangJobFailureRule, GangJobRole
from grange.api.kinds.run_policy import JobScheduling
from grange.api.meta import Document
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.job_names import gen_general_name
from grange.controllers.gangjob.model import (
    Await,
    CleanPodPolicy,
    ExitCodeMatch,
    FailureAction,
    FailureRule,
    GangBackend,
    JobModel,
    JobRole,
    RestartPolicy,
    RoleDependency,
    SchedulingPolicy,
    SuccessRule,
)

MANAGER = "grange.dev/gangjob-controller"
"""Value of ``spec.runPolicy.managedBy`` for this controller; absent means the same."""


class GangJobAdapter:
    """Converts GangJobs."""

    kind = GANGJOB
    labels = JobLabels(
        operator=("grange.dev/job-operator", "gangjob"),
        job="grange.dev/job-name",
        role="grange.dev/replica-type",
        index="grange.dev/replica-index",
    )

    def model(self, job: GangJob) -> JobModel:
        """What is wanted."""
        meta, spec, policy = job.metadata, job.spec, job.spec.run_policy
        failure = spec.failure_policy
        success = spec.success_policy
        return JobModel(
            kind=GANGJOB.kind,
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
            generation=meta.generation or 0,
            roles=tuple(_role(name, role) for name, role in spec.replica_specs.items()),
            framework=spec.framework,
            clean_pod_policy=CleanPodPolicy(policy.clean_pod_policy),
            ttl_s=policy.ttl_seconds_after_finished,
            active_deadline_s=policy.active_deadline_seconds,
            backoff_limit=policy.backoff_limit,
            suspend=policy.suspend,
            managed=policy.managed_by in {None, MANAGER},
            failure_rules=tuple(map(_rule, failure.rules)) if failure else (),
            max_restarts=failure.max_restarts if failure else None,
            blocking_restart=bool(failure and failure.restart_strategy == "BlockingRecreate"),
            success=(
                SuccessRule(
                    any_of=success.operator == "Any",
                    roles=frozenset(success.roles),
                    indexes=index_ranges.parse(success.indexes) if success.indexes else None,
                    count=success.count,
                )
                if success
                else SuccessRule(),
            ),
            scheduling=_scheduling(policy.scheduling_policy),
            deleting=bool(meta.deletion_timestamp),
        )

    def status(self, job: GangJob) -> JobStatus:
        """What was written last."""
        return job.status

    def status_document(self, status: JobStatus) -> Document:
        """The status in the shape of the kind."""
        document: Document = msgspec.to_builtins(status)
        return document

    def pod_name(self, model: JobModel, role: str, index: int) -> str:
        """The name of a pod."""
        return gen_general_name(model.name, role, index)


def _role(name: str, role: GangJobRole) -> JobRole:
    return JobRole(
        name=name,
        replicas=role.replicas,
        template=role.template,
        restart_policy=RestartPolicy(role.restart_policy),
        min_replicas=role.min_replicas,
        max_replicas=role.max_replicas,
        min_available=role.min_available,
        depends_on=tuple(
            RoleDependency(item.role, Await(item.condition)) for item in role.depends_on
        ),
        leader=role.leader,
        completes=role.completes,
        backoff_limit_per_index=role.backoff_limit_per_index,
        max_failed_indexes=role.max_failed_indexes,
    )


def _rule(rule: GangJobFailureRule) -> FailureRule:
    codes = rule.on_exit_codes
    return FailureRule(
        action=FailureAction(rule.action),
        name=rule.name,
        roles=frozenset(rule.roles),
        exit_codes=ExitCodeMatch(
            frozenset(codes.values), codes.operator == "NotIn", codes.container_name
        )
        if codes
        else None,
        reasons=frozenset(rule.on_reasons),
        pod_conditions=tuple((item.type, item.status) for item in rule.on_pod_conditions),
    )


def _scheduling(policy: JobScheduling) -> SchedulingPolicy:
    topology = policy.topology
    return SchedulingPolicy(
        backend=GangBackend(policy.backend),
        min_available=policy.min_available,
        min_resources=policy.min_resources,
        queue=policy.queue,
        priority_class=policy.priority_class,
        timeout_s=policy.schedule_timeout_seconds,
        topology_key=topology.key if topology else "",
        topology_required=topology is None or topology.mode == "Required",
    )


GANGJOB_ADAPTER = GangJobAdapter()
