"""meta.k8s.io/v1 Table: rows of cells for people, made where the columns are known.

NAME comes first and AGE after the columns that are always shown, unless the kind places them itself.
"""

from collections.abc import Sequence
from typing import Literal

from grange.api.meta import Document
from grange.api.printing import cells
from grange.api.scheme import AnyKind, Column

Include = Literal["Metadata", "Object", "None"]

_NAME = Column("Name", cells.name, description="Name of the object.")
_AGE = Column("Age", cells.age, description="How long ago it was created.")


def columns_of(info: AnyKind) -> tuple[Column, ...]:
    """A kind's columns as they are shown, with NAME and AGE in their places."""
    given = {column.name for column in info.columns}
    head = () if _NAME.name in given else (_NAME,)
    age = () if _AGE.name in given else (_AGE,)
    # A kind that places NAME itself has no wide columns at the end to keep AGE away from.
    shown = tuple(column for column in info.columns if column.priority == 0)
    wide = tuple(column for column in info.columns if column.priority > 0)
    if _NAME.name in given:
        return info.columns
    return (*head, *shown, *age, *wide)


def table(
    info: AnyKind,
    documents: Sequence[Document],
    *,
    now: float,
    list_meta: Document,
    include: Include = "Metadata",
) -> Document:
    """The documents as a table.

    Args:
        info: their kind.
        documents: full documents, one row each.
        now: wall-clock seconds since the epoch, for ages.
        list_meta: metadata of the list: resourceVersion and where to go on.
        include: what each row carries besides its cells: the object's metadata, all of it, or nothing.
    """
    columns = columns_of(info)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": list_meta,
        "columnDefinitions": [
            {
                "name": column.name,
                "type": column.type,
                "format": "name" if column.name == _NAME.name else "",
                "description": column.description,
                "priority": column.priority,
            }
            for column in columns
        ],
        "rows": rows(info, documents, now=now, include=include),
    }


def rows(
    info: AnyKind, documents: Sequence[Document], *, now: float, include: Include
) -> list[Document]:
    """The rows of a table; see ``table``."""
    columns = columns_of(info)
    return [
        {
            "cells": [column.cell(document, now) for column in columns],
            "object": _object(document, include),
        }
        for document in documents
    ]


def _object(document: Document, include: Include) -> Document | None:
    if include == "Object":
        return document
    if include == "None":
        return None
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": document.get("metadata") or {},
    }
