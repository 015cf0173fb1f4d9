"""PyTorchJob of kubeflow.org/v1 as the core sees it."""

from functools import partial

from grange.api import names
from grange.api.job_status import JobStatus
from grange.api.kinds.pytorchjob import PYTORCH, PYTORCHJOB, ElasticPolicy, PyTorchJob
from grange.api.meta import Document
from grange.api.scheme import KindInfo
from grange.api.validation import kubeflow_jobs
from grange.api.validation.kubeflow_jobs import WORKER
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
from grange.controllers.gangjob.model import (
    JobModel,
    JobRole,
    Rendezvous,
    ServiceMode,
    SuccessRule,
    Wiring,
)


class PyTorchJobAdapter:
    """Converts PyTorchJobs."""

    @property
    def kind(self) -> KindInfo[PyTorchJob]:
        """PyTorchJob."""
        return PYTORCHJOB

    @property
    def labels(self) -> JobLabels:
        """The labels of its pods."""
        return kubeflow.labels("pytorchjob-controller")

    def manages(self, job: PyTorchJob) -> bool:
        """Whether ``managedBy`` names our controller, or none."""
        return is_managed(job.spec.run_policy.managed_by, kubeflow.MANAGERS)

    def model(self, job: PyTorchJob) -> JobModel:
        """What is wanted.

        Raises:
            InvalidJob: the spec breaks a rule that the server did not check.
        """
        digests = check_spec(PYTORCHJOB, job, partial(kubeflow_jobs.fixed_parts, PYTORCH.rules))
        spec, elastic = job.spec, job.spec.elastic_policy
        roles = self._roles(job)
        # Workers of an elastic job end together: one that succeeded means that the work is done.
        any_worker = elastic is not None and not any(role.leader for role in roles)
        number = None if elastic is None else elastic.n_proc_per_node
        processes = spec.nproc_per_node or ("auto" if number is None else str(number))
        return JobModel(
            **common_fields(PYTORCHJOB.kind, job.metadata),
            **run_fields(spec.run_policy),
            roles=roles,
            framework="PyTorch",
            wiring=Wiring(
                processes_per_node=processes,
                rendezvous=None if elastic is None else _rendezvous(elastic),
            ),
            success=(SuccessRule(any_of=any_worker),),
            services=ServiceMode.POD,
            spec_digests=digests,
        )

    def _roles(self, job: PyTorchJob) -> tuple[JobRole, ...]:
        policy = job.spec.elastic_policy
        made = []
        for name, spec in kubeflow.spelled(PYTORCH, job.spec.pytorch_replica_specs).items():
            least = most = None
            if policy is not None and name == WORKER:
                least, most = policy.min_replicas, policy.max_replicas or spec.replicas
            made.append(kubeflow.role(PYTORCH, name, spec, least=least, most=most))
        return tuple(made)

    def status(self, job: PyTorchJob) -> JobStatus:
        """What was written last, with the selectors of the roles."""
        roles = kubeflow.spelled(PYTORCH, job.spec.pytorch_replica_specs)
        return with_selectors(job.status, self.labels, job.metadata.name, roles)

    def status_document(self, status: JobStatus) -> Document:
        """The status as PyTorchJob has it."""
        return document_of(status)

    def pod_name(self, model: JobModel, role: str, index: int) -> str:
        """The name of a pod."""
        return names.job_pod_name(model.name, role, index)


def _rendezvous(policy: ElasticPolicy) -> Rendezvous:
    return Rendezvous(
        backend=policy.rdzv_backend,
        host=policy.rdzv_host,
        port=policy.rdzv_port,
        identifier=policy.rdzv_id,
        options=tuple((item.key, item.value) for item in policy.rdzv_conf),
        standalone=policy.standalone,
        max_restarts=policy.max_restarts,
    )


PYTORCHJOB_ADAPTER = PyTorchJobAdapter()
