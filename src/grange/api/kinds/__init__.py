"""The built-in kinds: one module a kind, one line here."""

from grange.api.kinds.configmap import CONFIGMAP
from grange.api.kinds.event import EVENT
from grange.api.kinds.lease import LEASE
from grange.api.kinds.namespace import NAMESPACE
from grange.api.kinds.node import NODE
from grange.api.kinds.pod import POD
from grange.api.kinds.replicationcontroller import REPLICATIONCONTROLLER
from grange.api.kinds.secret import SECRET
from grange.api.kinds.service import SERVICE
from grange.api.scheme import AnyKind

BUILT_IN: tuple[AnyKind, ...] = (
    CONFIGMAP,
    EVENT,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    LEASE,
    REPLICATIONCONTROLLER,
)

__all__ = [
    "BUILT_IN",
    "CONFIGMAP",
    "EVENT",
    "LEASE",
    "NAMESPACE",
    "NODE",
    "POD",
    "REPLICATIONCONTROLLER",
    "SECRET",
    "SERVICE",
]
