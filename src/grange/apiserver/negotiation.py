"""Which form of an object the caller wants: the Accept header, parsed once a distinct value."""

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from grange.api.http import YAML
from grange.api.status import NotAcceptable

PROTOBUF = "application/vnd.kubernetes.protobuf"
_ANY = frozenset({"*/*", "application/*", "application/json", YAML})


class Form(Enum):
    """How objects are represented."""

    OBJECT = "object"
    TABLE = "table"
    PARTIAL = "partial"

    __hash__ = object.__hash__  # members are singletons; the inherited one is slow


@dataclass(frozen=True, slots=True)
class Media:
    """One clause of an Accept header: a media type and its parameters."""

    type: str
    parameters: tuple[tuple[str, str], ...]

    def get(self, key: str) -> str:
        """A parameter's value, or nothing."""
        return dict(self.parameters).get(key, "")


@lru_cache(maxsize=256)
def parse_accept(accept: str) -> tuple[Media, ...]:
    """The clauses of an Accept header in the caller's order; q-values only remove (``q=0``)."""
    clauses = []
    for clause in accept.split(","):
        head, *rest = (part.strip() for part in clause.split(";"))
        pairs = tuple(
            (key.strip().lower(), value.strip().strip('"'))
            for key, _, value in (part.partition("=") for part in rest)
        )
        if head and ("q", "0") not in pairs:
            clauses.append(Media(head.lower(), pairs))
    return tuple(clauses)


@lru_cache(maxsize=256)
def object_form(accept: str) -> Form:
    """The form of objects, lists and watch events.

    Raises:
        NotAcceptable: none of the clauses can be served.
    """
    clauses = parse_accept(accept)
    if not clauses:
        return Form.OBJECT
    for media in clauses:
        if media.type not in _ANY:
            continue
        wanted = media.get("as")
        if not wanted:
            return Form.OBJECT
        if media.get("g") == "meta.k8s.io" and media.get("v") in {"v1", ""}:
            if wanted == "Table":
                return Form.TABLE
            if wanted in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
                return Form.PARTIAL
    remedy = ""
    if any(media.type == PROTOBUF for media in clauses):
        # Typed Go clients take both unless configured otherwise.
        remedy = f"; send Accept: {PROTOBUF},application/json"
    raise NotAcceptable(f"only application/json and {YAML} are served here, not {accept}{remedy}")


@lru_cache(maxsize=256)
def wants_yaml(accept: str) -> bool:
    """Whether YAML is the first format in an Accept header that is served."""
    served = (media.type for media in parse_accept(accept) if media.type in _ANY)
    return next(served, "") == YAML


def accepts_json(accept: str) -> bool:
    """Whether plain JSON will do."""
    clauses = parse_accept(accept)
    return not clauses or any(media.type in _ANY and not media.get("as") for media in clauses)
