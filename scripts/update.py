"""``make update``: write again what is generated from the source.

Usage: ``python -m scripts.update [--check]``: with ``--check`` nothing is written and the exit code
reports whether everything is up to date. Kubernetes' schemas change with a release, not with our
source: ``scripts/make_schema.py`` fetches and writes those.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from scripts import reference
from scripts.state_diagrams import DIAGRAMS

from grange.api import tables
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.pod_fields import FIELDS, Support
from grange.api.schema.definitions import PREFIX, Definitions, builtin
from grange.api.scheme import AnyKind
from grange.controllers.replication import condition_types
from grange.scheduler import plugins

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Kinds

What the API server serves, generated from `src/grange/api/kinds` by `make update`. Kinds of
Kubernetes have the fields of its release 1.36: those of the object, its spec and its status are
listed, `kubectl explain KIND` shows what is below them. A further kind is one module there and one
line in `kinds/__init__.py`.
"""


def kinds_page() -> str:
    """docs/reference/kinds.md."""
    parts = [HEAD, *_overview(), ""]
    for info in BUILT_IN:
        parts += [*_section(info), ""]
    return "\n".join(parts).rstrip() + "\n"


def _overview() -> Iterator[str]:
    yield "| kind | resource | short names | group and version | in a namespace |"
    yield "|---|---|---|---|---|"
    for info in BUILT_IN:
        link = f"[{info.kind}](#{info.kind.lower()})"
        short = ", ".join(f"`{name}`" for name in info.short_names) or "none"
        scope = "yes" if info.namespaced else "no"
        yield f"| {link} | `{info.plural}` | {short} | `{info.api_version}` | {scope} |"


def _section(info: AnyKind) -> Iterator[str]:
    yield f"## {info.kind}"
    yield ""
    module = sys.modules[info.view.__module__]
    yield (module.__doc__ or "").strip().partition("\n\n")[0]
    yield ""
    paths = info.parts
    if paths:
        yield f"Subresources: {', '.join(f'`{path}`' for path in sorted(paths))}."
        yield ""
    fields = sorted({"metadata.name", "metadata.namespace", *info.fields})
    if not info.namespaced:
        fields.remove("metadata.namespace")
    yield f"Field selectors: {', '.join(f'`{path}`' for path in fields)}."
    yield ""
    yield "| column | shown | meaning |"
    yield "|---|---|---|"
    for column in tables.columns_of(info):
        shown = "always" if column.priority == 0 else "`-o wide`"
        yield f"| {column.name.upper()} | {shown} | {column.description} |"
    yield ""
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    yield from _fields(info)


def _fields(info: AnyKind) -> Iterator[str]:
    """The fields of a kind: all for our own kinds, else those of the object, its spec and its status.

    Kubernetes' documentation and ``kubectl explain`` have what is below these.
    """
    own = Definitions(info.definitions, builtin())
    waiting: list[tuple[str, Document]] = [("", own.get(info.schema) or {})]
    while waiting:
        path, schema = waiting.pop(0)
        inner = []
        for name, part in schema.get("properties", {}).items():
            at = f"{path}.{name}" if path else name
            if at in ("apiVersion", "kind", "metadata"):
                continue
            target = str(part.get("$ref", "")).removeprefix(PREFIX)
            required = ", required" if name in schema.get("required", ()) else ""
            yield f"| `{at}` | {_type(part, target)}{required} | {_meaning(part)} |"
            if target in info.definitions:
                inner.append((at, info.definitions[target]))
            elif at in ("spec", "status") and not info.definitions:
                inner.append((at, own.get(target) or {}))
        waiting = inner + waiting


def _type(part: Document, target: str) -> str:
    if target:
        return target.rpartition(".")[2]
    if part.get("type") == "array":
        return f"list of {_item(part['items'])}"
    if "additionalProperties" in part:
        return f"map of {_item(part['additionalProperties'])}"
    if "enum" in part:
        return " or ".join(f"`{choice}`" for choice in part["enum"])
    return str(part.get("type", "any"))


def _item(part: Document) -> str:
    return str(part.get("$ref", part.get("type"))).rpartition(".")[2]


def _meaning(part: Document) -> str:
    default = part.get("default")
    text = str(part.get("description", ""))
    return f"{text} Default: `{default}`." if default not in (None, {}) else text


def drawn(name: str) -> str:
    """A page with the diagrams of its state machines as the tables have them now."""
    page = (ROOT / name).read_text(encoding="utf-8")
    for title, diagram in DIAGRAMS[name].items():
        head = f"<!-- {title} -->\n```mermaid\n"
        before, found, rest = page.partition(head)
        if not found:
            raise ValueError(f"{name}: no place for the diagram {title}: write {head!r} and ```")
        page = before + head + diagram + rest[rest.index("```\n") :]
    return page


