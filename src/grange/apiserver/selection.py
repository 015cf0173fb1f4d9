"""Which objects a list or watch is about, decided on bytes.

Only what selectors can look at is decoded: the labels and the fields that the kind declares, through
a struct made once a kind. The facts of an event are found once and shared by all its watchers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.selectors import Fields, Labels, SelectorError
from grange.api.status import BadRequest
from grange.apiserver import storage
from grange.apiserver.unreadable import UnreadableObjects
from grange.store.interface import Entry

_PLAIN_PATH = re.compile(r"[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)*")
_LABELS = "metadata.labels"
_AT_ONCE_MIN, _AT_ONCE_MAX = 10, 500
_VALUES_A_REQUIREMENT = 10  # so many are compared while one requirement is looked at
_FROM_KEY = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class ObjectAttributes:
    """What selectors can see of one state of one object."""

    labels: Mapping[str, str]
    fields: Mapping[str, str]


class Reader:
    """Finds the facts of a kind's objects.

    Args:
        info: the kind.
        work: counts the partial decodes.
        unreadable: objects that are left out; those of the wrong shape are counted there.
    """

    def __init__(self, info: AnyKind, work: storage.Work, unreadable: UnreadableObjects) -> None:
        self._info = info
        self.unreadable = unreadable
        self._work = work
        plain = all(_PLAIN_PATH.fullmatch(path) for path in info.fields)
        partial = _partial_type((_LABELS, *info.fields)) if plain else dict[str, Any]
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(partial)

    def selects(self, chosen: "Selection", entry: Entry) -> bool:
        """Whether an object is in the selection; one that cannot be read is not."""
        try:
            return chosen.matches(self.read(entry.key, entry.value))
        except Exception as error:  # noqa: BLE001  fields may have any shape, and readers trust it
            self.unreadable.skip(entry, error)
            return False

    def read(self, key: str, body: bytes) -> ObjectAttributes:
        """The facts of stored bytes."""
        self._work.evaluations += 1
        document: Document = msgspec.to_builtins(self._decoder.decode(body))
        metadata = document.get("metadata") or {}
        namespace, name = storage.names_of(key, self._info)
        fields = {"metadata.name": name, "metadata.namespace": namespace}
        for path, reader in self._info.fields.items():
            fields.setdefault(path, reader(document))
        return ObjectAttributes(metadata.get("labels") or {}, fields)


@dataclass(frozen=True, slots=True)
class Selection:
    """A compiled pair of selectors.

    Attributes:
        labels: the label selector.
        fields: the field selector; all its paths are known to the kind.
    """

    labels: Labels
    fields: Fields

    @property
    def empty(self) -> bool:
        """Whether every object is in."""
        return self.labels.empty and self.fields.empty

    @property
    def at_once(self) -> int:
        """How many objects to look at before others are served."""
        requirements = self.labels.requirements
        weight = len(requirements) + len(self.fields.requirements)
        weight += sum(len(item.values) for item in requirements) // _VALUES_A_REQUIREMENT
        return max(_AT_ONCE_MIN, _AT_ONCE_MAX // max(1, weight))

    @property
    def name(self) -> str:
        """The only name that can be in, or nothing when many can."""
        return self.fields.exact("metadata.name") or ""

    def matches(self, facts: ObjectAttributes) -> bool:
        """Whether an object with these facts is in."""
        return self.labels.matches(facts.labels) and self.fields.matches(
            lambda path: facts.fields.get(path, "")
        )


def prefix(info: AnyKind, namespace: str, chosen: Selection) -> str:
    """What all keys in the selection begin with; as narrow as a single name allows."""
    start = storage.prefix(info, namespace)
    return start + chosen.name if namespace or not info.namespaced else start


def parse(info: AnyKind, query: Mapping[str, str]) -> Selection:
    """The selection that a query asks for.

    Raises:
        BadRequest: a selector cannot be read, or names a field that the kind does not offer.
    """
    try:
        labels = Labels.parse(query.get("labelSelector") or "")
        fields = Fields.parse(query.get("fieldSelector") or "")
    except SelectorError as error:
        raise BadRequest(str(error)) from error
    known = {*_FROM_KEY, *info.fields}
    for path in fields.paths:
        if path not in known:
            raise BadRequest(
                f'field label not supported: "{path}"; {info.plural} can be selected by '
                f"{', '.join(sorted(known))}"
            )
    return Selection(labels, fields)


def _partial_type(paths: tuple[str, ...]) -> type:
    tree: dict[str, Any] = {}
    for path in sorted(paths):  # a parent sorts before its children and then stands for them
        level: dict[str, Any] | None = tree
        *parents, leaf = path.split(".")
        for part in parents:
            level = level.setdefault(part, {}) if level is not None else None
        if level is not None:
            level.setdefault(leaf, None)
    return _struct("Partial", tree)


def _struct(name: str, tree: dict[str, Any]) -> type:
    fields: list[tuple[str, Any, Any]] = []
    rename = {}
    for index, (wire_name, below) in enumerate(tree.items()):
        kind: Any = Any if below is None else _struct(f"{name}_{wire_name}", below) | None
        fields.append((f"f{index}", kind | msgspec.UnsetType, msgspec.UNSET))
        rename[f"f{index}"] = wire_name
    return msgspec.defstruct(name, fields, rename=rename, omit_defaults=True, gc=False)
