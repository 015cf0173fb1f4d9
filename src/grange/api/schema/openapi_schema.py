"""The kinds as OpenAPI documents, for clients that look before they write.

kubectl reads version 3: ``explain`` the definitions, ``apply`` the merge keys, and every write looks
at the PATCH operation of its kind for the ``fieldValidation`` parameter, which shows that the server
checks fields itself. Version 2 is for older tools.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from grange.api.http import JSON, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, YAML
from grange.api.meta import Document
from grange.api.scale import SCALE
from grange.api.schema.definitions import META, PREFIX, Definitions, builtin
from grange.api.schema.descriptions import DESCRIPTIONS, KINDS
from grange.api.scheme import AnyKind, Scheme

VERSION = "v1.36.0"
_COMPONENTS = "#/components/schemas/"
_PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH)
_TITLE = "Grange"
_DELETE_OPTIONS = f"{META}.DeleteOptions"
_STATUS = f"{META}.Status"
_PATCH = f"{META}.Patch"
_DESCRIBED = {
    "apiVersion": "Version of the schema of this object, as group/version.",
    "kind": "What the object is, in CamelCase.",
    "metadata": "Name, namespace, labels and bookkeeping.",
    "spec": "What is wanted.",
    "status": "What is; written by the system.",
}

_Parameter = tuple[str, str, str]  # name, type, description
_LIST: tuple[_Parameter, ...] = (
    ("labelSelector", "string", "Only objects with such labels."),
    ("fieldSelector", "string", "Only objects with such fields."),
    ("limit", "integer", "At most so many; the response has the token to continue with."),
    ("continue", "string", "Go on from there."),
    ("resourceVersion", "string", "Not older than this revision."),
    ("resourceVersionMatch", "string", "How the revision is meant: NotOlderThan or Exact."),
    ("watch", "boolean", "Stream changes instead of listing."),
    ("allowWatchBookmarks", "boolean", "Send the revision from time to time."),
    ("timeoutSeconds", "integer", "End the stream after so long."),
)
_WRITE: tuple[_Parameter, ...] = (
    ("dryRun", "string", "All: do everything but store it."),
    ("fieldManager", "string", "Who writes."),
    ("fieldValidation", "string", "What to do about unknown fields: Ignore, Warn or Strict."),
)
_DELETE: tuple[_Parameter, ...] = (
    ("dryRun", "string", "All: do everything but store it."),
    ("gracePeriodSeconds", "integer", "How long programs may take to end."),
    ("propagationPolicy", "string", "What to do about dependents."),
)


class _Version:
    """What differs between the two versions of OpenAPI: how bodies and parameters are written."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._three = prefix == _COMPONENTS

    def body(self, definition: str, media: tuple[str, ...]) -> Document:
        """The part of an operation that describes what is sent."""
        reference = {"$ref": f"{self._prefix}{definition}"}
        if self._three:
            return {"requestBody": {"content": {kind: {"schema": reference} for kind in media}}}
        body = {"name": "body", "in": "body", "required": True, "schema": reference}
        return {"consumes": list(media), "parameters": [body]}

    def answer(self, definition: str) -> Document:
        """The part of an operation that describes what comes back."""
        reference = {"$ref": f"{self._prefix}{definition}"}
        if self._three:
            return {"description": "OK", "content": {JSON: {"schema": reference}}}
        return {"description": "OK", "schema": reference}

    def parameter(self, name: str, kind: str, place: str, description: str) -> Document:
        """One parameter in the path or the query."""
        entry: Document = {"name": name, "in": place, "description": description}
        if place == "path":
            entry["required"] = True
        if self._three:
            return entry | {"schema": {"type": kind, "uniqueItems": True}}
        return entry | {"type": kind, "uniqueItems": True}


_V2, _V3 = _Version(PREFIX), _Version(_COMPONENTS)


def openapi_v2(scheme: Scheme) -> Document:
    """Everything that is served, as one OpenAPI 2.0 document (``/openapi/v2``)."""
    kinds = list(scheme)
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": VERSION},
        "paths": dict(sorted(_paths(kinds, _V2))),
        "definitions": _reachable(kinds, _plain),
    }


def openapi_v3(scheme: Scheme, group_version: str) -> Document:
    """One group and version as an OpenAPI 3.0 document (``/openapi/v3/apis/<group>/<version>``).

    Args:
        scheme: the kinds.
        group_version: as in ``apiVersion``: ``v1`` or ``group/version``.
    """
    kinds = [info for info in scheme if info.api_version == group_version]
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": VERSION},
        "paths": dict(sorted(_paths(kinds, _V3))),
        "components": {"schemas": _reachable(kinds, _third)},
    }


def _paths(kinds: list[AnyKind], version: _Version) -> Iterator[tuple[str, Document]]:
    for info in kinds:
        yield from _kind_paths(info, version)


def _kind_paths(info: AnyKind, version: _Version) -> Iterator[tuple[str, Document]]:
    namespace = "{namespace}" if info.namespaced else ""
    operation = _Operations(info, version)
    if info.namespaced:
        yield info.path(), {"get": operation.list("ForAllNamespaces")}
    yield (
        info.path(namespace),
        {
            "parameters": operation.place(),
            "get": operation.list(),
            "post": operation.write("post", "create"),
            "delete": operation.delete("deletecollection"),
        },
    )
    subresources = ("", "status") if info.has_status else ("",)
    for subresource in subresources:
        item = {
            "parameters": operation.place(named=True),
            "get": operation.get(subresource),
            "put": operation.write("put", "replace", subresource),
            "patch": operation.write("patch", "patch", subresource),
        }
        if not subresource:
            item["delete"] = operation.delete("delete")
        yield info.path(namespace, "{name}", subresource), item
    if info.scale:
        item = {
            "parameters": operation.place(named=True),
            "get": operation.get("scale", SCALE),
            "put": operation.write("put", "replace", "scale", SCALE),
            "patch": operation.write("patch", "patch", "scale", SCALE),
        }
        yield info.path(namespace, "{name}", "scale"), item


