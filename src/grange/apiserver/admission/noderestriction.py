"""What the agent of a node may write, where that depends on the object: its own Node and Lease.

As Kubernetes' NodeRestriction: an agent chooses neither its taints nor labels by which others decide what
runs on it, and gets tokens only for the pods that it runs. ``node_authorizer`` has the rest.
"""

import msgspec

from grange.api.kinds import LEASE, NODE, POD, SERVICEACCOUNT
from grange.api.kinds.serviceaccount import DEFAULT
from grange.api.meta import Document
from grange.api.pod_fields import AGENT_USER_LABEL, NETWORK_LABEL, Feature
from grange.api.status import Forbidden
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.apiserver.client_certificates import node_of
from grange.store.interface import Store

_OWN_LABELS = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        AGENT_USER_LABEL,
        NETWORK_LABEL,
        *(feature.value[0] for feature in Feature),
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
_OWN_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED_DOMAINS = ("kubernetes.io", "k8s.io", "grange.dev")
_OWN_SPEC = frozenset({"podCIDR", "podCIDRs"})


class NodeRestriction:
    """The rule."""

    def admit(self, attempt: Attributes) -> None:
        """Let the write pass.

        Raises:
            Forbidden: the agent of a node may not make it.
        """
        node = node_of(attempt.user)
        if not node:
            return
        document = attempt.document or {}
        if attempt.info is NODE:
            self._check_node(node, attempt, document, attempt.old)
        elif attempt.info is LEASE and attempt.name != node:
            raise _refused(attempt, f"node {node} may only write its own Lease")
        elif attempt.info is POD and attempt.verb == "create":
            raise _refused(attempt, f"node {node} may not create pods")

    def _check_node(
        self, node: str, attempt: Attributes, new: Document, old: Document | None
    ) -> None:
        if attempt.name != node:
            raise _refused(attempt, f"node {node} may only write its own Node")
        before, after = _labels(old), _labels(new)
        for label in sorted(before.keys() | after.keys()):
            if before.get(label) != after.get(label) and not may_set(label):
                raise _refused(
                    attempt,
                    f"metadata.labels[{label}]: node {node} may not set or change it; "
                    "an administrator may",
                )
        if old is None:
            return
        spec_before, spec_after = old.get("spec") or {}, new.get("spec") or {}
        for field in sorted(spec_before.keys() | spec_after.keys()):
            if spec_before.get(field) != spec_after.get(field) and field not in _OWN_SPEC:
                raise _refused(attempt, f"spec.{field}: node {node} may not change it")
        for field in ("ownerReferences", "finalizers"):
            if old["metadata"].get(field) != new["metadata"].get(field):
                raise _refused(attempt, f"metadata.{field}: node {node} may not change it")


def check_token(
    store: Store, node: str, namespace: str, account: str, bound: Document | None
) -> None:
    """Let a token of a service account be made for a node.

    Args:
        store: where pods are.
        node: who asks.
        namespace: of the account.
        account: its name.
        bound: the reference of the request to the pod that it is for.

    Raises:
        Forbidden: it is not for a pod with that account on the node.
    """
    name, uid = (bound or {}).get("name"), (bound or {}).get("uid")
    entry = store.latest(storage.key(POD, namespace, str(name))) if name and uid else None
    pod: Document = msgspec.json.decode(entry.value, type=dict) if entry is not None else {}
    spec = pod.get("spec") or {}
    if (
        (bound or {}).get("kind") != POD.kind
        or (pod.get("metadata") or {}).get("uid") != uid
        or spec.get("nodeName") != node
        or (spec.get("serviceAccountName") or DEFAULT) != account
    ):
        raise Forbidden(
            f'serviceaccounts "{account}" is forbidden: node {node} may only ask for tokens that '
            "are bound to a pod with that account on it",
            kind=SERVICEACCOUNT.plural,
            name=account,
        )


def may_set(label: str) -> bool:
    """Whether an agent may set a label of its Node."""
    domain, slash, _ = label.rpartition("/")
    if not slash or label in _OWN_LABELS or _is_in(domain, _OWN_DOMAINS):
        return True
    return not _is_in(domain, _RESTRICTED_DOMAINS)


def _is_in(domain: str, domains: tuple[str, ...]) -> bool:
    return any(domain == item or domain.endswith(f".{item}") for item in domains)


def _labels(document: Document | None) -> dict[str, object]:
    labels = ((document or {}).get("metadata") or {}).get("labels")
    return labels if isinstance(labels, dict) else {}


def _refused(attempt: Attributes, why: str) -> Forbidden:
    info = attempt.info
    return Forbidden(
        f'{info.qualified} "{attempt.name}" is forbidden: {why}',
        kind=info.plural,
        name=attempt.name,
        group=info.group,
    )
