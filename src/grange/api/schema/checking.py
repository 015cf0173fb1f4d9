"""Checking and completing documents against the schema of their kind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from grange.api.meta import Document
from grange.api.schema.compiler import Compiler
from grange.api.schema.definitions import Definitions, Schema, builtin, definitions_of, reference
from grange.api.schema.filling import compile_filler
from grange.api.schema.reporter import UNKNOWN_FIELD, Reporter
from grange.api.scheme import AnyKind
from grange.api.status import Cause


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What is made once from a definition.

    Attributes:
        schema: the definition.
        definitions: what it refers to.
        type: the msgspec type that a valid document converts to.
        exact: whether the type alone decides that a document is right.
        fill: puts in the schema's defaults, where it has any.
    """

    schema: Schema
    definitions: Definitions
    type: Any
    exact: bool
    fill: Callable[[Document], None] | None


_by_kind: WeakKeyDictionary[AnyKind, _Compiled] = WeakKeyDictionary()
_by_name: dict[str, _Compiled] = {}
# Kinds share most of their definitions; a definition is compiled once for all of them.
_compilers: WeakKeyDictionary[Definitions, Compiler] = WeakKeyDictionary()


def _compile(name: str, definitions: Definitions) -> _Compiled:
    compiler = _compilers.get(definitions)
    if compiler is None:
        compiler = _compilers[definitions] = Compiler(definitions)
    kind = compiler.definition(name)
    schema = reference(name)
    return _Compiled(schema, definitions, kind, compiler.exact, compile_filler(definitions, schema))


def _compiled(info: AnyKind) -> _Compiled:
    found = _by_kind.get(info)
    if found is None:
        found = _by_kind[info] = _compile(info.schema, definitions_of(info))
    return found


def _check(document: Document, compiled: _Compiled) -> list[Cause]:
    if compiled.exact:
        try:
            msgspec.convert(document, compiled.type)
        except msgspec.ValidationError:
            pass  # the reporter lists every fault, not only the first
        else:
            return []
    reporter = Reporter(compiled.definitions)
    reporter.visit(compiled.schema, document, "")
    return reporter.causes


def check(document: Document, info: AnyKind) -> list[Cause]:
    """Every way in which the document does not fit the schema of its kind.

    Null members mean absent and are removed from the document.

    Args:
        document: decoded by ``codec``, which bounds its depth.
        info: the kind that the request names.

    Returns:
        Unknown fields, wrong types, missing required fields, unsupported values, at most a
        hundred; empty when there is none.
    """
    return _check(document, _compiled(info))


def check_definition(document: Document, name: str) -> list[Cause]:
    """As ``check``, for a built-in definition that is not a kind (DeleteOptions, Binding).

    Args:
        document: decoded by ``codec``.
        name: of the definition, e.g. ``io.k8s.api.core.v1.Binding``.
    """
    found = _by_name.get(name)
    if found is None:
        found = _by_name[name] = _compile(name, builtin())
    return _check(document, found)


def is_unknown_field(cause: Cause) -> bool:
    """Whether the cause is an unknown field, which lenient field validation only warns about."""
    return cause.message.startswith(UNKNOWN_FIELD)


def drop_unknown(document: Document, info: AnyKind) -> list[Cause]:
    """Remove what the schema does not know, in place, as lenient field validation does.

    Returns:
        The faults that remain.
    """
    compiled = _compiled(info)
    reporter = Reporter(compiled.definitions, drop_unknown=True)
    reporter.visit(compiled.schema, document, "")
    return reporter.causes


def drop_unknown_of(document: Document, name: str) -> None:
    """As ``drop_unknown``, for a definition that ``check_definition`` has found unknown fields by."""
    compiled = _by_name[name]
    Reporter(compiled.definitions, drop_unknown=True).visit(compiled.schema, document, "")


def apply_defaults(document: Document, info: AnyKind) -> None:
    """Fill in what the document leaves out: the schema's defaults, then the kind's own.

    Args:
        document: has passed ``check``; changed in place. Doing it twice changes nothing more.
        info: its kind.
    """
    fill = _compiled(info).fill
    if fill is not None:
        fill(document)
    info.default(document)
