"""Objects for tests of controllers: the least that is valid, with what matters as arguments."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from grange.api.kinds.node import Node, Taint
from grange.api.kinds.pod import Pod, is_active
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.controllers.replication import podtemplate
from grange.controllers.replication.plan import Inputs
from grange.controllers.shared import deletion_order, pod_identity

TEMPLATE: Document = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web", "command": ["web"]}]},
}


def controller(
    name: str = "web",
    *,
    replicas: int = 1,
    uid: str = "rc-uid",
    generation: int = 1,
    deleted: bool = False,
    **spec: object,
) -> ReplicationController:
    """A controller in namespace ``default``; further spec fields by their wire names."""
    document: Document = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid,
            "generation": generation,
            **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}),
        },
        "spec": {"replicas": replicas, "template": TEMPLATE, **spec},
    }
    return msgspec.convert(document, ReplicationController)


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    ready: bool = True,
    taints: Sequence[Taint] = (),
    unschedulable: bool = False,
) -> Node:
    """A node that reports whether it is ready."""
    document: Document = {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": dict(labels or {})},
        "spec": {
            "unschedulable": unschedulable,
            "taints": [msgspec.to_builtins(taint) for taint in taints],
        },
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    return msgspec.convert(document, Node)


def pod(
    owner: ReplicationController,
    *,
    node: str = "",
    name: str = "",
    bound: bool = True,
    ready: bool = True,
    **facts: object,
) -> Pod:
    """A pod that the controller made.

    Args:
        owner: the controller; its labels and reference are put on.
        node: where it runs (or, not bound, is pinned); empty leaves it to the scheduler.
        name: instead of the name that the controller would give.
        bound: whether it has been bound to the node.
        ready: whether it runs and is ready (when bound).
        facts: ``uid``, ``phase``, ``restarts``, ``created``, ``cost``, ``deleted``, ``labels``,
            ``ready_since``, ``orphan``, ``finalizers``, ``conditions`` (besides Ready).
    """
    name = name or pod_identity.name_for_node(owner, node, frozenset())
    pinned = node if owner.spec.placement == "OnePerNode" else ""
    document = podtemplate.pod_document(owner, name=name, node=pinned)
    meta = document["metadata"]
    meta["uid"] = facts.get("uid", f"uid-{name}")
    meta["creationTimestamp"] = facts.get("created", "2026-01-01T00:00:00Z")
    meta["finalizers"] = facts.get("finalizers", [])
    if facts.get("orphan"):
        meta["ownerReferences"] = []
    if "labels" in facts:
        meta["labels"] = facts["labels"]
    if "cost" in facts:
        meta["annotations"][pod_identity.DELETION_COST] = facts["cost"]
    if facts.get("deleted"):
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if bound and node:
        document["spec"]["nodeName"] = node
    up = bound and bool(node)
    document["status"] = {
        "phase": facts.get("phase", "Running" if up else "Pending"),
        "conditions": [
            {
                "type": "Ready",
                "status": str(up and ready),
                "lastTransitionTime": facts.get("ready_since", "2026-01-01T00:00:00Z"),
            },
            *facts.get("conditions", ()),  # type: ignore[misc]  # whatever the test gives
        ],
        "containerStatuses": [{"name": "web", "restartCount": facts.get("restarts", 0)}],
    }
    return msgspec.convert(document, Pod)


def inputs(
    owner: ReplicationController, owned: Sequence[Pod], eligible: Collection[str], **facts: Any
) -> Inputs:
    """What a plan depends on; the ready pods are available."""
    down = facts.get("down", ())
    ready = {
        pod.metadata.uid for pod in owned if is_active(pod) and deletion_order.is_ready(pod, down)
    }
    return Inputs(owner, owned, eligible, **{"available": frozenset(ready), **facts})
