"""The command group: verbs are named here and imported when they are called.

``grange --help`` must answer at once, so the table holds each verb's module and its one line of
help; nothing heavier than click is imported until a verb runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import IO, Any

import click

from grange.api.status import ApiError
from grange.base.errors import GrangeError

USAGE_ERROR = 64  # sysexits' EX_USAGE; 2 means "infrastructure" for test sessions


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives.

    Attributes:
        module: dotted name; it exports ``command``.
        help: one line.
    """

    module: str
    help: str


VERBS: dict[str, Verb] = {
    "apply": Verb("grange.cli.verbs.apply", "Create or change objects from manifests."),
    "delete": Verb("grange.cli.verbs.delete", "Delete objects."),
    "describe": Verb("grange.cli.verbs.describe", "Show an object, its conditions and its events."),
    "get": Verb("grange.cli.verbs.get", "List objects, or show some."),
    "logs": Verb("grange.cli.verbs.logs", "Print what containers write."),
    "scale": Verb("grange.cli.verbs.scale", "Set how many copies there shall be."),
    "wait": Verb("grange.cli.verbs.wait", "Wait until objects meet a condition."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use.

    Args:
        verbs: name to module and help.
    """

    def __init__(self, *, verbs: Mapping[str, Verb], **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]  # click types its many keywords
        self._verbs = dict(sorted(verbs.items()))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in alphabetical order."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a verb; None if there is no such verb."""
        verb = self._verbs.get(cmd_name)
        if verb is None:
            return None
        command = import_module(verb.module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.module}.command is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self._verbs.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; deliberate errors become one clear line and exit code 1."""
        try:
            return super().invoke(ctx)
        except ApiError as error:
            raise ServerError(_explain(error)) from error
        except GrangeError as error:
            raise click.ClickException(str(error)) from error


class ServerError(click.ClickException):
    """What the API answered, in kubectl's words."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on standard error."""
        click.echo(f"Error from server {self.format_message()}", err=True, file=file)


def _explain(error: ApiError) -> str:
    lines = [f"({error.reason}): {error.message}"]
    lines += [
        f"  {cause.field}: {cause.message}"
        for cause in error.causes
        if cause.field and cause.message not in error.message
    ]
    return "\n".join(lines)


def group(extra: Mapping[str, Verb], version: str) -> click.Group:
    """The whole command line: the verbs of this room and those that ``app`` adds."""
    result = LazyGroup(
        name="grange",
        verbs={**VERBS, **extra},
        help="One control plane for services, jobs, test sessions and machines.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="First steps: grange up --detach, then grange apply -f FILE --wait.",
    )
    return click.version_option(version, prog_name="grange")(result)
