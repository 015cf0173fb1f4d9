"""What the programs that run in a cluster may ask of its API: no more than they do ask.

One table, by controller. ``tests/sim/test_install_rights.py`` plays stories in which every other
request is refused, and finds each right used in one of them, or told here why it is there.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from grange.api.farm import NAMESPACE as FARM_LEASES, RESUME_CONFIGMAP
from grange.api.kinds import (
    AUDITRECORD,
    CONFIGMAP,
    EVENT,
    LEASE,
    NAMESPACE,
    NODE,
    POD,
    PODDISRUPTIONBUDGET,
    PODGROUP,
    QUEUE,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    SERVICE,
)
from grange.api.kinds.lease import NODE_LEASES
from grange.api.kinds.workloads import CORE_REPLICATIONCONTROLLER, REPLICASET, STATEFULSET
from grange.api.meta import Document
from grange.api.scheme import AnyKind

FARM = "farm"
_FOLLOW = ("list", "watch")


@dataclass(frozen=True, slots=True)
class Right:
    """What may be done with the objects of one kind.

    Attributes:
        kind: of the objects.
        verbs: what may be done.
        part: a subresource, instead of the objects themselves.
        namespace: where; empty for the whole cluster.
        name: of the only object; empty for all.
        unseen: why a right is given that no story needs; empty where one does.
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


_EVENTS = Right(EVENT, ("create", "patch"))
_ELSEWHERE = "default spreading follows controllers that our server does not serve"

RIGHTS: Mapping[str, tuple[Right, ...]] = {
    # What every process needs to be a member of the farm; see docs/farm.md.
    FARM: (
        Right(LEASE, ("get", *_FOLLOW, "create", "patch", "delete"), namespace=FARM_LEASES),
        Right(CONFIGMAP, _FOLLOW, namespace=FARM_LEASES, name=RESUME_CONFIGMAP),
        Right(POD, _FOLLOW),  # the failsafe counts those that were made for the farm's objects
    ),
    "replication": (
        Right(REPLICATIONCONTROLLER, ("get", *_FOLLOW, "patch")),
        Right(REPLICATIONCONTROLLER, ("patch",), "status"),
        Right(
            REPLICATIONCONTROLLER,
            ("update",),
            "finalizers",
            unseen="clusters that guard owner references (OwnerReferencesPermissionEnforcement) "
            "ask for it of whoever makes pods that hold up the deletion of their owner",
        ),
        Right(POD, ("get", *_FOLLOW, "create", "patch", "delete")),
        Right(POD, ("create",), "eviction"),
        Right(PODDISRUPTIONBUDGET, ("get", *_FOLLOW)),
        Right(PODDISRUPTIONBUDGET, ("patch",), "status"),  # where several cover a pod
        Right(NODE, _FOLLOW),
        Right(LEASE, ("get", "list"), namespace=NODE_LEASES),
        Right(AUDITRECORD, ("create",)),
        _EVENTS,
    ),
    "rollingupdate": (
        Right(ROLLINGUPDATE, (*_FOLLOW, "patch", "delete")),
        Right(ROLLINGUPDATE, ("patch",), "status"),
        Right(REPLICATIONCONTROLLER, ("get", *_FOLLOW, "patch", "delete")),
        Right(POD, _FOLLOW),
        Right(NODE, _FOLLOW),
        Right(LEASE, ("get", "list"), namespace=NODE_LEASES),
        Right(AUDITRECORD, ("create",)),
        _EVENTS,
    ),
    "audit": (Right(AUDITRECORD, ("list", "delete")),),
    "scheduler": (
        Right(POD, ("get", *_FOLLOW, "delete")),
        Right(POD, ("create",), "binding"),
        Right(POD, ("patch",), "status"),
        Right(NODE, _FOLLOW),
        Right(NAMESPACE, _FOLLOW),
        Right(SERVICE, _FOLLOW),
        Right(REPLICASET, _FOLLOW, unseen=_ELSEWHERE),
        Right(STATEFULSET, _FOLLOW, unseen=_ELSEWHERE),
        Right(CORE_REPLICATIONCONTROLLER, _FOLLOW, unseen=_ELSEWHERE),
        Right(PODDISRUPTIONBUDGET, _FOLLOW),
        Right(PODGROUP, _FOLLOW),
        Right(PODGROUP, ("patch",), "status"),
        Right(QUEUE, _FOLLOW),
        Right(QUEUE, ("patch",), "status"),
        _EVENTS,
    ),
}
"""By controller, and what all of them need. Those that are not named belong to Kubernetes itself,
which has its own: two of one sort in a cluster would contradict each other."""

CONTROLLERS = tuple(name for name in RIGHTS if name != FARM)
"""What may run in a cluster of Kubernetes."""

_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


def of(controllers: Collection[str]) -> Iterator[Right]:
    """The rights of a process that runs these controllers.

    Args:
        controllers: some of ``CONTROLLERS``.
    """
    for name, rights in RIGHTS.items():
        if name == FARM or name in controllers:
            yield from rights


def namespaces(rights: Iterable[Right]) -> list[str]:
    """Where rights are given: the whole cluster (an empty name) first."""
    return sorted({right.namespace for right in rights})


def rules(rights: Iterable[Right]) -> list[Document]:
    """Rights, all of one namespace or of the cluster, as the rules of a role: one for each resource."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for right in rights:
        found.setdefault((right.kind.group, right.resource, right.name), set()).update(right.verbs)
    return [
        {
            "apiGroups": [group],
            "resources": [resource],
            **({"resourceNames": [name]} if name else {}),
            "verbs": [verb for verb in _VERBS if verb in verbs],
        }
        for (group, resource, name), verbs in sorted(found.items())
    ]
