"""Traces as Kubernetes manifests: Nodes in one file, Pods in another.

A pod's ``creationTimestamp`` is when it comes, the earliest one being the beginning; its annotation
``grange.dev/stays-seconds`` sets for how long it runs. Without these it exists from the beginning
to the end. A node that a pod was bound to is forgotten, and so is a pod's status. Every object must
be one that the API server would take; what it leaves out gets the API's defaults.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from grange.api import codec, pod_requests, schema, timestamps
from grange.api.kinds import NODE, POD
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.quantity import QuantityError
from grange.api.scheme import AnyKind
from grange.api.selectors import SelectorError
from grange.api.status import ApiError
from grange.api.validation import validate
from grange.api.validation.podspec import NO_COMMAND
from grange.app.simulate.trace import Arrival, TraceError
from grange.cli import manifests
from grange.scheduler.podinfo import PodInfo

STAYS = "grange.dev/stays-seconds"
_STAYS_MAX = 2**40


def read_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes of a file.

    Raises:
        TraceError: it cannot be read, or anything in it is no node.
    """
    nodes: dict[str, Node] = {}
    for document in _documents(path, "Node"):
        where = _where(path, document)
        _check(where, document, NODE)
        try:
            node = codec.convert(document, Node)
            pod_requests.allocatable(node.status.allocatable)
        except (ApiError, QuantityError) as error:
            raise TraceError(f"{where}: {error}") from error
        if node.metadata.name in nodes or not node.metadata.name:
            raise TraceError(f"{where}: metadata.name: is there twice, or empty")
        nodes[node.metadata.name] = node
    return tuple(nodes.values())


def read_pods(path: Path) -> tuple[Arrival, ...]:
    """The pods of a file, by time.

    Raises:
        TraceError: it cannot be read, or anything in it is no pod.
    """
    found: list[Arrival] = []
    seen: set[str] = set()
    for document in _documents(path, "Pod"):
        where = _where(path, document)
        document.pop("status", None)
        if isinstance(document.get("metadata"), dict) and not document["metadata"].get("namespace"):
            document["metadata"]["namespace"] = "default"
        _check(where, document, POD)
        try:
            pod = codec.convert(document, Pod)
            key = f"{pod.metadata.namespace}/{pod.metadata.name}"
            meta = msgspec.structs.replace(pod.metadata, uid=key)
            spec = msgspec.structs.replace(pod.spec, node_name="")
            pod = msgspec.structs.replace(pod, metadata=meta, spec=spec)
            PodInfo.of(pod)
        except (ApiError, QuantityError, SelectorError) as error:
            raise TraceError(f"{where}: {error}") from error
        if key in seen or not meta.name:
            raise TraceError(f"{where}: metadata.name: is there twice, or empty")
        seen.add(key)
        found.append(Arrival(_created(where, pod), pod, _stays(where, pod)))
    first = min((item.at_s for item in found if item.at_s), default=0.0)
    moved = [replace(item, at_s=max(0.0, item.at_s - first)) for item in found]
    return tuple(sorted(moved, key=lambda item: item.at_s))


def _check(where: str, document: Document, info: AnyKind) -> None:
    """Refuse what the API server would refuse; the document gets the defaults that it would get."""
    causes = schema.check(document, info)
    if not causes:
        schema.apply_defaults(document, info)
        found = validate(document, None, info)
        causes = [cause for cause in found if not cause.message.endswith(NO_COMMAND)]
    if causes:
        more = f" (and {len(causes) - 1} more)" if len(causes) > 1 else ""
        raise TraceError(f"{where}: {causes[0].field}: {causes[0].message}{more}")


def _created(where: str, pod: Pod) -> float:
    given = pod.metadata.creation_timestamp
    if not given:
        return 0.0
    try:
        return timestamps.parse(given).timestamp()
    except ValueError as error:
        raise TraceError(f"{where}: metadata.creationTimestamp: {error}") from error


def _stays(where: str, pod: Pod) -> float | None:
    given = pod.metadata.annotations.get(STAYS)
    if given is None:
        return None
    if not (given.isascii() and given.isdigit() and len(given) <= 15 and int(given) <= _STAYS_MAX):
        problem = f"{given[:40]!r} is no whole number of seconds from 0 to {_STAYS_MAX}"
        raise TraceError(f"{where}: metadata.annotations.{STAYS}: {problem}")
    return float(given)


def _documents(path: Path, kind: str) -> Iterator[Document]:
    try:
        documents = manifests.read([str(path)])
    except manifests.ManifestError as error:
        raise TraceError(str(error)) from error
    for document in documents:
        if document.get("kind") != kind or document.get("apiVersion") != "v1":
            raise TraceError(f"{_where(path, document)}: kind: must be a v1 {kind}")
        yield document


def _where(path: Path, document: Document) -> str:
    meta = document.get("metadata")
    name = meta.get("name", "") if isinstance(meta, dict) else ""
    return f"{path}: {str(document.get('kind', ''))[:60]}/{str(name)[:60]}"
