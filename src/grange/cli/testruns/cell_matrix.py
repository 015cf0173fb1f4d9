"""A matrix: one manifest run with every combination of parameters.

Written as YAML or JSON into the annotation ``grange.dev/test-matrix``, or made of ``--matrix``
options. ``include`` and ``exclude`` mean what they mean in GitHub Actions.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click
import msgspec

from grange.api import codec
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.cli.testruns import parameters

ANNOTATION = "grange.dev/test-matrix"
"""Annotation of a manifest: its matrix."""

CAP = 256
"""Cells that a matrix may have by default."""

_SPELLED_OUT_MAX = 100_000
_KEYS = ("axes", "include", "exclude", "failFast", "repeat", "cap")


@dataclass(frozen=True, slots=True)
class CellMatrix:
    """A matrix.

    Attributes:
        axes: the values of each parameter.
        include: parameters that are added to the cells they agree with, else further cells.
        exclude: cells that agree with one of these are left out.
        fail_fast: the first bad end ends all cells.
        repeat: how often each cell is run.
        cap: a matrix with more cells is refused.
    """

    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    include: Sequence[Mapping[str, Any]] = ()
    exclude: Sequence[Mapping[str, Any]] = ()
    fail_fast: bool = False
    repeat: int = 1
    cap: int = CAP


def parse(text: str) -> CellMatrix:
    """The matrix of an annotation.

    Raises:
        click.UsageError: it is malformed; the message names the field.
    """
    try:
        documents = codec.load_yaml_documents(text)
    except ApiError as error:
        raise _fault("", error.message) from error
    if len(documents) != 1:
        raise _fault("", f"{len(documents)} documents where one is meant")
    found = documents[0]
    if unknown := sorted(set(found) - set(_KEYS)):
        raise _fault(unknown[0], f"no such field; the fields are {', '.join(_KEYS)}")
    axes = found.get("axes") or {}
    if not isinstance(axes, dict) or not all(isinstance(v, list) and v for v in axes.values()):
        raise _fault("axes", "give each parameter a list of values, as {size: [64, 4096]}")
    repeat, cap = found.get("repeat", 1), found.get("cap", CAP)
    for name, number in (("repeat", repeat), ("cap", cap)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise _fault(name, f"{number!r} is not a number greater than or equal to 1")
    fail_fast = found.get("failFast", False)
    if not isinstance(fail_fast, bool):
        raise _fault("failFast", "write true or false")
    return CellMatrix(
        axes=axes,
        include=_cells(found, "include"),
        exclude=_cells(found, "exclude"),
        fail_fast=fail_fast,
        repeat=repeat,
        cap=cap,
    )


def extended(matrix: CellMatrix, options: Sequence[str]) -> CellMatrix:
    """The matrix with axes of options ``KEY=A,B``; each replaces the axis of its key.

    Raises:
        click.UsageError: an option is malformed.
    """
    axes = dict(matrix.axes)
    for option in options:
        key, values = parameters.parse_pair(option)
        listed = [parameters.parse_value(item) for item in values.split(",")]
        if "" in listed:
            raise click.UsageError(f"--matrix {option}: a value is empty; write KEY=A,B")
        axes[key] = listed
    return replace(matrix, axes=axes)


def cells(matrix: CellMatrix) -> list[dict[str, Any]]:
    """The parameters of each cell, each cell once, in the order of the axes; at least one cell.

    Raises:
        click.UsageError: there are more than ``cap``, or none is left.
    """
    total = 1
    for values in matrix.axes.values():
        total *= len(values)
    if total > _SPELLED_OUT_MAX:  # exclusion cannot be meant to bring so many within the cap
        raise _too_many(total * matrix.repeat, matrix.cap)
    keys = list(matrix.axes)
    product = itertools.product(*matrix.axes.values())
    whole = [dict(zip(keys, chosen, strict=True)) for chosen in product]
    kept = [cell for cell in whole if not any(_agrees(cell, item) for item in matrix.exclude)]
    found = [dict(cell) for cell in kept] if keys else []
    added: list[dict[str, Any]] = []
    for item in matrix.include:
        fitting = [
            cell
            for original, cell in zip(kept, found, strict=False)
            if all(original.get(key, value) == value for key, value in item.items())
        ]
        for cell in fitting:
            cell.update(item)
        if not fitting:
            added.append(dict(item))
    found = _unique([*found, *added])
    if not found and not keys:
        found = [{}]
    if not found:
        raise click.UsageError("the matrix has no cell: everything is excluded")
    if len(found) * matrix.repeat > matrix.cap:
        raise _too_many(len(found) * matrix.repeat, matrix.cap)
    return found


def _agrees(cell: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(key in cell and cell[key] == value for key, value in wanted.items())


def _unique(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: dict[bytes, dict[str, Any]] = {}
    for cell in found:
        kept.setdefault(msgspec.json.encode(cell, order="sorted"), cell)
    return list(kept.values())


def _cells(found: Document, name: str) -> list[Mapping[str, Any]]:
    listed = found.get(name) or []
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise _fault(name, "give a list of objects, as [{size: 64}]")
    return listed


def _fault(name: str, text: str) -> click.UsageError:
    path = f"metadata.annotations[{ANNOTATION}]"
    return click.UsageError(f"{path}{'.' + name if name else ''}: {text}")


def _too_many(count: int, cap: int) -> click.UsageError:
    return click.UsageError(
        f"the matrix has {count} cells and {cap} are allowed; exclude some, or raise its cap"
    )
