"""A server's Table as aligned columns."""

from collections.abc import Sequence

from grange.api.meta import Document

_GAP = 3


def render(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with columns as wide as their widest cell, three spaces apart."""
    if not rows:
        return []
    columns = max(len(row) for row in rows)
    widths = [
        max((len(row[at]) for row in rows if at < len(row)), default=0) for at in range(columns)
    ]
    return [
        "".join(cell.ljust(widths[at] + _GAP) for at, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def cells(
    table: Document, *, wide: bool = False, namespaces: bool = False, labels: bool = False
) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of a ``meta.k8s.io/v1`` Table.

    Args:
        table: the Table.
        wide: also the columns of lower priority.
        namespaces: a NAMESPACE column first.
        labels: a LABELS column last.
    """
    definitions = table.get("columnDefinitions", [])
    shown = [at for at, item in enumerate(definitions) if wide or not item.get("priority")]
    heading = [str(definitions[at]["name"]).upper() for at in shown]
    rows = []
    for row in table.get("rows", []):
        values = [_text(row["cells"][at]) for at in shown]
        metadata = row.get("object", {}).get("metadata", {})
        if namespaces:
            values.insert(0, str(metadata.get("namespace", "")))
        if labels:
            pairs = metadata.get("labels", {})
            values.append(",".join(f"{key}={pairs[key]}" for key in sorted(pairs)) or "<none>")
        rows.append(values)
    if namespaces:
        heading.insert(0, "NAMESPACE")
    if labels:
        heading.append("LABELS")
    return heading, rows


def _text(value: object) -> str:
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
