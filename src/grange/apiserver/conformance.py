"""Fitting a document to the schema of its kind, and the errors for one that does not fit."""

from collections.abc import Sequence

from grange.api import codec, schema
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, BadRequest, Cause, Invalid
from grange.api.validation import validate
from grange.apiserver.write_options import IGNORE, STRICT, WriteOptions

_MISSING = "FieldValueRequired"
_LISTED_CAUSES = 10


def conform(
    info: AnyKind, document: Document, options: WriteOptions, old: Document | None = None
) -> tuple[str, ...]:
    """Fit the document, which has its envelope, to its schema; fill in defaults; returns warnings.

    One that does not fit is refused with what the causes found by the rules beyond the schema are included.

    Raises:
        BadRequest: it has unknown or duplicate fields, under strict field validation.
        Invalid: something has the wrong type, is missing, or is none of the choices.
    """
    causes = schema.check(document, info)
    warnings: tuple[str, ...] = ()
    if causes or options.duplicates:
        unknown = [cause for cause in causes if schema.is_unknown_field(cause)]
        others = [cause for cause in causes if cause not in unknown]
        unknown += [duplicate_cause(path) for path in options.duplicates]
        warnings = tuple(cause.message for cause in unknown)
        if unknown and options.field_validation == STRICT:
            # A misspelt field is often why another one is missing: report both, the cause first.
            messages = [*warnings, *(f"{cause.field}: {cause.message}" for cause in others)]
            raise BadRequest(
                f'{info.kind} in version "{info.version}" cannot be handled as a {info.kind}: '
                f"strict decoding error: {', '.join(messages)}",
                kind=info.plural,
                group=info.group,
                causes=[*unknown, *others],
            )
        refuse(info, document, others and completed(info, document, old, others))
        refuse(info, document, schema.drop_unknown(document, info))
        if options.field_validation == IGNORE:
            warnings = ()
    schema.apply_defaults(document, info)
    return warnings


def conforms_without_spec(info: AnyKind, pod: Document, options: WriteOptions) -> bool:
    """Fit all of a stored pod but its spec to the schema; fill in defaults.

    Returns:
        False where ``conform`` is needed: for errors, warnings and what depends on the spec.
    """
    status = pod.get("status")
    if options.duplicates or not isinstance(status, dict) or status.get("qosClass") is None:
        return False
    rest = {field: value for field, value in pod.items() if field != "spec"}
    if schema.check(rest, info):
        return False
    schema.apply_defaults(rest, info)  # changes the status; the spec that it adds is dropped
    return True


def duplicate_cause(path: str) -> Cause:
    """A field that the body has more than once."""
    return Cause("FieldValueDuplicate", f'duplicate field "{path}"', path)


def completed(
    info: AnyKind, document: Document, old: Document | None, found: Sequence[Cause]
) -> list[Cause]:
    """What the schema found, and what the rules find in the rest of a document that does not fit it.

    Of what is missing the schema knows no more than that; where the rules have advice, their message is used.

    Rules are written for documents that fit. So they get a copy without the fields at fault; where they
    stumble all the same, what was found is all that is returned.
    """
    rest: Document = codec.clone(document)
    for cause in found:
        _drop(rest, cause.field)
    try:
        schema.apply_defaults(rest, info)
        causes = validate(rest, old, info)
    except Exception:  # noqa: BLE001  rules may trust what the schema has just denied
        return [*found]
    known = tuple(cause.field for cause in found)
    missing = {cause.field: cause for cause in causes if cause.reason == _MISSING}
    advised = [
        missing.get(cause.field, cause) if cause.reason == _MISSING else cause for cause in found
    ]
    return [*advised, *(cause for cause in causes if not _concerns(cause.field, known))]


def _drop(document: Document, path: str) -> None:
    """Take away a field of an object; one in a list or a map stays."""
    *parents, field = path.split(".")
    for name in parents:
        part = document.get(name)
        if not isinstance(part, dict):
            return
        document = part
    document.pop(field, None)


def _concerns(field: str, known: Sequence[str]) -> bool:
    """Whether a field is one of these, is in one, or contains one."""
    return any(
        field == other
        or field.startswith((f"{other}.", f"{other}["))
        or other.startswith((f"{field}.", f"{field}["))
        for other in known
    )


def refuse(info: AnyKind, document: Document, causes: list[Cause]) -> None:
    """Raise ``Invalid`` if there are causes."""
    if causes:
        raise invalid(info, str(document["metadata"].get("name") or ""), causes)


def invalid(info: AnyKind, name: str, causes: Sequence[Cause]) -> ApiError:
    """The error for an object with these faults; the message lists the first of them."""
    faults = [f"{cause.field}: {cause.message}" for cause in causes[:_LISTED_CAUSES]]
    if len(causes) > _LISTED_CAUSES:
        faults.append(f"and {len(causes) - _LISTED_CAUSES} more")
    listed = faults[0] if len(faults) == 1 else f"[{', '.join(faults)}]"
    return Invalid(
        f'{info.kind} "{name}" is invalid: {listed}',
        kind=info.kind,
        name=name,
        group=info.group,
        causes=causes,
    )
