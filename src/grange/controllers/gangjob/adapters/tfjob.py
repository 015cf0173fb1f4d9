"""TFJob of kubeflow.org/v1 as the core sees it."""

from functools import partial

from grange.api import names
from grange.api.job_status import JobStatus
from grange.api.kinds.tfjob import ALL_WORKERS, TENSORFLOW, TFJOB, TFJob
from grange.api.meta import Document
from grange.api.scheme import KindInfo
from grange.api.validation import kubeflow_jobs
from grange.api.validation.kubeflow_jobs import WORKER
from grange.api.validation.role_templates import REPLICAS_MAX
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.adapters import kubeflow
from grange.controllers.gangjob.adapters.conversion import (
    check_spec,
    common_fields,
    document_of,
    is_managed,
    run_fields,
    with_selectors,
)
from grange.controllers.gangjob.model import JobModel, JobRole, ServiceMode, SuccessRule, Wiring

FIRST_WORKER = SuccessRule(roles=frozenset({WORKER}), indexes=frozenset({0}))
EVERY_WORKER = SuccessRule(roles=frozenset({WORKER}))


class TFJobAdapter:
    """Converts TFJobs."""

    @property
    def kind(self) -> KindInfo[TFJob]:
        """TFJob."""
        return TFJOB

    @property
    def labels(self) -> JobLabels:
        """The labels of its pods."""
        return kubeflow.labels("tfjob-controller")

    def manages(self, job: TFJob) -> bool:
        """Whether ``managedBy`` names our controller, or none."""
        return is_managed(job.spec.run_policy.managed_by, kubeflow.MANAGERS)

    def model(self, job: TFJob) -> JobModel:
        """What is wanted.

        Raises:
            InvalidJob: the spec breaks a rule that the server did not check.
        """
        digests = check_spec(TFJOB, job, partial(kubeflow_jobs.fixed_parts, TENSORFLOW.rules))
        spec = job.spec
        roles = self._roles(job)
        return JobModel(
            **common_fields(TFJOB.kind, job.metadata),
            **run_fields(spec.run_policy),
            roles=roles,
            framework="TensorFlow",
            wiring=Wiring(sparse=spec.enable_dynamic_worker),
            success=_success(roles, spec.success_policy),
            services=ServiceMode.POD,
            spec_digests=digests,
        )

    def _roles(self, job: TFJob) -> tuple[JobRole, ...]:
        made = []
        for name, spec in kubeflow.spelled(TENSORFLOW, job.spec.tf_replica_specs).items():
            dynamic = job.spec.enable_dynamic_worker and name == WORKER
            # The failure of a dynamic worker does not fail the job as long as one goes on.
            least, most = (1, REPLICAS_MAX) if dynamic else (None, None)
            made.append(kubeflow.role(TENSORFLOW, name, spec, least=least, most=most))
        return tuple(made)

    def status(self, job: TFJob) -> JobStatus:
        """What was written last, with the selectors of the roles."""
        roles = kubeflow.spelled(TENSORFLOW, job.spec.tf_replica_specs)
        return with_selectors(job.status, self.labels, job.metadata.name, roles)

    def status_document(self, status: JobStatus) -> Document:
        """The status as TFJob has it."""
        return document_of(status)

    def pod_name(self, model: JobModel, role: str, index: int) -> str:
        """The name of a pod."""
        return names.job_pod_name(model.name, role, index)


def _success(roles: tuple[JobRole, ...], policy: str) -> tuple[SuccessRule, ...]:
    """The chief's success, or without one that of the first worker or of all workers."""
    if any(role.leader and role.replicas for role in roles):
        return (SuccessRule(),)
    if not any(role.name == WORKER and role.replicas for role in roles):
        return (SuccessRule(),)
    return (EVERY_WORKER,) if policy == ALL_WORKERS else (FIRST_WORKER, EVERY_WORKER)


TFJOB_ADAPTER = TFJobAdapter()
