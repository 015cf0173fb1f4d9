"""What the programs that run in a cluster may ask of its API: no more than they do ask.

One table, by controller. ``tests/sim/test_install_rbac.py`` plays stories in which every other
request is refused, and checks that each permission is used in one of them or has a reason here.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from grange.api.bootstrap_tokens import NAMESPACE as TOKENS
from grange.api.farm_protocol import NAMESPACE as FARM_LEASES, RESUME_CONFIGMAP
from grange.api.kinds import (
    AUDITRECORD,
    CONFIGMAP,
    EVENT,
    GANGJOB,
    LEASE,
    LEASEPOLICY,
    MACHINE,
    MACHINELEASE,
    NAMESPACE,
    NODE,
    NODEPOOL,
    POD,
    PODDISRUPTIONBUDGET,
    PODGROUP,
    PRIORITYCLASS,
    PYTORCHJOB,
    QUEUE,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    SECRET,
    SERVICE,
    TESTSESSION,
    TFJOB,
)
from grange.api.kinds.lease import NODE_LEASES
from grange.api.kinds.volcano import VOLCANO_PODGROUP
from grange.api.kinds.workloads import CORE_REPLICATIONCONTROLLER, REPLICASET, STATEFULSET
from grange.api.machine_claims import EPOCHS_CONFIGMAP, NAMESPACE as CLAIMS
from grange.api.meta import Document
from grange.api.scheme import AnyKind

FARM = "farm"
_FOLLOW = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Permission:
    """What may be done with the objects of one kind.

    Attributes:
        kind: of the objects.
        verbs: what may be done.
        part: a subresource, instead of the objects themselves.
        namespace: where; empty for the whole cluster.
        name: of the only object; empty for all.
        unseen: why a permission is given that no story needs; empty where one does.
    """

    kind: AnyKind
    verbs: tuple[str, ...]
    part: str = ""
    namespace: str = ""
    name: str = ""
    unseen: str = ""

    @property
    def resource(self) -> str:
        """As rules name it."""
        return f"{self.kind.plural}/{self.part}" if self.part else self.kind.plural


_EVENTS = Permission(EVENT, ("create", "patch"))
_ELSEWHERE = "default spreading follows controllers that our server does not serve"

_BLOCKING = (
    "clusters that guard owner references (OwnerReferencesPermissionEnforcement) require it of "
    "clients that create pods which block the deletion of their owner"
)


_UNANSWERED = "objects are read live where a write had no answer, or the cache may be behind"

_OTHERS_WRITE = "a lease is read live where another client wrote to it meanwhile"


def _for_jobs(kind: AnyKind) -> tuple[Permission, ...]:
    """What the controller of a kind of jobs needs."""
    return (
        Permission(kind, ("get", *_FOLLOW, "patch", "delete")),
        Permission(kind, ("patch",), "status"),
        Permission(kind, ("update",), "finalizers", unseen=_BLOCKING),
        *_FOR_PODS_OF_JOBS,
    )


_CLAIMS = "no story moves pods of a controller to a machine of a dedicated pool"
_LEASES = "no story moves pods of a controller to a leased machine"
_FOR_CLAIMS = (
    Permission(MACHINE, _FOLLOW),
    Permission(MACHINE, ("patch",), "status", unseen=_CLAIMS),
    Permission(NODEPOOL, _FOLLOW),
    Permission(NODEPOOL, ("patch",), unseen=_CLAIMS),
    Permission(
        CONFIGMAP, ("get", "patch"), namespace=CLAIMS, name=EPOCHS_CONFIGMAP, unseen=_CLAIMS
    ),
    Permission(CONFIGMAP, ("create",), namespace=CLAIMS, unseen=_CLAIMS),
    Permission(MACHINELEASE, _FOLLOW),
    Permission(MACHINELEASE, ("get", "create", "patch", "delete"), unseen=_LEASES),
    Permission(LEASEPOLICY, _FOLLOW),
)

_FOR_PODS_OF_JOBS = (
    Permission(POD, ("get", *_FOLLOW, "create", "patch", "delete")),
    Permission(SERVICE, ("get", *_FOLLOW, "create", "patch", "delete")),
    Permission(PODGROUP, (*_FOLLOW, "create", "delete")),
    Permission(PODDISRUPTIONBUDGET, _FOLLOW),
    Permission(
        VOLCANO_PODGROUP,
        ("get", *_FOLLOW, "create", "patch", "delete"),
        unseen="only clusters that run Volcano have the kind",
    ),
    Permission(PRIORITYCLASS, _FOLLOW),
    Permission(NODE, _FOLLOW),
    _EVENTS,
)
_SHRINKS = "the quorum of a gang shrinks where pods of members that succeeded are deleted"
_SHRINKING = (
    Permission(PODGROUP, ("patch",), unseen=_SHRINKS),
    Permission(PODDISRUPTIONBUDGET, ("patch",), unseen=_SHRINKS),
)
_OTHER_BACKENDS = Permission(
    PODDISRUPTIONBUDGET, ("create", "delete"), unseen="jobs may name this backend of gangs"
)

PERMISSIONS: Mapping[str, tuple[Permission, ...]] = {
    # What every process needs to be a member of the farm; see docs/explanation/farm.md.
    FARM: (
        Permission(LEASE, ("get", *_FOLLOW, "create", "patch", "delete"), namespace=FARM_LEASES),
        Permission(CONFIGMAP, _FOLLOW, namespace=FARM_LEASES, name=RESUME_CONFIGMAP),
        Permission(
            POD, _FOLLOW
        ),  # the deletion guard counts those that were made for the farm's objects
    ),
    "replication": (
        Permission(REPLICATIONCONTROLLER, ("get", *_FOLLOW, "patch")),
        Permission(REPLICATIONCONTROLLER, ("patch",), "status"),
        Permission(
            REPLICATIONCONTROLLER,
            ("update",),
            "finalizers",
            unseen=_BLOCKING,
        ),
        Permission(POD, ("get", *_FOLLOW, "create", "patch", "delete")),
        Permission(POD, ("create",), "eviction"),
        Permission(PODDISRUPTIONBUDGET, ("get", *_FOLLOW)),
        Permission(PODDISRUPTIONBUDGET, ("patch",), "status"),  # where several cover a pod
        Permission(NODE, _FOLLOW),
        Permission(LEASE, ("get", "list"), namespace=NODE_LEASES),
        Permission(AUDITRECORD, ("create",)),
        *_FOR_CLAIMS,
        _EVENTS,
    ),
    "rollingupdate": (
        Permission(ROLLINGUPDATE, (*_FOLLOW, "patch", "delete")),
        Permission(ROLLINGUPDATE, ("patch",), "status"),
        Permission(REPLICATIONCONTROLLER, ("get", *_FOLLOW, "patch", "delete")),
        Permission(POD, _FOLLOW),
        Permission(NODE, _FOLLOW),
        Permission(LEASE, ("get", "list"), namespace=NODE_LEASES),
        Permission(AUDITRECORD, ("create",)),
        _EVENTS,
    ),
    "gangjob": (
        *_for_jobs(GANGJOB),
        Permission(CONFIGMAP, ("create", "patch")),  # files of its framework
        Permission(PODDISRUPTIONBUDGET, ("create", "delete")),
        *_SHRINKING,
    ),
    "tfjob": (*_for_jobs(TFJOB), *_SHRINKING, _OTHER_BACKENDS),
    "pytorchjob": (*_for_jobs(PYTORCHJOB), *_SHRINKING, _OTHER_BACKENDS),
    "testsession": (
        Permission(TESTSESSION, ("get", *_FOLLOW, "patch", "delete")),
        Permission(TESTSESSION, ("patch",), "status"),
        Permission(TESTSESSION, ("update",), "finalizers", unseen=_BLOCKING),
        Permission(MACHINELEASE, (*_FOLLOW, "create", "patch", "delete")),
        Permission(MACHINELEASE, ("get",), unseen=_UNANSWERED),
        Permission(LEASEPOLICY, _FOLLOW),
        Permission(POD, (*_FOLLOW, "create", "patch", "delete")),
        Permission(POD, ("get",), unseen=_UNANSWERED),
        Permission(CONFIGMAP, ("create", "delete")),
        Permission(NODE, _FOLLOW),
        _EVENTS,
    ),
    "machinelease": (
        Permission(MACHINELEASE, (*_FOLLOW, "patch")),
        Permission(MACHINELEASE, ("patch",), "status"),
        Permission(MACHINELEASE, ("get",), unseen=_OTHERS_WRITE),
        Permission(LEASEPOLICY, _FOLLOW),
        Permission(NODEPOOL, _FOLLOW),
        Permission(NODE, ("get", *_FOLLOW, "patch")),
        Permission(POD, (*_FOLLOW, "delete")),
        Permission(EVENT, ("create",)),
        Permission(EVENT, ("patch",), unseen="no lease is granted, ends or is lost twice"),
    ),
    "machines": (
        Permission(NODEPOOL, (*_FOLLOW, "patch")),
        Permission(NODEPOOL, ("patch",), "status"),
        Permission(MACHINE, (*_FOLLOW, "create", "patch", "delete")),
        Permission(MACHINE, ("get",), unseen=_UNANSWERED),
        Permission(MACHINELEASE, _FOLLOW),
        Permission(MACHINE, ("patch",), "status"),
        Permission(NODE, (*_FOLLOW, "patch", "delete")),
        Permission(POD, ("get", *_FOLLOW)),
        Permission(POD, ("create",), "binding"),
        Permission(POD, ("create",), "eviction", unseen="no shared machine is drained"),
        Permission(POD, ("delete",), unseen="no drain comes to its end by force"),
        Permission(PODDISRUPTIONBUDGET, _FOLLOW),
        Permission(NAMESPACE, ("get", *_FOLLOW)),
        Permission(PODGROUP, _FOLLOW),
        Permission(
            SECRET, ("get", "create", "delete"), namespace=TOKENS, unseen="machines of clouds join"
        ),
        Permission(EVENT, ("create",)),
        Permission(EVENT, ("patch",), unseen="nothing happens to a machine twice"),
    ),
    "audit": (Permission(AUDITRECORD, ("list", "delete")),),
    "scheduler": (
        Permission(POD, ("get", *_FOLLOW, "delete")),
        Permission(POD, ("create",), "binding"),
        Permission(POD, ("patch",), "status"),
        Permission(NODE, _FOLLOW),
        Permission(NAMESPACE, _FOLLOW),
        Permission(SERVICE, _FOLLOW),
        Permission(REPLICASET, _FOLLOW, unseen=_ELSEWHERE),
        Permission(STATEFULSET, _FOLLOW, unseen=_ELSEWHERE),
        Permission(CORE_REPLICATIONCONTROLLER, _FOLLOW, unseen=_ELSEWHERE),
        Permission(PODDISRUPTIONBUDGET, _FOLLOW),
        Permission(PODGROUP, _FOLLOW),
        Permission(PODGROUP, ("patch",), "status"),
        Permission(PRIORITYCLASS, _FOLLOW),
        Permission(QUEUE, _FOLLOW),
        Permission(QUEUE, ("patch",), "status"),
        _EVENTS,
    ),
}
"""By controller, and what all of them need. Those that are not named belong to Kubernetes itself,
which has its own: two of one sort in a cluster would contradict each other."""

CONTROLLERS = tuple(name for name in PERMISSIONS if name != FARM)
"""What may run in a cluster of Kubernetes."""

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


def of(controllers: Collection[str]) -> Iterator[Permission]:
    """The permissions of a process that runs these controllers.

    Args:
        controllers: some of ``CONTROLLERS``.
    """
    for name, permissions in PERMISSIONS.items():
        if name == FARM or name in controllers:
            yield from permissions


def namespaces(permissions: Iterable[Permission]) -> list[str]:
    """Where permissions are given: the whole cluster (an empty name) first."""
    return sorted({permission.namespace for permission in permissions})


def rules(permissions: Iterable[Permission]) -> list[Document]:
    """Rights, all of one namespace or of the cluster, as the rules of a role: one for each resource."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for permission in permissions:
        found.setdefault(
            (permission.kind.group, permission.resource, permission.name), set()
        ).update(permission.verbs)
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            **({"resourceNames": [name]} if name else {}),
            "verbs": [verb for verb in _VERBS if verb in verbs],
        }
        for (group, resource, name), verbs in sorted(found.items())
    ]
