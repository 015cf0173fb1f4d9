"""Commands of click as this program uses them: examples in every help text, groups that load late."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

import click


class Section(StrEnum):
    """The parts of the list of verbs, in the order in which they are shown."""

    RUN = "Run"
    DEPLOY = "Deploy"
    INSPECT = "Inspect"
    DIAGNOSE = "Diagnose"
    OPERATE = "Operate"


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives.

    Attributes:
        section: where the list of verbs shows it.
        module: dotted name; it exports ``command``.
        help: one line.
        name: of the command in its module.
        replaces: an older name of the verb that still works and is not shown.
    """

    section: Section
    module: str
    help: str
    name: str = "command"
    replaces: str = ""


class Command(click.Command):
    """A command whose help shows examples.

    Attributes:
        examples: command lines, as a user types them.
    """

    def __init__(self, *args: Any, examples: tuple[str, ...] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description and the examples after it."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class Group(click.Group):
    """A group whose commands have examples."""

    command_class = Command


class LazyGroup(click.Group):
    """A group whose commands are imported on use.

    ``grange --help`` must answer at once, so nothing heavier than click is imported for it.

    Args:
        verbs: by name, in the order in which their sections show them.
    """

    def __init__(self, *, verbs: Mapping[str, Verb], **settings: Any) -> None:
        super().__init__(**settings)
        self._verbs = dict(verbs)
        self._replaced = {item.replaces: name for name, item in verbs.items() if item.replaces}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, section by section."""
        order = list(Section)
        return sorted(self._verbs, key=lambda name: order.index(self._verbs[name].section))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a verb; None if there is no such verb."""
        found = self._verbs.get(self._replaced.get(cmd_name, cmd_name))
        if found is None:
            return None
        command = getattr(import_module(found.module), found.name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{found.module}.{found.name} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs by section, without importing any."""
        width = max(map(len, self._verbs), default=0)
        for section in Section:
            rows = [
                (name.ljust(width), item.help)
                for name, item in self._verbs.items()
                if item.section is section
            ]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the arguments name.

        Raises:
            NoSuchCommand: there is none; the message names those that are spelled alike.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(
                error.command_name, possibilities=self._verbs, ctx=ctx
            ) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The verbs that begin so, with their one line of help, without importing any."""
        from click.shell_completion import CompletionItem

        if incomplete and not incomplete[0].isalnum():
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=self._verbs[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