class _Operations:
    """The operations on one kind."""

    def __init__(self, info: AnyKind, version: _Version) -> None:
        self._info = info
        self._version = version

    def place(self, *, named: bool = False) -> list[Document]:
        """The parameters that the path has."""
        found = []
        if named:
            found.append(self._version.parameter("name", "string", "path", "Name of the object."))
        if self._info.namespaced:
            found.append(self._version.parameter("namespace", "string", "path", "Its namespace."))
        return found

    def list(self, scope: str = "") -> Document:
        """Reading a collection."""
        return self._operation(f"list{scope}", "list", _LIST, f"{self._info.schema}List")

    def get(self, subresource: str = "", body: AnyKind | None = None) -> Document:
        """Reading an object, or a subresource that may have bodies of another kind."""
        info = body or self._info
        return self._operation(f"read{subresource}", "get", (), info.schema, info)

    def write(
        self, action: str, verb: str, subresource: str = "", body: AnyKind | None = None
    ) -> Document:
        """Creating, replacing or patching an object or a subresource."""
        info = body or self._info
        operation = self._operation(f"{verb}{subresource}", action, _WRITE, info.schema, info)
        if action == "patch":
            sent = self._version.body(_PATCH, _PATCHES)
        else:
            sent = self._version.body(info.schema, (JSON, YAML))
        operation["parameters"] += sent.pop("parameters", [])
        return operation | sent

    def delete(self, action: str) -> Document:
        """Deleting an object or a collection."""
        query = _DELETE if action == "delete" else (*_LIST, *_DELETE)
        return self._operation(action, action, query, _STATUS)

    def _operation(
        self,
        verb: str,
        action: str,
        query: tuple[_Parameter, ...],
        answer: str,
        body: AnyKind | None = None,
    ) -> Document:
        info = self._info
        about = body or info
        words = (info.group.partition(".")[0] or "core", info.version)
        scope = "Namespaced" if info.namespaced and "ForAll" not in verb else ""
        name = f"{verb}{words[0].title()}{words[1].title()}{scope}{info.kind}"
        return {
            "operationId": name,
            "tags": ["_".join(words)],
            "parameters": [
                self._version.parameter(parameter, kind, "query", description)
                for parameter, kind, description in query
            ],
            "responses": {"200": self._version.answer(answer)},
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {
                "group": about.group,
                "version": about.version,
                "kind": about.kind,
            },
        }


def _reachable(kinds: list[AnyKind], convert: Callable[[str, Any], Any]) -> Document:
    """The definitions that the kinds use, converted, by name."""
    found: Document = {}
    scaled = any(info.scale for info in kinds)
    for info in [*kinds, SCALE] if scaled else kinds:
        definitions = Definitions(info.definitions, builtin())
        waiting = [info.schema, f"{info.schema}List", _DELETE_OPTIONS, _STATUS, _PATCH]
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            schema = definitions.get(name)
            if schema is None:
                schema = _list_of(info) if name == f"{info.schema}List" else {"type": "object"}
            found[name] = convert(name, schema)
            waiting += _references(schema)
    return dict(sorted(found.items()))


def _list_of(info: AnyKind) -> Document:
    """The definition of a list, for a kind that brings none."""
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "items": {"type": "array", "items": {"$ref": f"{PREFIX}{info.schema}"}},
            "kind": {"type": "string"},
            "metadata": {"$ref": f"{PREFIX}{META}.ListMeta"},
        },
        "x-kubernetes-group-version-kind": [
            {"group": info.group, "version": info.version, "kind": f"{info.kind}List"}
        ],
    }


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        target = schema.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(PREFIX)
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _plain(definition: str, schema: Any) -> Any:
    """A definition with descriptions where it has none."""
    copied = copy.deepcopy(schema)
    known = DESCRIPTIONS.get(definition, {})
    whole = KINDS.get(definition) or _list_description(copied)
    if whole and not copied.get("description"):
        copied["description"] = whole
    if "x-kubernetes-group-version-kind" in copied:  # it has the parts that every kind has
        known = {**_DESCRIBED, **known}
    for name, part in (copied.get("properties") or {}).items():
        if name in known:
            part.setdefault("description", known[name])
    return copied


def _list_description(schema: Document) -> str:
    """What the definition of a list is, by its items; empty for everything else."""
    kinds = schema.get("x-kubernetes-group-version-kind") or ()
    is_list = "items" in (schema.get("properties") or {})
    return (
        f"A list of objects of kind {kinds[0]['kind'].removesuffix('List')}."
        if kinds and is_list
        else ""
    )


def _third(definition: str, schema: Any) -> Any:
    """A definition as version 3 writes it: other references, and what may be text or number."""
    return _rewritten(_plain(definition, schema))


def _rewritten(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_rewritten(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    target = schema.get("$ref")
    if isinstance(target, str):
        # Version 3 ignores the siblings of a reference, so the reference goes into an allOf.
        siblings = {key: _rewritten(value) for key, value in schema.items() if key != "$ref"}
        reference = {"$ref": _COMPONENTS + target.removeprefix(PREFIX)}
        return {**siblings, "allOf": [reference]} if siblings else reference
    written = {key: _rewritten(value) for key, value in schema.items()}
    match schema.get("format"):
        case "int-or-string":
            del written["type"]
            written["oneOf"] = [{"type": "integer"}, {"type": "string"}]
        case "quantity":
            del written["type"], written["format"]
            written["oneOf"] = [{"type": "string"}, {"type": "number"}]
    return written
