"""Full objects as YAML, JSON, names, JSONPath or custom columns."""

from collections.abc import Sequence

import click
import yaml

from grange.api.fields import lookup
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import terminal
from grange.cli.printers import jsonpath, table

REPORT = ("json", "yaml", "jsonpath=")  # of what is no object of the API
OBJECT = ("json", "yaml", "name", "jsonpath=", "custom-columns=")
TABLE = ("wide", *OBJECT)


def is_document_format(output: str) -> bool:
    """Whether the format needs full objects rather than the server's table."""
    return output not in {"", "wide"}


def listed(formats: Sequence[str]) -> str:
    """The formats for a sentence."""
    return ", ".join(f"{name}…" if name.endswith("=") else name for name in formats)


def check(output: str, formats: Sequence[str] = OBJECT) -> None:
    """Refuse an unknown format before anything is done.

    Raises:
        click.BadParameter: it is none of the formats.
    """
    name = output.partition("=")[0]
    if name not in {known.rstrip("=") for known in formats}:
        what = f'unknown output format "{output}"'
        if output == "wide":
            what = 'no output format "wide" here'
        raise click.BadParameter(f"{what}; there are: {listed(formats)}")


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
    if name == "custom-columns":
        return _custom_columns(argument, [item for _, item in found])
    whole: Document = (
        found[0][1]
        if single and len(found) == 1
        else {"apiVersion": "v1", "kind": "List", "items": [item for _, item in found]}
    )
    return report(output, whole)


def report(output: str, document: Document) -> str:
    """One document in the format that ``-o`` names.

    Raises:
        click.UsageError: the format is not one of ``REPORT``.
    """
    check(output, REPORT)
    name, _, argument = output.partition("=")
    if name == "json":
        return terminal.json_text(document) + "\n"
    if name == "yaml":
        return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True)
    return jsonpath.evaluate(argument, document)


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
