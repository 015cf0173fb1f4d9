"""What the agent of a node may do: what concerns its node and the pods on it, and nothing else.

Also what a machine may do that joins: read the certificate of the authority, and ask for one. The rules are those of Kubernetes' node authorizer. An object in a namespace may be read while a pod on the
node names it. What depends on the body of a request is decided by ``admission.noderestriction``.
"""

from collections.abc import Callable

import msgspec

from grange.api import revoked_nodes
from grange.api.bootstrap_tokens import CLUSTER_INFO, GROUP, PUBLIC
from grange.api.kinds import (
    CERTIFICATESIGNINGREQUEST,
    CONFIGMAP,
    ENDPOINTS,
    ENDPOINTSLICE,
    EVENT,
    LEASE,
    NODE,
    POD,
    SERVICE,
    SERVICEACCOUNT,
)
from grange.api.kinds.lease import NODE_LEASES
from grange.api.kinds.serviceaccount import DEFAULT
from grange.api.meta import Document
from grange.api.pod_references import references
from grange.api.scheme import AnyKind
from grange.api.stream_requests import TUNNEL
from grange.apiserver import storage
from grange.apiserver.authorization.authorizer import (
    ALLOWED,
    NO_OPINION,
    AuthorizationAttributes,
    AuthorizationDecision,
    Opinion,
)
from grange.apiserver.client_certificates import node_of
from grange.apiserver.node_capacity import NodeCapacity
from grange.store.interface import Store

_READS = frozenset({"get", "list", "watch"})
_CHANGES = frozenset({"get", "update", "patch"})
_NAMED = frozenset({"secrets", "configmaps", "persistentvolumeclaims"})
_READABLE = frozenset((info.group, info.plural) for info in (SERVICE, ENDPOINTS, ENDPOINTSLICE))
"""What every node may read whole: the service proxy works from it."""

_documents = msgspec.json.Decoder(dict)

Rule = Callable[[str, AuthorizationAttributes], bool]


