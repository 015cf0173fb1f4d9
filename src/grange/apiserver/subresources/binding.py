"""``binding``: a scheduler gives a pod its node.

Atomic: the node, and the condition that says so, are one write, made only if the pod has no node
yet and is not on its way out. A binding that names the pod's uid binds that pod and no other.
"""

from grange.api import names, timestamps
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest, Cause
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_annotations, check_labels
from grange.api.wire import Response
from grange.apiserver import stored
from grange.apiserver.call import Call, success
from grange.apiserver.options import write_options
from grange.apiserver.registry import Place, invalid
from grange.apiserver.subresources.subresource import Subresource

_FENCES = ("uid", "resourceVersion")


def _whole(info: AnyKind, old: Document, new: Document) -> Document:
    return new


async def _create(call: Call) -> Response:
    place, binding = call.place, call.document()
    node = target_node(place, binding)
    meta = binding.get("metadata") or {}
    now = timestamps.rfc3339(call.clock.now())
    outcome = await call.registry.update(
        place,
        lambda pod: bound(place, pod, meta, node, now),
        write_options(call.request.query),
        part=_whole,
        trusted=True,
    )
    return success(place, outcome.value, code=201)


def target_node(place: Place, binding: Document) -> str:
    """The node that a Binding names.

    Raises:
        BadRequest: the body is no Binding of this pod.
        Invalid: the target is no node.
    """
    meta, target = binding.get("metadata") or {}, binding.get("target") or {}
    if binding.get("kind", "Binding") != "Binding" or not isinstance(meta, dict):
        raise BadRequest("the body of a binding must be a v1 Binding")
    if meta.get("name", place.name) not in {place.name, ""}:
        raise BadRequest(f'the binding is for pod "{meta["name"]}", the path for "{place.name}"')
    if not isinstance(target, dict) or target.get("kind", "Node") not in {"Node", ""}:
        raise BadRequest("target.kind of a binding must be Node")
    name = target.get("name")
    if not name or not isinstance(name, str):
        cause = Cause("FieldValueRequired", "Required value: name the node", "target.name")
        raise invalid(place.info, place.name, [cause])
    if fault := names.check_dns_subdomain(name):
        cause = Cause("FieldValueInvalid", f'Invalid value: "{name}": {fault}', "target.name")
        raise invalid(place.info, place.name, [cause])
    return name


def bound(place: Place, pod: Document, meta: Document, node: str, now: str) -> Document:
    """The pod with its node; the pod is not changed.

    Raises:
        Conflict: it has a node already, or is being deleted.
    """
    spec, before = pod.get("spec") or {}, pod["metadata"]
    if spec.get("nodeName"):
        why = f'pod {place.name} is already assigned to node "{spec["nodeName"]}"'
        raise stored.conflict(place.info, place.name, why)
    if before.get("deletionTimestamp"):
        why = f"pod {place.name} is being deleted, cannot be assigned to a host"
        raise stored.conflict(place.info, place.name, why)
    metadata = {**before, **{field: meta[field] for field in _FENCES if meta.get(field)}}
    for field, given in _merged(place, meta):
        metadata[field] = {**(before.get(field) or {}), **given}
    status = pod.get("status") or {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now}
    others = [item for item in status.get("conditions") or [] if item["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": metadata,
        "spec": {**spec, "nodeName": node},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def _merged(place: Place, meta: Document) -> list[tuple[str, dict[str, str]]]:
    """The labels and annotations that the binding adds; the write itself is not checked again."""
    faults = Faults()
    found = []
    for field, check in (("labels", check_labels), ("annotations", check_annotations)):
        given = meta.get(field) or {}
        if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
            raise BadRequest(f"metadata.{field} of the binding must be an object of strings")
        if given:
            check(given, f"metadata.{field}", faults)
            found.append((field, given))
    if faults.causes:
        raise invalid(place.info, place.name, faults.causes)
    return found


BINDING = Subresource("binding", {"create": _create}, kind="Binding")
