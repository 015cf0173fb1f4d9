"""PyTorchJob of kubeflow.org/v1: a distributed PyTorch job, of a fixed size or elastic."""

import msgspec

from grange.api import schema_builder
from grange.api.kinds import kubeflow
from grange.api.kinds.kubeflow import KubeflowFramework, KubeflowJob, KubeflowRole
from grange.api.kinds.run_policy import RunPolicy
from grange.api.meta import Document, View
from grange.api.status import Cause
from grange.api.validation import kubeflow_jobs
from grange.api.validation.causes import Faults
from grange.api.validation.kubeflow_jobs import KubeflowRules

RENDEZVOUS_BACKENDS = ("c10d", "etcd", "etcd-v2")
PYTORCH = KubeflowFramework(
    rules=KubeflowRules(
        field="pytorchReplicaSpecs",
        roles=("Master", "Worker"),
        leaders=("Master",),
        single=(),
        container="pytorch",
    ),
    port_name="pytorchjob-port",
    port=23456,
    restart_policy="OnFailure",
)


class RendezvousOption(View, frozen=True):
    """One option of the rendezvous backend."""

    key: str = ""
    value: str = ""


class ElasticPolicy(View, frozen=True):
    """How torchrun lets workers come and go.

    Attributes:
        min_replicas: workers that are enough to go on.
        max_replicas: workers that there may be.
        rdzv_backend: where they meet.
        rdzv_port: of the endpoint; None: the port of the container.
        rdzv_host: of the endpoint; empty: the first worker.
        rdzv_id: of the rendezvous; empty: the job's name.
        rdzv_conf: further options of the backend.
        standalone: the endpoint is local.
        n_proc_per_node: processes of a pod; the earlier place of ``nprocPerNode``.
        max_restarts: of all workers, by torchrun itself.
    """

    min_replicas: int | None = None
    max_replicas: int | None = None
    rdzv_backend: str = "c10d"
    rdzv_port: int | None = None
    rdzv_host: str = ""
    rdzv_id: str = ""
    rdzv_conf: tuple[RendezvousOption, ...] = ()
    standalone: bool = False
    n_proc_per_node: int | None = None
    max_restarts: int | None = None


class PyTorchJobSpec(View, frozen=True):
    """The desired state.

    Attributes:
        run_policy: when it begins and ends.
        elastic_policy: how workers come and go; None: their number is fixed.
        pytorch_replica_specs: the pods by type.
        nproc_per_node: processes of a pod: a number, ``auto``, ``cpu`` or ``gpu``.
    """

    run_policy: RunPolicy = msgspec.field(default_factory=RunPolicy)
    elastic_policy: ElasticPolicy | None = None
    pytorch_replica_specs: dict[str, KubeflowRole] = msgspec.field(default_factory=dict)
    nproc_per_node: str = ""


class PyTorchJob(KubeflowJob, frozen=True):
    """A PyTorch job."""

    spec: PyTorchJobSpec = msgspec.field(default_factory=PyTorchJobSpec)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    kubeflow_jobs.check(PYTORCH.rules, document, old, faults)
    kubeflow_jobs.check_elastic(document, PYTORCH.rules.path, faults)
    return faults.causes


_NAME = "org.kubeflow.v1.PyTorchJob"
_ELASTIC: dict[str, Document] = {
    "minReplicas": schema_builder.whole("Workers that are enough to go on."),
    "maxReplicas": schema_builder.whole("Workers that there may be."),
    "rdzvBackend": schema_builder.text("Where they meet.", enum=list(RENDEZVOUS_BACKENDS)),
    "rdzvPort": schema_builder.whole("Port of the endpoint; that of the container by default."),
    "rdzvHost": schema_builder.text("Host of the endpoint; the first worker by default."),
    "rdzvId": schema_builder.text("Identifier of the rendezvous; the job's name by default."),
    "rdzvConf": schema_builder.several(
        {"$ref": f"#/definitions/{_NAME}RendezvousOption"},
        "Further options of the backend.",
        **{"x-kubernetes-list-type": "atomic"},
    ),
    "standalone": schema_builder.flag("The endpoint is local; for jobs of one pod."),
    "nProcPerNode": schema_builder.whole("Processes of a pod; use spec.nprocPerNode instead."),
    "maxRestarts": schema_builder.whole("Restarts of all workers by torchrun itself."),
    "metrics": schema_builder.several(
        {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "Metrics of an autoscaler; without effect, make a HorizontalPodAutoscaler instead.",
        **{"x-kubernetes-list-type": "atomic"},
    ),
}
PYTORCHJOB = kubeflow.kind_info(
    "PyTorchJob",
    "pytorchjobs",
    PyTorchJob,
    {
        f"{_NAME}RendezvousOption": {
            "type": "object",
            "properties": {
                "key": schema_builder.text("Name of the option."),
                "value": schema_builder.text("Its value."),
            },
        },
        f"{_NAME}ElasticPolicy": {"type": "object", "properties": _ELASTIC},
        **kubeflow.definitions(
            _NAME,
            "A distributed PyTorch job.",
            PYTORCH,
            {
                "elasticPolicy": schema_builder.reference(
                    f"{_NAME}ElasticPolicy",
                    "How workers come and go; their number is fixed without.",
                ),
                "nprocPerNode": schema_builder.text(
                    "Processes of a pod: a number, auto, cpu or gpu; auto by default."
                ),
            },
        ),
    },
    PYTORCH,
    _validate,
)
