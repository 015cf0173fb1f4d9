"""Full objects as YAML, JSON, names, JSONPath or custom columns."""

from collections.abc import Sequence

import click
import yaml

from grange.api.fields import lookup
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import terminal
from grange.cli.printers import jsonpath, table

_DOCUMENTS = "yaml, json, name, jsonpath=…, custom-columns=…"
FORMATS = f"wide, {_DOCUMENTS}"
_NAMES = frozenset({"yaml", "json", "name", "jsonpath", "custom-columns"})


def is_document_format(output: str) -> bool:
    """Whether the format needs full objects rather than the server's table."""
    return output not in {"", "wide"}


def check(output: str) -> None:
    """Refuse what ``render`` does not know, before anything is done.

    Raises:
        click.UsageError: the format is not known.
    """
    if output == "wide":
        raise click.UsageError(f'output format "wide" is for lists; there are: {_DOCUMENTS}')
    if output.partition("=")[0] not in _NAMES:
        raise click.UsageError(f'unknown output format "{output}"; there are: {FORMATS}')


def version(document: Document) -> int:
    """Grows with every write, so it orders what was written at one time; 0 if there is none."""
    found = str(lookup(document, "metadata.resourceVersion") or "")
    return int(found) if found.isdecimal() else 0


def render(output: str, found: Sequence[tuple[AnyKind, Document]], *, single: bool) -> str:
    """The objects in the format that ``-o`` names.

    Args:
        output: the value of ``-o``.
        found: the objects with their kinds.
        single: exactly one object was asked for by name, so it is not wrapped in a List.

    Raises:
        click.UsageError: the format is not known.
    """
    check(output)
    name, _, argument = output.partition("=")
    if name == "name":
        return "".join(f"{resource(kind)}/{_name(item)}\n" for kind, item in found)
    whole: Document = (
        found[0][1]
        if single and len(found) == 1
        else {"apiVersion": "v1", "kind": "List", "items": [item for _, item in found]}
    )
    if name == "json":
        return terminal.json_text(whole) + "\n"
    if name == "yaml":
        return yaml.dump(whole, Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True)
    if name == "jsonpath":
        return jsonpath.evaluate(argument, whole)
    return _custom_columns(argument, [item for _, item in found])


def _custom_columns(spec: str, items: Sequence[Document]) -> str:
    columns = [part.partition(":") for part in spec.split(",") if part]
    if not columns or any(not path for _, _, path in columns):
        raise click.UsageError("custom columns look like NAME:.metadata.name,NODE:.spec.nodeName")
    rows = [[heading for heading, _, _ in columns]]
    rows += [
        [jsonpath.evaluate(f"{{{path}}}", item) or "<none>" for _, _, path in columns]
        for item in items
    ]
    return "".join(f"{line}\n" for line in table.render(rows))


def resource(kind: AnyKind) -> str:
    """``pod`` or ``replicationcontroller.grange.dev``, as kubectl names what it did."""
    return f"{kind.singular}.{kind.group}" if kind.group else kind.singular


def _name(item: Document) -> str:
    return str(item.get("metadata", {}).get("name", ""))
