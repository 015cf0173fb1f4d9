"""TFJob of kubeflow.org/v1: a distributed TensorFlow job."""

import msgspec

from grange.api import schema_builder
from grange.api.kinds import kubeflow
from grange.api.kinds.kubeflow import KubeflowFramework, KubeflowJob, KubeflowRole
from grange.api.kinds.run_policy import RunPolicy
from grange.api.meta import Document, View
from grange.api.status import Cause
from grange.api.validation import kubeflow_jobs
from grange.api.validation.kubeflow_jobs import KubeflowRules

ALL_WORKERS = "AllWorkers"
TENSORFLOW = KubeflowFramework(
    rules=KubeflowRules(
        field="tfReplicaSpecs",
        roles=("PS", "Chief", "Master", "Worker", "Evaluator"),
        leaders=("Chief", "Master"),
        single=("Evaluator",),
        container="tensorflow",
    ),
    port_name="tfjob-port",
    port=2222,
    restart_policy="Never",
    servers=("PS",),
)


class TFJobSpec(View, frozen=True):
    """The desired state.

    Attributes:
        run_policy: when it begins and ends.
        success_policy: ``AllWorkers``, or empty: the first worker, where there is no chief.
        tf_replica_specs: the pods by type.
        enable_dynamic_worker: workers come and go, and their failures do not fail the job.
    """

    run_policy: RunPolicy = msgspec.field(default_factory=RunPolicy)
    success_policy: str = ""
    tf_replica_specs: dict[str, KubeflowRole] = msgspec.field(default_factory=dict)
    enable_dynamic_worker: bool = False


class TFJob(KubeflowJob, frozen=True):
    """A TensorFlow job."""

    spec: TFJobSpec = msgspec.field(default_factory=TFJobSpec)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    return kubeflow_jobs.causes(TENSORFLOW.rules, document, old)


_NAME = "org.kubeflow.v1.TFJob"
TFJOB = kubeflow.kind_info(
    "TFJob",
    "tfjobs",
    TFJob,
    kubeflow.definitions(
        _NAME,
        "A distributed TensorFlow job.",
        TENSORFLOW,
        {
            "successPolicy": schema_builder.text(
                "AllWorkers, or empty: the job has succeeded with its chief, or without one with "
                "its first worker.",
                enum=["", ALL_WORKERS],
            ),
            "enableDynamicWorker": schema_builder.flag(
                "Workers may come and go: each knows itself and the parameter servers."
            ),
        },
    ),
    TENSORFLOW,
    _validate,
)
