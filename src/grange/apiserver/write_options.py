"""What the query of a write asks for, checked once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from grange.api.delete_parameters import REMOVE_FINALIZER
from grange.api.http import SERVER, User
from grange.api.meta import Document
from grange.api.status import BadRequest, Cause, Invalid
from grange.api.validation.causes import Faults

T = TypeVar("T", bound=object)

_INTEGER_MAX = 2**63 - 1  # the wire's integers have 64 bits
_GRACE_MAX_S = 2**31 - 1  # 68 years: the end of it must still be a date
STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
_IGNORE_UNREADABLE = "ignoreStoreReadErrorWithClusterBreakingPotential"
_SHOWN_MAX = 64
_TYPE_NAMES: dict[type, str] = {
    str: "a string",
    bool: "a boolean",
    dict: "an object",
    list: "a list",
}
_PROPAGATIONS = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How to write.

    Attributes:
        dry_run: do everything but the write.
        field_validation: what to do about unknown and duplicate fields: ``Strict`` refuses them,
            ``Warn`` drops them with a warning, ``Ignore`` drops them. As in Kubernetes the default
            is ``Warn``; kubectl asks for ``Strict``.
        duplicates: the paths of fields that the body has more than once; the last one counts.
        large: whether the work may be more than the event loop should be held for.
        user: who writes.
    """

    dry_run: bool = False
    field_validation: str = WARN
    duplicates: tuple[str, ...] = ()
    large: bool = False
    user: User = SERVER


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete.

    Attributes:
        dry_run: do everything but the write.
        uid: only the object with this uid; empty for any.
        resource_version: only at this version; empty for any.
        grace_period_s: seconds for the agent to end it; None leaves it to the object.
        propagation: Background, Foreground or Orphan; empty for the kind's default.
        finalizer: to be removed from the object with this delete; empty for none.
        ignore_unreadable: remove an object that cannot be read from the store.
        user: who deletes.
    """

    dry_run: bool = False
    uid: str = ""
    resource_version: str = ""
    grace_period_s: int | None = None
    propagation: str = ""
    finalizer: str = ""
    ignore_unreadable: bool = False
    user: User = SERVER


def write_options(query: Mapping[str, str], user: User = SERVER) -> WriteOptions:
    """The options of a create, update or patch.

    Args:
        query: of the request.
        user: who sends it.

    Raises:
        BadRequest: a parameter has a value that is not known.
    """
    if not query:
        return WriteOptions(user=user)
    return WriteOptions(_dry_run(query.get("dryRun") or ""), field_validation(query), user=user)


def field_validation(query: Mapping[str, str]) -> str:
    """``Strict``, ``Warn`` or ``Ignore``; see ``WriteOptions``.

    Raises:
        BadRequest: the query has another value.
    """
    asked = query.get("fieldValidation") or WARN
    if asked not in {STRICT, WARN, IGNORE}:
        raise BadRequest(f'fieldValidation must be Strict, Warn or Ignore, not "{asked}"')
    return asked


def _dry_run(value: str) -> bool:
    if value not in {"", "All"}:
        raise BadRequest(f'dryRun must be All, not "{value}"')
    return value == "All"


def delete_options(query: Mapping[str, str], given: Document, user: User = SERVER) -> DeleteOptions:
    """The options of a delete: those of the body, then those of the query for what it leaves out.

    Args:
        query: of the request.
        given: the document in its body; empty for none.
        user: who sends it.

    Raises:
        BadRequest: the body is no DeleteOptions, or a value is of the wrong type.
        Invalid: a value is out of its range.
    """
    kind = _typed(given, "kind", str) or "DeleteOptions"
    if kind != "DeleteOptions":
        raise BadRequest(f"the body of a delete must be DeleteOptions, not {kind[:_SHOWN_MAX]}")
    conditions = _typed(given, "preconditions", dict) or {}
    dry_run = _typed(given, "dryRun", list) or ([query["dryRun"]] if query.get("dryRun") else [])
    if not all(isinstance(item, str) for item in dry_run):
        raise BadRequest("dryRun must be a list of strings")
    grace = given.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        grace = _integer("gracePeriodSeconds", query["gracePeriodSeconds"])
    propagation = _typed(given, "propagationPolicy", str) or query.get("propagationPolicy") or ""
    if _typed(given, "orphanDependents", bool) and not propagation:
        propagation = "Orphan"
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise BadRequest("gracePeriodSeconds must be an integer")
    faults = []
    if grace is not None and grace < 0:
        faults.append(Cause("FieldValueInvalid", "must not be negative", "gracePeriodSeconds"))
    if grace is not None and grace > _GRACE_MAX_S:
        message = f"must not be greater than {_GRACE_MAX_S}"
        faults.append(Cause("FieldValueInvalid", message, "gracePeriodSeconds"))
    if propagation not in {"", *_PROPAGATIONS}:
        message = f'"{propagation}" is not one of {", ".join(_PROPAGATIONS)}'
        faults.append(Cause("FieldValueNotSupported", message, "propagationPolicy"))
    if faults:
        listed = "; ".join(f"{cause.field}: {cause.message}" for cause in faults)
        raise Invalid(f"DeleteOptions is invalid: {listed}", kind="DeleteOptions", causes=faults)
    return DeleteOptions(
        dry_run=any(_dry_run(item) for item in dry_run),
        uid=_typed(conditions, "uid", str) or "",
        resource_version=_typed(conditions, "resourceVersion", str) or "",
        grace_period_s=grace,
        propagation=propagation,
        finalizer=query.get(REMOVE_FINALIZER) or "",
        ignore_unreadable=_typed(given, _IGNORE_UNREADABLE, bool)
        or query.get(_IGNORE_UNREADABLE) == "true",
        user=user,
    )


def _typed(document: Document, field: str, kind: type[T]) -> T | None:
    value = document.get(field)
    if value is not None and not isinstance(value, kind):
        raise BadRequest(f"{field} must be {_TYPE_NAMES[kind]}")
    return value


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f'{name} must be an integer, not "{text}"') from None


def integer(query: Mapping[str, str], name: str, default: int = 0) -> int:
    """A non-negative integer parameter.

    Raises:
        BadRequest: it is not one.
    """
    text = query.get(name) or ""
    if not text:
        return default
    value = _integer(name, text)
    if value < 0:
        raise BadRequest(f"{name} must not be negative")
    if value > _INTEGER_MAX:
        raise BadRequest(f"{name} must not be greater than {_INTEGER_MAX}")
    return value


_EXACT, NOT_OLDER_THAN = "Exact", "NotOlderThan"
_MATCH = "resourceVersionMatch"


def check_list_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Check which parameters of a list or watch go together, as Kubernetes does.

    Raises:
        Invalid: some do not; the causes name them.
    """
    match, initial = query.get(_MATCH) or "", query.get("sendInitialEvents") or ""
    if not match and not initial:
        return
    faults = Faults()
    if watch:
        if initial and match != NOT_OLDER_THAN:
            message = f"sendInitialEvents requires setting {_MATCH} to {NOT_OLDER_THAN}"
            faults.forbidden(_MATCH, message)
        if match and not initial:
            message = f"{_MATCH} is forbidden for watch unless sendInitialEvents is provided"
            faults.forbidden(_MATCH, message)
        if match not in ("", NOT_OLDER_THAN):
            faults.not_supported(_MATCH, match, (NOT_OLDER_THAN,))
    else:
        if initial:
            faults.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")
        if match and not query.get("resourceVersion"):
            message = f"{_MATCH} is forbidden unless resourceVersion is provided"
            faults.forbidden(_MATCH, message)
        if match not in ("", _EXACT, NOT_OLDER_THAN):
            faults.not_supported(_MATCH, match, (_EXACT, NOT_OLDER_THAN, ""))
        if match == _EXACT and query.get("resourceVersion") == "0":
            message = f'{_MATCH} "exact" is forbidden for resourceVersion "0"'
            faults.forbidden(_MATCH, message)
    if match and query.get("continue"):
        faults.forbidden(_MATCH, f"{_MATCH} is forbidden when continue is provided")
    if faults.causes:
        listed = "; ".join(f"{cause.field}: {cause.message}" for cause in faults.causes)
        raise Invalid(
            f'ListOptions.meta.k8s.io "" is invalid: {listed}',
            kind="ListOptions",
            group="meta.k8s.io",
            causes=faults.causes,
        )
