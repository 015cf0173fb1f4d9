# Generated from the table in __init__.py by `make update`.
from grange.api.kinds.auditrecord import (
    AUDITRECORD as AUDITRECORD,
    AuditRecord as AuditRecord,
    AuditSpec as AuditSpec,
)
from grange.api.kinds.batchjob import (
    BatchJob as BatchJob,
    JOB as JOB,
)
from grange.api.kinds.configmap import (
    CONFIGMAP as CONFIGMAP,
    ConfigMap as ConfigMap,
)
from grange.api.kinds.cronjob import (
    CRONJOB as CRONJOB,
    CronJob as CronJob,
)
from grange.api.kinds.gangjob import (
    GANGJOB as GANGJOB,
    GangJob as GangJob,
    GangJobSpec as GangJobSpec,
)
from grange.api.kinds.leasepolicy import (
    LEASEPOLICY as LEASEPOLICY,
    LeasePolicy as LeasePolicy,
    LeasePolicySpec as LeasePolicySpec,
)
from grange.api.kinds.machine import (
    MACHINE as MACHINE,
    Machine as Machine,
    MachineSpec as MachineSpec,
)
from grange.api.kinds.machinelease import (
    MACHINELEASE as MACHINELEASE,
    MachineLease as MachineLease,
    MachineLeaseSpec as MachineLeaseSpec,
)
from grange.api.kinds.node import (
    NODE as NODE,
    Node as Node,
)
from grange.api.kinds.nodepool import (
    NODEPOOL as NODEPOOL,
    NodePool as NodePool,
    NodePoolSpec as NodePoolSpec,
)
from grange.api.kinds.pod import (
    Container as Container,
    POD as POD,
    Pod as Pod,
    PodSpec as PodSpec,
)
from grange.api.kinds.podgroup import (
    PODGROUP as PODGROUP,
    PodGroup as PodGroup,
)
from grange.api.kinds.pytorchjob import (
    PYTORCHJOB as PYTORCHJOB,
    PyTorchJob as PyTorchJob,
)
from grange.api.kinds.queue import (
    QUEUE as QUEUE,
    Queue as Queue,
    QueueSpec as QueueSpec,
)
from grange.api.kinds.replicationcontroller import (
    REPLICATIONCONTROLLER as REPLICATIONCONTROLLER,
    ReplicationController as ReplicationController,
    ReplicationControllerSpec as ReplicationControllerSpec,
)
from grange.api.kinds.rollingupdate import (
    ROLLINGUPDATE as ROLLINGUPDATE,
    RollingUpdate as RollingUpdate,
    RollingUpdateSpec as RollingUpdateSpec,
)
from grange.api.kinds.secret import (
    SECRET as SECRET,
    Secret as Secret,
)
from grange.api.kinds.service import (
    SERVICE as SERVICE,
    Service as Service,
)
from grange.api.kinds.testsession import (
    TESTSESSION as TESTSESSION,
    TestSession as TestSession,
    TestSessionSpec as TestSessionSpec,
)
from grange.api.kinds.tfjob import (
    TFJOB as TFJOB,
    TFJob as TFJob,
)
from grange.api.meta import (
    Condition as Condition,
    ObjectKey as ObjectKey,
    ObjectMeta as ObjectMeta,
    Resource as Resource,
    View as View,
)
from grange.api.scheme import (
    KindInfo as KindInfo,
)
from grange.api.status import (
    AlreadyExists as AlreadyExists,
    ApiError as ApiError,
    Conflict as Conflict,
    Expired as Expired,
    Forbidden as Forbidden,
    Invalid as Invalid,
    NotFound as NotFound,
    ServiceUnavailable as ServiceUnavailable,
    Timeout as Timeout,
)
from grange.app.connect import (
    connect as connect,
    run_controllers as run_controllers,
)
from grange.base.errors import (
    GrangeError as GrangeError,
)
from grange.client.client import (
    Client as Client,
)
from grange.client.requests import (
    Listing as Listing,
)
from grange.client.watcher import (
    WatchEvent as WatchEvent,
)
from grange.reconcile.controller import (
    Controller as Controller,
    Done as Done,
    Requeue as Requeue,
    Result as Result,
    Terminal as Terminal,
)
from grange.reconcile.deps import (
    Deps as Deps,
)
from grange.testing.embedded import (
    Cluster as Cluster,
    cluster as cluster,
)

PUBLIC: dict[str, str]
__version__: str
__all__: list[str]
