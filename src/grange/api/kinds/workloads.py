"""Workload controllers of Kubernetes that this server does not serve.

Clusters have them, and kube-scheduler spreads their pods by what they select. Nothing else of them
is read.
"""

import msgspec

from grange.api.meta import LabelSelector, Resource, View
from grange.api.scheme import KindInfo


class WorkloadSpec(View, frozen=True):
    """Which pods the controller manages."""

    selector: LabelSelector | None = None


class Workload(Resource, frozen=True):
    """A ReplicaSet or StatefulSet."""

    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class CoreReplicationControllerSpec(View, frozen=True):
    """Which pods the controller manages: those with all of these labels."""

    selector: dict[str, str] = msgspec.field(default_factory=dict)


class CoreReplicationController(Resource, frozen=True):
    """A ReplicationController of the core group; not ours."""

    spec: CoreReplicationControllerSpec = msgspec.field(
        default_factory=CoreReplicationControllerSpec
    )


REPLICASET = KindInfo(
    group="apps",
    version="v1",
    kind="ReplicaSet",
    plural="replicasets",
    view=Workload,
    schema="io.k8s.api.apps.v1.ReplicaSet",
)
STATEFULSET = KindInfo(
    group="apps",
    version="v1",
    kind="StatefulSet",
    plural="statefulsets",
    view=Workload,
    schema="io.k8s.api.apps.v1.StatefulSet",
)
CORE_REPLICATIONCONTROLLER = KindInfo(
    group="",
    version="v1",
    kind="ReplicationController",
    plural="replicationcontrollers",
    view=CoreReplicationController,
    schema="io.k8s.api.core.v1.ReplicationController",
)