class NodeAuthorizer:
    """Decides on requests of nodes, and of machines that join.

    Args:
        store: where pods are.
        node_capacity: knows the pods of each node.
    """

    def __init__(self, store: Store, node_capacity: NodeCapacity) -> None:
        self._store = store
        self._node_capacity = node_capacity
        rules: dict[AnyKind, Rule] = {
            POD: self._pods,
            NODE: self._nodes,
            LEASE: self._leases,
            EVENT: self._events,
            SERVICEACCOUNT: self._accounts,
        }
        self._rules = {(info.group, info.plural): rule for info, rule in rules.items()}

    def authorize(self, attributes: AuthorizationAttributes) -> AuthorizationDecision:
        """Allow what a node needs; there is no opinion on the rest, and nothing for revoked nodes."""
        user = attributes.user
        node = node_of(user)
        if node and (why := self._revocation(node)):
            return AuthorizationDecision(Opinion.DENIED, why)
        if attributes.path:
            return NO_OPINION
        if node:
            allowed = self._allows_node(node, attributes)
            return ALLOWED if allowed else _refused(node)
        if _is(attributes, CONFIGMAP) and attributes.verb == "get" and not attributes.subresource:
            public = (attributes.namespace, attributes.name) == (PUBLIC, CLUSTER_INFO)
            return ALLOWED if public else NO_OPINION
        if _is(attributes, CERTIFICATESIGNINGREQUEST) and GROUP in user.groups:
            return ALLOWED if self._requests(attributes) else NO_OPINION
        return NO_OPINION

    def _allows_node(self, node: str, asked: AuthorizationAttributes) -> bool:
        if _is(asked, CERTIFICATESIGNINGREQUEST):
            return self._requests(asked)
        kind = (asked.group, asked.resource)
        rule = self._rules.get(kind)
        if rule is not None:
            return rule(node, asked)
        if asked.subresource or asked.verb not in _READS:
            return False
        if kind in _READABLE:
            return True
        if asked.group or asked.resource not in _NAMED:
            return False
        if _is_revocation_list(asked):
            return True  # agents let none of those nodes in
        return self._names(node, asked, asked.name or asked.selected("metadata.name"))

    def _revocation(self, node: str) -> str:
        found = self._read(storage.key(CONFIGMAP, revoked_nodes.NAMESPACE, revoked_nodes.NAME))
        return revoked_nodes.refusal((found or {}).get("data") or {}, node)

    def _pods(self, node: str, asked: AuthorizationAttributes) -> bool:
        if not asked.name:
            listed = asked.verb in _READS and asked.selected("spec.nodeName") == node
            return listed and not asked.subresource
        allowed = {
            "": frozenset({"get", "delete"}),
            "status": _CHANGES,
            "eviction": frozenset({"create"}),
        }.get(asked.subresource, frozenset())
        if asked.subresource == TUNNEL:
            return asked.verb == "create"  # the agent of the pod compares with its Services
        if asked.verb not in allowed:
            return False
        pod = self._read(storage.key(POD, asked.namespace, asked.name))
        return pod is None or _node_of(pod) == node  # one that is gone is not found

    def _nodes(self, node: str, asked: AuthorizationAttributes) -> bool:
        if asked.subresource not in {"", "status"}:
            return False
        if asked.name:
            # The address of another node's agent is in its Node.
            is_read = asked.verb == "get" and not asked.subresource
            return is_read or (asked.name == node and asked.verb in _CHANGES)
        if asked.verb == "create":
            return True  # admission compares the name in the body
        return asked.verb in _READS and asked.selected("metadata.name") == node

    def _leases(self, node: str, asked: AuthorizationAttributes) -> bool:
        if asked.namespace != NODE_LEASES or asked.subresource:
            return False
        if asked.verb == "create":
            return True  # admission compares the name in the body
        return asked.name == node and asked.verb in _CHANGES

    def _events(self, node: str, asked: AuthorizationAttributes) -> bool:
        return asked.verb in {"create", "patch", "update"} and not asked.subresource

    def _accounts(self, node: str, asked: AuthorizationAttributes) -> bool:
        wanted = {"": "get", "token": "create"}.get(asked.subresource)
        return asked.verb == wanted and self._names(node, asked, asked.name)

    def _requests(self, asked: AuthorizationAttributes) -> bool:
        """Requests for certificates: anyone may make some, and read back those that it made."""
        if asked.subresource:
            return False
        if asked.verb == "create":
            return True
        if asked.verb != "get":
            return False
        found = self._read(storage.key(CERTIFICATESIGNINGREQUEST, "", asked.name))
        spec = (found or {}).get("spec")
        return isinstance(spec, dict) and spec.get("username") == asked.user.name

    def _names(self, node: str, asked: AuthorizationAttributes, name: str) -> bool:
        """Whether a pod on the node names an object of a namespace."""
        if not name or not asked.namespace:
            return False
        wanted = (asked.resource, name)
        prefix = storage.prefix(POD, asked.namespace)
        mentioned = name.encode()  # names are plain ASCII: JSON does not change them
        for key in self._node_capacity.pods_on(node):
            if not key.startswith(prefix):
                continue
            entry = self._store.latest(key)
            # Few pods mention a certain name, and decoding one takes a hundred times as long.
            if entry is None or (mentioned not in entry.value and name != DEFAULT):
                continue
            pod = self._read(key)
            if pod is not None and _node_of(pod) == node and wanted in references(pod):
                return True
        return False

    def _read(self, key: str) -> Document | None:
        entry = self._store.latest(key)
        if entry is None:
            return None
        try:
            found: Document = _documents.decode(entry.value)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return found


def _is(attributes: AuthorizationAttributes, info: AnyKind) -> bool:
    return (attributes.group, attributes.resource) == (info.group, info.plural)


def _refused(node: str) -> AuthorizationDecision:
    reason = f"it does not concern node {node} or a pod on it"
    return AuthorizationDecision(Opinion.NONE, reason)


def _node_of(pod: Document) -> str:
    spec = pod.get("spec")
    return str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""


def _is_revocation_list(asked: AuthorizationAttributes) -> bool:
    name = asked.name or asked.selected("metadata.name")
    wanted = (revoked_nodes.NAMESPACE, revoked_nodes.NAME)
    return _is(asked, CONFIGMAP) and (asked.namespace, name) == wanted
