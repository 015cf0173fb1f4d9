"""A server's Table as aligned columns."""

from collections.abc import Sequence
from itertools import zip_longest

from grange.api.meta import Document
from grange.cli import terminal

_GAP = 3


def widths(rows: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[int]:
    """The width of each column's widest cell, and at least so much."""
    cells_of = zip_longest(list(least), *([len(cell) for cell in row] for row in rows), fillvalue=0)
    return [max(lengths) for lengths in cells_of]


def render(rows: Sequence[Sequence[str]], least: Sequence[int] = ()) -> list[str]:
    """Lines with columns as wide as their widest cell (and ``least``), three spaces apart."""
    shown = [[terminal.cell(text) for text in row] for row in rows]
    wide = widths(shown, least)
    return [
        "".join(text.ljust(wide[at] + _GAP) for at, text in enumerate(row)).rstrip()
        for row in shown
    ]


def cells(
    table: Document,
    *,
    wide: bool = False,
    prefix: str = "",
    namespaces: bool = False,
    labels: bool = False,
    label_columns: Sequence[str] = (),
) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of a ``meta.k8s.io/v1`` Table.

    Args:
        table: the Table.
        wide: also the columns of lower priority.
        prefix: of names.
        namespaces: a NAMESPACE column first.
        labels: a LABELS column last.
        label_columns: keys of labels that have a column, named by the part after the slash.
    """
    definitions = table.get("columnDefinitions", [])
    shown = [at for at, item in enumerate(definitions) if wide or not item.get("priority")]
    heading = [str(definitions[at]["name"]).upper() for at in shown]
    # As kubectl: the column of names has this format.
    name_at = next(
        (at for at, of in enumerate(shown) if definitions[of].get("format") == "name"), 0
    )
    rows = []
    for row in table.get("rows", []):
        values = [_text(row["cells"][at]) for at in shown]
        values[name_at] = prefix + values[name_at]
        metadata = row.get("object", {}).get("metadata", {})
        if namespaces:
            values.insert(0, str(metadata.get("namespace", "")))
        pairs = metadata.get("labels") or {}
        values += [str(pairs.get(key, "")) for key in label_columns]
        if labels:
            values.append(",".join(f"{key}={pairs[key]}" for key in sorted(pairs)) or "<none>")
        rows.append(values)
    if namespaces:
        heading.insert(0, "NAMESPACE")
    heading += [key.rpartition("/")[2].upper() for key in label_columns]
    if labels:
        heading.append("LABELS")
    return heading, rows


def _text(value: object) -> str:
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
