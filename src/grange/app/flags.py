"""Command-line options declared as fields of a dataclass.

One ``flag(…)`` is the whole declaration: from it come the option of the command, the field of the
value that the command works with, the words for a child process that shall work with the same value,
and the row of the reference page.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

C = TypeVar("C", bound=Callable[..., Any])

_KEY = "flag"


@dataclass(frozen=True, slots=True)
class Flag:
    """How a field is given on the command line.

    Attributes:
        name: the option, for example ``--nodes``.
        help: one sentence; also the beginning of its row on the reference page.
        details: the rest of the row.
        type: converts the text; ``str`` of a value must be such a text.
        metavar: stands for the value in help texts.
        shown_default: what the option does when it is not given, where the field's default does
            not show it.
        aliases: further names.
        variable: an environment variable that holds it, too. A child process gets the value through
            it, because other users can read the words of a process.
    """

    name: str
    help: str
    details: str = ""
    type: click.ParamType[Any] | type | None = None
    metavar: str | None = None
    shown_default: str = ""
    aliases: tuple[str, ...] = ()
    variable: str = ""


def flag(name: str, help: str, details: str = "", **more: Any) -> dict[str, Flag]:  # noqa: A002  click's word
    """Metadata that makes a field an option; see ``Flag`` for the parts.

    The field's default decides what the option takes: ``False`` makes a switch, ``()`` an option
    that may be repeated.
    """
    return {_KEY: Flag(name, help, details, **more)}


def options(source: type, *names: str) -> Callable[[C], C]:
    """Give a command the options of a dataclass.

    Each reaches the command under the name of its field. One that was not given is None, or empty
    where it may be repeated: use ``given``.

    Args:
        source: the dataclass.
        names: only these fields; one that was not given has the field's default then.
    """

    def decorate(command: C) -> C:
        for name, (declared, default) in reversed(_declared(source).items()):
            if not names:
                command = _option(name, declared, default)(command)
            elif name in names:
                command = _option(name, declared, default, default=default)(command)
        return command

    return decorate


def given(source: type, options: dict[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass that were given on the command line."""
    return {name: options[name] for name in _declared(source) if options[name] not in (None, ())}


def words(value: object) -> list[str]:
    """The words of a command line that give the same value, except for what may be secret."""
    found: list[str] = []
    for name, (declared, _) in _declared(type(value)).items():
        here = getattr(value, name)
        if declared.variable or not here:
            continue
        if here is True:
            found.append(declared.name)
            continue
        for item in here if type(here) is tuple else (here,):  # a named tuple is one value
            found += [declared.name, _text(item)]
    return found


def variables(value: object) -> dict[str, str]:
    """The environment variables that go with ``words``."""
    return {
        declared.variable: _text(getattr(value, name))
        for name, (declared, _) in _declared(type(value)).items()
        if declared.variable
    }


def rows(command: click.Command, source: type) -> Iterator[str]:
    """The options of a command as a table of the reference page."""
    declared = _declared(source)
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        names = [name if option.is_flag else f"{name} {_metavar(option)}" for name in option.opts]
        found, default = declared.get(option.name or "", (Flag("", ""), None))
        shown = found.shown_default or ("off" if option.is_flag else f"`{_text(default)}`")
        if default in ((), None, "") and not option.is_flag and not found.shown_default:
            shown = "none"
        meaning = " ".join(filter(None, (option.help, found.details)))
        yield f"| {', '.join(f'`{name}`' for name in names)} | {shown} | {meaning} |"


class CommaSet(click.ParamType[frozenset[str]]):
    """Names separated by commas.

    Args:
        choices: the names that there are.
    """

    name = "names"

    def __init__(self, choices: tuple[str, ...]) -> None:
        self._choices = choices

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        """The names as a set."""
        return frozenset(filter(None, value.split(",")))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[Any]:
        """The names for the last one of the list."""
        from click.shell_completion import CompletionItem

        before, comma, last = incomplete.rpartition(",")
        return [
            CompletionItem(f"{before}{comma}{name}")
            for name in self._choices
            if name.startswith(last)
        ]


class AbsolutePath(click.Path):
    """A path that means the same in a process with another current directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path from the root."""
        return Path(os.fsdecode(super().convert(value, param, ctx))).absolute()


def _declared(source: type) -> dict[str, tuple[Flag, Any]]:
    return {
        field.name: (field.metadata[_KEY], field.default)
        for field in dataclasses.fields(source)
        if _KEY in field.metadata
    }


def _option(
    name: str, declared: Flag, of_field: object, *, default: object = None
) -> Callable[[C], C]:
    shown = declared.shown_default or _text(of_field)
    settings: dict[str, Any] = {
        "help": declared.help,
        "envvar": declared.variable or None,
        "default": default,
    }
    if of_field is False:
        settings |= {"is_flag": True}
    else:
        settings |= {
            "type": declared.type or str,
            "multiple": of_field == (),
            "metavar": declared.metavar,
            "show_default": shown if shown not in ("", "none") else None,
        }
    return click.option(declared.name, *declared.aliases, name, **settings)


def _metavar(option: click.Option) -> str:
    return option.metavar or (option.type.name or "").upper()


def _text(value: object) -> str:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if value is None or value is dataclasses.MISSING or value == ():
        return ""
    return str(value)
