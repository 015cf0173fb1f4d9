"""The reference pages that are generated whole: commands, configuration, metrics, Python."""

import ast
import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import grange
import grange.jobs
import grange.sessions
from grange.app import agent_settings, controllers, flags, node_agent, up
from grange.app.main import VERBS as APP_VERBS
from grange.app.settings import Settings
from grange.cli.command import Section
from grange.cli.main import VERBS, group

SOURCE = Path(grange.__file__).parent
_METRICS = {
    "CollectedCounter",
    "CollectedGauge",
    "Counter",
    "Gauge",
    "Histogram",
    "QuickCounter",
    "QuickHistogram",
}
_NOTE = "Generated from the source by `make update`.\n"
_SECTIONS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Raises"}


def commands_page() -> str:
    """docs/reference/commands.md: every verb with its options, from the commands of click."""
    root = group(APP_VERBS, grange.__version__)
    verbs = {**APP_VERBS, **VERBS}
    parts = ["# Commands\n", _NOTE]
    parts.append("What all verbs have in common is in [the command line](cli.md).\n")
    context = click.Context(root, info_name="grange")
    for section in Section:
        parts.append(f"## {section}\n")
        for name, verb in verbs.items():
            if verb.section is section:
                command = root.get_command(context, name)
                if command is not None:
                    parts += _command(command, name, context)
    return "\n".join(parts)


def _command(command: click.Command, name: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"### {context.command_path}\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    examples = getattr(command, "examples", ())
    yield "\n".join(["```text", usage, *(f"  {line}" for line in examples), "```\n"])
    options = [
        option
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    ]
    if options:
        yield "| option | meaning |\n|---|---|"
        for option in options:
            words, text = option.get_help_record(context) or ("", "")
            yield f"| `{_cell(words)}` | {_cell(text)} |"
        yield ""
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            if found is not None and not found.hidden:
                yield from _command(found, inner, context)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def configuration_page() -> str:
    """docs/reference/configuration.md: options, variables and settings."""
    variables = [
        ("GRANGE_DATA_DIR", "the data directory of `grange up` and `grange down`"),
        ("KUBECONFIG", "the kubeconfigs of all other verbs, separated by colons"),
        *((f.variable, f.help) for f in _flags() if f.variable),
        ("NO_COLOR", "if set, output has no colors"),
    ]
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in variables)
    return "\n".join(
        [
            "# Configuration\n",
            _NOTE,
            "There is no configuration file but the scheduler's: see "
            "[scheduling](scheduler-configuration.md).\n",
            "## `grange up`\n",
            *flags.rows(up.command, Settings),
            "\n## `grange agent`\n",
            *flags.rows(node_agent.command, agent_settings.AgentSettings),
            "\n## `grange controllers`\n",
            *flags.rows(controllers.command, Settings),
            "\n## Environment variables\n",
            "| variable | meaning |\n|---|---|",
            rows,
            "",
        ]
    ).replace("(see below)", "([where](cli.md#grange-up))")


def _flags() -> Iterator[flags.Flag]:
    for field in dataclasses.fields(Settings):
        found = field.metadata.get("flag")
        if found is not None:
            yield found


def metrics_page() -> str:
    """docs/reference/metrics.md: every instrument that the source makes."""
    parts = ["# Metrics\n", _NOTE]
    parts.append(
        "`grange up` serves them at `/metrics` of the API server, `grange controllers` at `--metrics-listen`, "
        "in the text format of Prometheus, "
        "for callers with a credential. Histograms have `_bucket`, `_sum` and `_count`.\n"
    )
    rooms: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            row = _metric(node)
            if row is not None:
                room = path.relative_to(SOURCE).parts[0]
                rooms.setdefault(room, []).append(row)
    for room, rows in sorted(rooms.items()):
        parts += [f"## {room}\n", "| metric | type | labels | meaning |\n|---|---|---|---|"]
        parts += [*sorted(rows), ""]
    return "\n".join(parts)


def _metric(node: ast.AST) -> str | None:
    """The row of a metric, if the node makes one."""
    if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in _METRICS:
        return None
    values = [_literal(value) for value in node.args]
    if len(values) < 2 or not str(values[0]).startswith("grange_"):
        return None
    type_ = getattr(node.func, "id", "").removeprefix("Quick").removeprefix("Collected").lower()
    name = f"{values[0]}_total" if type_ == "counter" else values[0]
    labels = ", ".join(f"`{label}`" for label in (values[2] if len(values) > 2 else ()) or ())
    return f"| `{name}` | {type_} | {labels or 'none'} | {_cell(str(values[1]))} |"


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def python_page() -> str:
    """docs/reference/python.md: the public names, with signatures and docstrings."""
    parts = ["# Python\n", _NOTE, inspect.cleandoc(_overview()) + "\n"]
    groups = _groups()
    for title, names in groups.items():
        parts.append(f"## {title}\n")
        for name in names:
            parts += _name(name, getattr(grange, name))
    parts += ["## Jobs\n", "These names are in `grange.jobs`, not in `grange`.\n"]
    for name in grange.jobs.__all__:
        parts += _name(name, getattr(grange.jobs, name))
    where = "These names are in `grange.sessions`, not in `grange`; `Controller` is `SessionController`."
    parts += ["## Sessions\n", f"{where}\n"]
    for name in grange.sessions.__all__:
        if getattr(grange.sessions, name).__name__ == name:  # no second entry for another name
            parts += _name(name, getattr(grange.sessions, name))
    return "\n".join(parts)


