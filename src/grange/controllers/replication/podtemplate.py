"""The pod that is created from a controller's template. Pure."""

from copy import deepcopy

import msgspec

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import Document
from grange.controllers.shared import pod_identity
from grange.placement.spread import HOSTNAME
from grange.reconcile import owners

ZONE = "topology.kubernetes.io/zone"


def pod_document(
    controller: ReplicationController, *, name: str, node: str = "", zoned: bool = False
) -> Document:
    """The pod to create.

    The template's metadata (labels, annotations, finalizers) and spec are copied; ``podLabels`` and
    the labels of ``pod_identity`` win over the template's. The controller's node selector becomes
    required node affinity. A node pins the pod through ``matchFields``, so that the scheduler still
    checks taints and resources there; without one, drained nodes are excluded, and the pods of the
    controller prefer to be spread over hosts and zones, unless the template sets it. A ``nodeName`` in
    the template is dropped: it would bind every replica to one node without the scheduler.

    Args:
        controller: with the template; not changed.
        name: of the pod.
        node: where it must run; empty leaves the choice to the scheduler.
        zoned: whether every node has the label of its zone.
    """
    template = deepcopy(controller.spec.template)
    metadata = template.get("metadata") or {}
    spec = template.get("spec") or {}
    spec.pop("nodeName", None)
    if not node and not spec.get("topologySpreadConstraints"):
        spec["topologySpreadConstraints"] = _spread(controller, zoned=zoned)
    _require(spec, _expressions(controller), _fields(controller, node))
    kept = {"finalizers": metadata["finalizers"]} if metadata.get("finalizers") else {}
    labels = {
        **(metadata.get("labels") or {}),
        **pod_identity.labels_of(controller),
        pod_identity.TEMPLATE_HASH_LABEL: pod_identity.template_hash(controller),
    }
    owner = owners.owner_reference(REPLICATIONCONTROLLER, controller)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": controller.metadata.namespace,
            "labels": labels,
            "annotations": {
                **(metadata.get("annotations") or {}),
                pod_identity.PLACEMENT_HASH: pod_identity.placement_hash(controller),
            },
            **kept,
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": spec,
    }


def _spread(controller: ReplicationController, *, zoned: bool) -> list[Document]:
    """Preferences: pods that fit on one node only run there together.

    A scheduler does not score nodes without the label of a constraint, so zones are included only if
    every node has one.
    """
    mine = {"matchLabels": {pod_identity.RC_ID_LABEL: controller.metadata.uid}}
    return [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": mine,
        }
        for key in ((ZONE, HOSTNAME) if zoned else (HOSTNAME,))
    ]


def _expressions(controller: ReplicationController) -> list[Document]:
    selector = controller.spec.node_selector
    equal = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in sorted(selector.match_labels.items())
    ]
    others: list[Document] = []
    for item in selector.match_expressions:
        entry: Document = {"key": item.key, "operator": item.operator}
        if item.values:
            entry["values"] = list(item.values)
        others.append(entry)
    return equal + others


def _fields(controller: ReplicationController, node: str) -> list[Document]:
    """One name each: the API accepts no more."""
    if node:
        return [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return [
        {"key": "metadata.name", "operator": "NotIn", "values": [name]}
        for name in sorted(drained_nodes(controller))
    ]


def _require(spec: Document, expressions: list[Document], fields: list[Document]) -> None:
    """Add conditions to every alternative of the required node affinity, in place."""
    if not expressions and not fields:
        return
    affinity = spec.get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = [{}] if required is None else (required.get("nodeSelectorTerms") or [])
    for term in terms:
        if expressions:
            term["matchExpressions"] = [
                *(term.get("matchExpressions") or []),
                *deepcopy(expressions),
            ]
        if fields:
            term["matchFields"] = [*(term.get("matchFields") or []), *deepcopy(fields)]
    node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    affinity["nodeAffinity"] = node_affinity
    spec["affinity"] = affinity
