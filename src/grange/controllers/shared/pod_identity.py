"""Labels, names and template hashes of a controller's pods.

The controller owner reference decides about ownership, by uid. The labels are an index for users and
for adoption, and are repaired when they drift. Names are deterministic: two reconciles that decide the
same collide in the API server instead of creating two pods.
"""

import hashlib
import zlib
from collections.abc import Container, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from grange.api import names
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.pod import QUOTA_LABELS, Pod
from grange.api.kinds.replicationcontroller import ID_LABEL, NAME_LABEL, ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import ObjectKey

RC_NAME_LABEL = NAME_LABEL
"""Pod label with the name of its controller (``label_value`` of it); orphans are adopted by it."""

RC_ID_LABEL = ID_LABEL
"""Pod label with the uid of its controller; tools refuse to change pods that have it."""

TEMPLATE_HASH_LABEL = "grange.dev/template-hash"
"""Pod label with ``template_hash`` of the template that the pod was created from; never repaired."""

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
"""Pod annotation, an integer: among equals the pod with the lower cost is removed first."""

PLACEMENT_HASH = "grange.dev/placement-hash"
"""Pod annotation with ``placement_hash`` of the controller when the pod was created."""

label_value = names.label_value

_SALT = "190/"
"""Lets ``default/web``, the controller of the examples, begin at the first of a few nodes."""


def _digest_of(value: object) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[: names.DIGEST_LENGTH]


def template_hash(controller: ReplicationController) -> str:
    """Ten hexadecimal digits that change exactly when ``spec.template`` does."""
    return _digest_of(controller.spec.template)


def placement_hash(controller: ReplicationController) -> str:
    """Ten hexadecimal digits that change exactly when placement or node selector do.

    With ``Packed`` also when the drained nodes do.
    """
    spec = controller.spec
    parts: list[object] = [spec.placement, spec.node_selector]
    if spec.placement == "Packed" and (left := drained_nodes(controller)):
        parts.append(sorted(left))
    return _digest_of(parts)


def labels_of(controller: ReplicationController) -> dict[str, str]:
    """The labels that every pod of the controller has: ``podLabels``, then its own two.

    The template hash is left out, because a repair must not change it.
    """
    wanted = controller.spec.pod_labels
    return {
        **{key: value for key, value in wanted.items() if key != TEMPLATE_HASH_LABEL},
        RC_NAME_LABEL: label_value(controller.metadata.name),
        RC_ID_LABEL: controller.metadata.uid,
    }


def labels_for(controller: ReplicationController, pod: Pod) -> dict[str, str]:
    """Those of ``labels_of`` that a pod may still get: quota is charged when it gets a node."""
    labels = labels_of(controller)
    if not pod.spec.node_name:
        return labels
    return {key: value for key, value in labels.items() if key not in QUOTA_LABELS}


def name_for_node(controller: ReplicationController, node: str, taken: Container[str]) -> str:
    """The pod's name on a node: ``<controller>-<node>``, a DNS label of at most 63 characters.

    A pair that is too long or has other characters is shortened with a hash. A name that another
    owner's pod has (``taken``) is avoided with a hash of the controller's uid.
    """
    plain = f"{controller.metadata.name}-{node}"
    if names.check_dns_label(plain) is not None:
        plain = names.shortened(plain, names.digest(controller.metadata.name, node))
    if plain not in taken:
        return plain
    return names.shortened(plain, names.digest(controller.metadata.uid, node))


def rotated_nodes(controller: ReplicationController, nodes: Sequence[str]) -> list[str]:
    """Nodes in order, from an offset that depends on namespace and name of the controller."""
    if not nodes:
        return []
    meta = controller.metadata
    start = zlib.crc32(f"{_SALT}{meta.namespace}/{meta.name}".encode()) % len(nodes)
    return [*nodes[start:], *nodes[:start]]


def ordinal_names(controller: ReplicationController, taken: Container[str]) -> Iterator[str]:
    """Names ``<controller>-<ordinal>`` from zero up, without taken ones; endless."""
    base = controller.metadata.name
    if names.check_dns_label(f"{base}-9999999") is not None:
        base = names.shortened(base, names.digest(base))[: names.DNS_LABEL_MAX - 8].rstrip("-")
    ordinal = 0
    while True:
        name = f"{base}-{ordinal}"
        if name not in taken:
            yield name
        ordinal += 1


def pinned_node(pod: Pod) -> str:
    """The node that the pod's required affinity names, if every term names the same; else empty."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return ""
    found: set[str] = set()
    for term in required.node_selector_terms:
        pins = [
            item.values[0]
            for item in term.match_fields
            if item.key == "metadata.name" and item.operator == "In" and len(item.values) == 1
        ]
        if not pins:
            return ""
        found.update(pins)
    return found.pop() if len(found) == 1 else ""


def node_of(pod: Pod) -> str:
    """The node of a pod, or the one that it is pinned to; empty if the scheduler chooses."""
    return pod.spec.node_name or pinned_node(pod)


def controller_key(pod: Pod) -> tuple[ObjectKey, str] | None:
    """Key and uid of the ReplicationController that controls the pod, if one does."""
    for owner in pod.metadata.owner_references:
        if (
            owner.controller
            and owner.kind == REPLICATIONCONTROLLER.kind
            and owner.api_version == REPLICATIONCONTROLLER.api_version
        ):
            return ObjectKey(pod.metadata.namespace, owner.name), owner.uid
    return None


def is_of(pod: Pod, template_hash: str) -> bool:
    """Whether the pod was created from the template with this hash."""
    return pod.metadata.labels.get(TEMPLATE_HASH_LABEL) == template_hash


def sources(
    controller: ReplicationController,
) -> tuple[ReplicationController, ReplicationController | None]:
    """What pods are created from, according to the stored rollout.

    Returns:
        The controller with the template of new pods; and with that of pods of the old side, None if
        there is no such side or its pods are not replaced.
    """
    state = controller.status.rollout
    if state is None:
        return controller, None
    known = {item.template_hash: item.template for item in controller.status.history}
    present = template_hash(controller)
    wanted = state.template_hash if state.spec_hash == present else present

    def made_from(template_hash: str) -> ReplicationController | None:
        if template_hash == present:
            return controller
        if (template := known.get(template_hash)) is None:
            return None
        return replace(controller, spec=replace(controller.spec, template=template))

    rolls = controller.spec.rollout.type == "RollingUpdate"
    stable = made_from(state.stable_hash) if rolls and state.stable_hash != wanted else None
    return made_from(wanted) or controller, stable
