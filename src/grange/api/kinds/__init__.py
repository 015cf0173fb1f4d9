"""The built-in kinds: one module a kind, one line here."""

from grange.api.kinds.auditrecord import AUDITRECORD
from grange.api.kinds.batchjob import JOB
from grange.api.kinds.certificatesigningrequest import CERTIFICATESIGNINGREQUEST
from grange.api.kinds.clusterrole import CLUSTERROLE
from grange.api.kinds.clusterrolebinding import CLUSTERROLEBINDING
from grange.api.kinds.configmap import CONFIGMAP
from grange.api.kinds.cronjob import CRONJOB
from grange.api.kinds.endpoints import ENDPOINTS
from grange.api.kinds.endpointslice import ENDPOINTSLICE
from grange.api.kinds.event import EVENT
from grange.api.kinds.gangjob import GANGJOB
from grange.api.kinds.lease import LEASE
from grange.api.kinds.leasepolicy import LEASEPOLICY
from grange.api.kinds.machine import MACHINE
from grange.api.kinds.machinelease import MACHINELEASE
from grange.api.kinds.namespace import NAMESPACE
from grange.api.kinds.node import NODE
from grange.api.kinds.nodepool import NODEPOOL
from grange.api.kinds.pod import POD
from grange.api.kinds.poddisruptionbudget import PODDISRUPTIONBUDGET
from grange.api.kinds.podgroup import PODGROUP
from grange.api.kinds.priorityclass import PRIORITYCLASS
from grange.api.kinds.pytorchjob import PYTORCHJOB
from grange.api.kinds.queue import QUEUE
from grange.api.kinds.replicationcontroller import REPLICATIONCONTROLLER
from grange.api.kinds.role import ROLE
from grange.api.kinds.rolebinding import ROLEBINDING
from grange.api.kinds.rollingupdate import ROLLINGUPDATE
from grange.api.kinds.secret import SECRET
from grange.api.kinds.service import SERVICE
from grange.api.kinds.serviceaccount import SERVICEACCOUNT
from grange.api.kinds.testsession import TESTSESSION
from grange.api.kinds.tfjob import TFJOB
from grange.api.scheme import AnyKind

BUILT_IN: tuple[AnyKind, ...] = (
    CONFIGMAP,
    ENDPOINTS,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    SERVICEACCOUNT,
    JOB,
    CRONJOB,
    LEASE,
    CERTIFICATESIGNINGREQUEST,
    ENDPOINTSLICE,
    REPLICATIONCONTROLLER,
    PODDISRUPTIONBUDGET,
    PODGROUP,
    PRIORITYCLASS,
    ROLE,
    ROLEBINDING,
    CLUSTERROLE,
    CLUSTERROLEBINDING,
    QUEUE,
    ROLLINGUPDATE,
    AUDITRECORD,
    GANGJOB,
    TFJOB,
    PYTORCHJOB,
    MACHINELEASE,
    LEASEPOLICY,
    TESTSESSION,
    NODEPOOL,
    MACHINE,
)

__all__ = [
    "AUDITRECORD",
    "BUILT_IN",
    "CERTIFICATESIGNINGREQUEST",
    "CLUSTERROLE",
    "CLUSTERROLEBINDING",
    "CONFIGMAP",
    "CRONJOB",
    "ENDPOINTS",
    "ENDPOINTSLICE",
    "EVENT",
    "GANGJOB",
    "JOB",
    "LEASE",
    "LEASEPOLICY",
    "MACHINE",
    "MACHINELEASE",
    "NAMESPACE",
    "NODE",
    "NODEPOOL",
    "POD",
    "PODDISRUPTIONBUDGET",
    "PODGROUP",
    "PRIORITYCLASS",
    "PYTORCHJOB",
    "QUEUE",
    "REPLICATIONCONTROLLER",
    "ROLE",
    "ROLEBINDING",
    "ROLLINGUPDATE",
    "SECRET",
    "SERVICE",
    "SERVICEACCOUNT",
    "TESTSESSION",
    "TFJOB",
]