def filled(name: str, title: str, lines: Iterator[str]) -> str:
    """A page with what is generated between the marks of this title."""
    page = (ROOT / name).read_text(encoding="utf-8")
    head, tail = f"<!-- {title} -->\n", f"<!-- end of {title} -->\n"
    before, found, rest = page.partition(head)
    if not found or tail not in rest:
        raise ValueError(f"{name}: no place for {title}: write {head!r} and {tail!r}")
    return before + head + "\n".join(lines) + "\n" + rest[rest.index(tail) :]


def pod_fields() -> Iterator[str]:
    """What becomes of each field of a pod, as tables."""
    for support in Support:
        yield f"\n### {support.value.capitalize()}\n"
        yield "| in | fields | note |"
        yield "|---|---|---|"
        rows: dict[tuple[str, str], list[str]] = {}
        for field in FIELDS.values():
            twin = FIELDS.get(field.path.replace("initContainers[]", "containers[]", 1))
            alone = twin is None or twin is field or replace(twin, path=field.path) != field
            if field.support is support and alone:
                covered = f" (warned about with {field.covered_by})" if field.covered_by else ""
                holder, _, name = f"spec.{field.path}".rpartition(".")
                rows.setdefault((holder, f"{field.warning}{covered}"), []).append(f"`{name}`")
        for (holder, note), names in rows.items():
            yield f"| `{holder}` | {', '.join(names)} | {note} |"
    yield ""


def conditions() -> Iterator[str]:
    """The conditions of a ReplicationController, as a table of statuses and reasons."""
    yield ""
    yield "| condition | status | reason | meaning |"
    yield "|---|---|---|---|"
    for condition, kind in condition_types.CONDITIONS.items():
        yield f"| `{condition}` | | | {kind.meaning} |"
        for name, reason in sorted(kind.reasons.items(), key=lambda item: _ORDER[item[1].status]):
            yield f"| | {reason.status} | `{name}` | {reason.meaning} |"
    yield ""


_EXTENSION_POINTS = {
    "pre_enqueue": "PreEnqueue",
    "queue_sort": "QueueSort",
    "pre_filter": "PreFilter",
    "filter": "Filter",
    "post_filter": "PostFilter",
    "score": "Score",
    "topology": "Filter, Score",
    "reserve": "Reserve",
    "permit": "Permit",
    "bind": "Bind",
}


def scheduler_plugins() -> Iterator[str]:
    """The plugins of the default profile, as a table of the first words of their modules."""
    found = vars(plugins).values()
    modules = {item.PLUGIN.name: item for item in found if hasattr(item, "PLUGIN")}
    yield ""
    yield "| plugin | extension points | what it does | weight |"
    yield "|---|---|---|--:|"
    for plugin in plugins.DEFAULT:
        text = " ".join((modules[plugin.name].__doc__ or "").partition("\n\n")[0].split())
        does = text.removeprefix(f"{plugin.name}: ").removesuffix(".").replace("``", "`")
        points = [point for name, point in _EXTENSION_POINTS.items() if getattr(plugin, name)]
        scores = plugin.score is not None or plugin.topology is not None
        weight = plugin.weight if scores else ""
        yield f"| {plugin.name} | {', '.join(points)} | {does} | {weight} |"
    yield ""


_ORDER = {"True": 0, "False": 1, "Unknown": 2}

PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/commands.md": reference.commands_page,
    "docs/reference/configuration.md": reference.configuration_page,
    "docs/reference/metrics.md": reference.metrics_page,
    "docs/reference/python.md": reference.python_page,
    "src/grange/__init__.pyi": reference.stub,
    "docs/reference/compatibility.md": lambda: filled(
        "docs/reference/compatibility.md", "pod fields", pod_fields()
    ),
    "docs/reference/kinds.md": kinds_page,
    **{name: partial(drawn, name) for name in DIAGRAMS},
    "docs/reference/scheduling.md": lambda: filled(
        "docs/reference/scheduling.md", "plugins", scheduler_plugins()
    ),
    "docs/reference/replication.md": lambda: filled(
        "docs/reference/replication.md", "conditions", conditions()
    ),
}


def stale() -> list[str]:
    """The generated files that differ from their source."""
    return [
        name
        for name, page in PAGES.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != page()
    ]


def main() -> None:
    """Write, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="only report whether all is up to date"
    )
    check = parser.parse_args().check
    found = stale()
    for name in found:
        print(f"{name}: {'out of date; run `make update`' if check else 'written'}")
        if not check:
            (ROOT / name).write_text(PAGES[name](), encoding="utf-8")
    sys.exit(1 if check and found else 0)


if __name__ == "__main__":
    main()
