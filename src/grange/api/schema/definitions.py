"""Definitions by name: those of Kubernetes, and over them those that a kind brings along."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.scheme import AnyKind

Schema: TypeAlias = Document

PREFIX = "#/definitions/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
MICRO_TIME = f"{PREFIX}{META}.MicroTime"


def takes_null(schema: Schema) -> bool:
    """Whether null is a value for this (resolved) schema, and not another word for absent."""
    if schema.get("nullable"):
        return True
    plain = "type" in schema or "enum" in schema or "format" in schema
    return not plain and not schema.get(INT_OR_STRING)


def reference(name: str) -> Schema:
    """A schema that stands for the definition of this name."""
    return {"$ref": f"{PREFIX}{name}"}


class Definitions:
    """Schemas by name."""

    __slots__ = ("__weakref__", "_own", "_shared")

    def __init__(
        self, own: Mapping[str, Schema], shared: "Mapping[str, Schema] | Definitions | None" = None
    ) -> None:
        self._own = own
        self._shared = shared

    def get(self, name: str) -> Schema | None:
        """The schema of this name, or None."""
        found = self._own.get(name)
        if found is None and self._shared is not None:
            found = self._shared.get(name)
        return found

    def resolve(self, schema: Schema) -> Schema:
        """The schema itself, or what it refers to; a reference to nothing allows everything."""
        target = schema.get("$ref")
        if target is None:
            return schema
        return self.get(target.removeprefix(PREFIX)) or {}


@lru_cache(maxsize=1)
def builtin() -> Definitions:
    """The definitions of the built-in kinds: Kubernetes', read once, and our own."""
    body = Path(__file__).with_name("kubernetes.json").read_bytes()
    found: dict[str, Schema] = msgspec.json.decode(body)["definitions"]
    for info in BUILT_IN:
        found.update(info.definitions)
    return Definitions(found)


_by_kind: WeakKeyDictionary[AnyKind, Definitions] = WeakKeyDictionary()


def definitions_of(info: AnyKind) -> Definitions:
    """What a kind's schema may refer to."""
    if all(builtin().get(name) is schema for name, schema in info.definitions.items()):
        return builtin()
    found = _by_kind.get(info)
    if found is None:
        found = _by_kind[info] = Definitions(info.definitions, builtin())
    return found
