"""The pod that is created from a controller's template, and what it tolerates on leased machines. Pure."""

from copy import deepcopy
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import Document
from grange.controllers.shared import pod_identity
from grange.placement.spread import HOSTNAME
from grange.reconcile import owners
from grange.reconcile.held_leases import HeldLeases

ZONE = "topology.kubernetes.io/zone"


def pod_document(
    controller: ReplicationController, *, name: str, node: str = "", zoned: bool = False
) -> Document:
    """The pod to create.

    The template's metadata (labels, annotations, finalizers) and spec are copied; ``podLabels`` and
    the labels of ``pod_identity`` win over the template's. The controller's node selector becomes
    required node affinity. A node pins the pod through ``matchFields``, so that the scheduler still
    checks taints and resources there; without one, drained nodes are excluded, and the pods of the
    controller prefer to be spread over hosts (and zones, if every node has one), unless the template
    sets it. A ``nodeName`` in the template is dropped: it would bind every replica to one node without
    the scheduler.
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


@dataclass(frozen=True, slots=True)
class LeaseTolerations:
    """Lets the pods of controllers onto the machines that are leased to them.

    A pod that is pinned to a leased machine carries the UID of the lease, as a holder's pods do. With it the pod fits
    no other machine, and the machine goes to others only when the pod is gone.

    Attributes:
        held: leases by holder; None where there is no pool of machines.
    """

    held: HeldLeases | None = None

    def tolerating(self, controller: ReplicationController) -> ReplicationController:
        """The controller with a template that tolerates the taints of its leases."""
        leases = self._leases(controller)
        if not leases:
            return controller
        template = dict(controller.spec.template)
        template["spec"] = _tolerating(template.get("spec") or {}, leases)
        return replace(controller, spec=replace(controller.spec, template=template))

    def admit(self, controller: ReplicationController, pod: Document, node: str) -> None:
        """Let a new pod onto leased machines of its controller, in place: the one it is pinned to, or any."""
        leases = self._leases(controller)
        if node:
            leases = {node: leases[node]} if node in leases else {}
        if not leases:
            return
        pod["spec"] = spec = _tolerating(pod["spec"], leases)
        if node:
            pod["metadata"]["labels"][MACHINE_LEASE] = leases[node]
            spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), MACHINE_LEASE: leases[node]}

    def _leases(self, controller: ReplicationController) -> dict[str, str]:
        return {} if self.held is None else dict(self.held.nodes(controller.metadata.uid))


def _tolerating(spec: Document, leases: dict[str, str]) -> Document:
    more = [
        {"key": MACHINE_LEASE, "operator": "Equal", "value": lease, "effect": "NoSchedule"}
        for lease in dict.fromkeys(leases.values())
    ]
    return {**spec, "tolerations": [*(spec.get("tolerations") or []), *more]}