def _overview() -> str:
    text = inspect.getdoc(grange) or ""
    code = re.compile(r"((?:^    .*\n|^\n(?=    ))+)", re.MULTILINE)
    plain = text.partition("\n\n")[2].replace("``", "`")
    return code.sub(lambda found: f"```python\n{inspect.cleandoc(found[1])}\n```\n", plain)


def _groups() -> dict[str, list[str]]:
    """The public names under the comments of their table."""
    groups: dict[str, list[str]] = {}
    lines = iter(inspect.getsource(grange).splitlines())
    for line in lines:
        if comment := re.fullmatch(r"    # (.+)\.", line):
            groups[comment[1]] = []
        elif groups and (entry := re.match(r'    "(\w+)":', line)):
            groups[[*groups][-1]].append(entry[1])
    return groups


def _name(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if inspect.isclass(value):
        if not issubclass(value, Exception) and not getattr(value, "_is_protocol", False):
            yield f"```python\n{name}{_signature(value)}\n```\n"
        yield from _documented(value)
        for member, function in inspect.getmembers(value, inspect.isfunction):
            if member.startswith("_") or not _defined_in(value, function):
                continue
            words = "async " if inspect.iscoroutinefunction(function) else ""
            yield f"#### {name}.{member}\n"
            yield f"```python\n{words}{member}{_signature(function)}\n```\n"
            yield from _documented(function)
    elif callable(value) and not isinstance(value, type(int | str)):
        yield f"```python\n{name}{_signature(value)}\n```\n"
        yield from _documented(value)
    elif hasattr(value, "api_version"):
        view = value.view.__name__
        yield f"The kind {value.kind}, `{value.api_version}`; its view is `{view}`.\n"
    else:
        yield f"`{value}`\n".replace("grange.reconcile.controller.", "")


def _defined_in(owner: type, function: Any) -> bool:
    """Whether a method is the class's own, or inherited from another class that is no error."""
    bases = (owner,) if issubclass(owner, Exception) else owner.__mro__
    classes = {one.__name__ for one in bases if one.__module__.startswith("grange")}
    return function.__qualname__.partition(".")[0] in classes


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(…)"
    text = re.sub(r"\b(?:grange|collections|typing|pathlib|datetime)(?:\.\w+)*\.(\w+)", r"\1", text)
    text = re.sub(r"<factory>|<function \S+ at 0x[0-9a-f]+>|<[^>]* at 0x[^>]*>|UNSET", "…", text)
    text = re.sub(
        r"Union\[([^\[\],]+), ([^\[\]]+\[[^\[\]]*\])\]", r"\1 | \2", text.replace("~", "")
    )
    text = text.replace("self, ", "").replace("(self)", "()")
    if len(text) > 90:
        inner = re.sub(r", (?=\w+:|\*)", ",\n    ", text[1 : text.rindex(")")])
        text = f"(\n    {inner},\n{text[text.rindex(')') :]}"
    return text


def _documented(value: Any) -> Iterator[str]:
    """A docstring of Google's convention as Markdown."""
    text = inspect.getdoc(value) or ""
    for block in re.split(r"\n\n", text):
        head, _, rest = block.partition(":\n")
        if head in _SECTIONS or head in ("Returns", "Yields"):
            yield f"{_SECTIONS.get(head, head)}:\n"
            yield from _items(inspect.cleandoc("\n" + rest), named=head in _SECTIONS)
        elif block.startswith(">>>"):
            lines = [line[4:] for line in block.splitlines()]
            yield "\n".join(["```python", *lines, "```\n"])
        elif block.startswith("    ") or "::" in block:
            code = block.replace("::", "").strip("\n")
            if code.strip():
                yield f"```python\n{inspect.cleandoc(code)}\n```\n"
        else:
            yield block.replace("``", "`") + "\n"


def _items(text: str, *, named: bool) -> Iterator[str]:
    flat = re.sub(r"\n +", " ", text).replace("``", "`")
    if not named:
        yield flat.replace("\n", " ") + "\n"
        return
    for line in flat.splitlines():
        name, _, meaning = line.partition(": ")
        yield f"- `{name}`: {meaning}" if meaning else f"- {line}"
    yield ""


def stub() -> str:
    """``grange/__init__.pyi``: the public names with their types, for type checkers and editors."""
    modules: dict[str, list[str]] = {}
    for name, module in grange.PUBLIC.items():
        modules.setdefault(module, []).append(name)
    lines = ["# Generated from the table in __init__.py by `make update`."]
    for module, names in sorted(modules.items()):
        listed = "".join(f"    {name} as {name},\n" for name in sorted(names))
        lines.append(f"from {module} import (\n{listed})")
    lines += ["", "PUBLIC: dict[str, str]", "__version__: str", "__all__: list[str]", ""]
    return "\n".join(lines)
