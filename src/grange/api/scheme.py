"""What a kind is: everything the server, the clients and the surfaces derive from.

A kind is one module under ``api.kinds`` exporting one ``KindInfo`` and one line in
``api.kinds.__init__``. Storage, routing, discovery, OpenAPI, tables, field selectors, defaulting,
validation and the typed client all read it; a kind that a user defines at run time goes through
the same value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar

from grange.api import names
from grange.api.meta import Document, Resource
from grange.api.status import Cause

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class Column:
    """One printer column.

    Attributes:
        name: heading.
        cell: value from the full document and the wall time now, as RFC 3339 seconds since the
            epoch; must not raise on partial documents.
        type: OpenAPI type of the cell: string, integer, number, boolean or date.
        description: what the column means.
        priority: 0 is always shown, above only with ``-o wide``.
    """

    name: str
    cell: Callable[[Document, float], str | int | float | bool | None]
    type: str = "string"
    description: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scaling:
    """How many copies an object has, for its ``scale`` subresource.

    Attributes:
        replicas: path of the number wanted, below ``spec``.
        current: path of the number there is.
        selector: the label selector of the copies, from the full document; empty for none.
        selector_path: path of the same below ``status``, for servers that only look things up; empty
            where it is not kept.
        choose: the paths of one object, for kinds whose paths depend on it; servers that only look
            things up use those above.
    """

    replicas: str
    current: str
    selector: Callable[[Document], str]
    selector_path: str = ""
    choose: "Callable[[Document], Scaling] | None" = None

    def of(self, document: Document) -> "Scaling":
        """The paths of this object."""
        return self if self.choose is None else self.choose(document)


def _no_defaults(document: Document) -> None:
    """A kind without defaults beyond its schema's."""


def _nothing_carried_over(old: Document, new: Document) -> None:
    """A kind to whose objects the server gives nothing but metadata."""


def _no_rules(document: Document, old: Document | None) -> list[Cause]:
    """A kind without rules beyond its schema's."""
    return []


def _no_warnings(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    """A kind with all its references resolved."""
    return ()


@dataclass(frozen=True, eq=False)
class KindInfo(Generic[R]):
    """One resource kind; compared and hashed by identity, so that others can remember by it.

    Attributes:
        group: API group; empty for the core group.
        version: served and stored version.
        kind: CamelCase name.
        plural: the resource in paths, lower case.
        view: the typed partial view that clients decode to.
        schema: name of its definition in ``api.schema`` (OpenAPI).
        definitions: schemas that the kind brings along, by name; they may refer to each other and
            to the built-in ones. Empty for kinds of Kubernetes.
        namespaced: whether objects live in namespaces.
        short_names: for command lines.
        categories: e.g. ``all``.
        has_status: ``status`` is a subresource that only its own path writes.
        subresources: further ones, e.g. ``log``, ``binding``.
        scale: where the number of copies is; None for kinds without a ``scale`` subresource.
        columns: printer columns after NAME and before AGE.
        fields: selectable fields beyond metadata.name and metadata.namespace: path to reader.
        default: fills in what the schema cannot express; in place.
        prepare_for_update: gets the old and the new document, which has its defaults; carries over
            what the server gave and the client left out. Replaces parts of the new one, and changes
            none that it may share with the old one.
        validate: rules beyond the schema, for create (old is None) and update.
        review: warnings about fields that are accepted and have no effect, of a document that broke
            no rule; may put them down in the status of a new one.
        name_rule: check of ``metadata.name``: a message, or None when it is fine.
        immutable: paths (``spec.nodeName``) that may be set once but not changed.
        graceful: deletion waits for an agent (pods) when the object is at work.
        returns_deleted: the answer to a deletion is the object as it was last, as Kubernetes has it
            for some kinds and typed clients expect it; the others are answered with a ``Status``.
    """

    group: str
    version: str
    kind: str
    plural: str
    view: type[R]
    schema: str
    definitions: Mapping[str, Document] = field(default_factory=dict)
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = True
    subresources: tuple[str, ...] = ()
    scale: Scaling | None = None
    columns: tuple[Column, ...] = ()
    fields: Mapping[str, Callable[[Document], str]] = field(default_factory=dict)
    default: Callable[[Document], None] = _no_defaults
    prepare_for_update: Callable[[Document, Document], None] = _nothing_carried_over
    validate: Callable[[Document, Document | None], list[Cause]] = _no_rules
    review: Callable[[Document, Document | None, datetime], Iterable[str]] = _no_warnings
    name_rule: Callable[[str], str | None] = names.check_dns_subdomain
    immutable: tuple[str, ...] = ()
    graceful: Callable[[Document], bool] | None = None
    returns_deleted: bool = False

    @property
    def api_version(self) -> str:
        """``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The kind in lower case."""
        return self.kind.lower()

    def is_called(self, word: str) -> bool:
        """Whether a person means it: plural, singular, short name, or with the group after it."""
        lowered = word.lower()
        plain = (self.plural, self.singular)
        return lowered in (
            *plain,
            *self.short_names,
            *(f"{name}.{self.group}" for name in plain),
            f"{self.plural}.{self.version}.{self.group}",
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all its subresources."""
        scale = ("scale",) if self.scale else ()
        return (*(("status",) if self.has_status else ()), *scale, *self.subresources)

    @property
    def qualified(self) -> str:
        """``plural.group``, or ``plural`` in the core group: for messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """The first part of its paths: ``/api/v1`` or ``/apis/group/version``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The path of a collection, an object or a subresource."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


AnyKind = KindInfo[Any]


class Scheme:
    """The registry of kinds: by path and by kind.

    Built-in kinds are given at construction; run-time kinds are added and removed.
    """

    def __init__(self, kinds: tuple[AnyKind, ...] = ()) -> None:
        self._by_resource: dict[tuple[str, str, str], AnyKind] = {}
        self._by_kind: dict[tuple[str, str], AnyKind] = {}
        for info in kinds:
            self.add(info)

    def add(self, info: AnyKind) -> None:
        """Serve one more kind."""
        self._by_resource[info.group, info.version, info.plural] = info
        self._by_kind[info.api_version, info.kind] = info

    def resource(self, group: str, version: str, plural: str) -> AnyKind | None:
        """The kind served under a path."""
        return self._by_resource.get((group, version, plural))

    def kind(self, api_version: str, kind: str) -> AnyKind | None:
        """The kind of a document."""
        return self._by_kind.get((api_version, kind))

    def named(self, word: str) -> AnyKind | None:
        """The kind that a person means: plural, singular, short name, kind, or with the group after it."""
        return next((info for info in self if info.is_called(word)), None)

    def __iter__(self) -> Iterator[AnyKind]:
        """Kinds in the order they were added."""
        return iter(list(self._by_resource.values()))
