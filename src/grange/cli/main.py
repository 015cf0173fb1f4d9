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
from grange.cli import terminal
from grange.client.errors import Unreachable

USAGE_ERROR = 64  # sysexits' EX_USAGE; 2 means "infrastructure" for test sessions


# What kubectl does well against this server.
_KUBECTL: tuple[str, ...] = (
    "annotate",
    "api-resources",
    "cluster-info",
    "config",
    "cordon",
    "create",
)
_KUBECTL += ("diff", "drain", "edit", "explain", "label", "patch", "replace", "taint")
_KUBECTL += ("uncordon",)


@dataclass(frozen=True, slots=True)
class Verb:
    """Where a verb lives.

    Attributes:
        module: dotted name; it exports ``command``.
        help: one line.
        name: of the command in its module.
    """

    module: str
    help: str
    name: str = "command"


VERBS: dict[str, Verb] = {
    "apply": Verb("grange.cli.verbs.apply", "Create or change objects from manifests."),
    "delete": Verb("grange.cli.verbs.delete", "Delete objects."),
    "describe": Verb("grange.cli.verbs.describe", "Show an object, its conditions and its events."),
    "events": Verb("grange.cli.verbs.events", "List what happened, the latest last."),
    "farm": Verb("grange.cli.verbs.farm", "Show who works for the cluster; let deletions go on."),
    "get": Verb("grange.cli.verbs.get", "List objects, or show some."),
    "history": Verb("grange.cli.verbs.history", "Show who belonged to a controller, and when."),
    "logs": Verb("grange.cli.verbs.logs", "Print what containers write."),
    "rc": Verb("grange.cli.verbs.rc.group", "Work with ReplicationControllers: grange rc --help."),
    "scale": Verb("grange.cli.verbs.scale", "Set how many copies there shall be."),
    "wait": Verb("grange.cli.verbs.wait", "Wait until objects meet a condition."),
    "why": Verb("grange.cli.verbs.why", "Say why something waits, or why it is where it is."),
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
        command = getattr(import_module(verb.module), verb.name)
        if not isinstance(command, click.Command):
            raise TypeError(f"{verb.module}.{verb.name} is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of verbs without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.help) for name, verb in self._verbs.items()])

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb; deliberate errors become one clear line and exit code 1."""
        try:
            return super().invoke(ctx)
        except GrangeError as error:
            raise _told(error) from error
        except ExceptionGroup as group:  # concurrent work: its first deliberate error speaks
            first = _first(group)
            if first is None:
                raise
            raise _told(first) from group

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb; one that only kubectl has is said to be there."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0] in _KUBECTL:
                raise click.UsageError(
                    f"{error.message} Use `kubectl {args[0]}`: every Kubernetes client works.", ctx
                ) from error
            raise


def _first(group: ExceptionGroup[Exception]) -> GrangeError | None:
    """The first deliberate error in a group of errors that are all deliberate."""
    deliberate, others = group.split(GrangeError)
    if deliberate is None or others is not None:
        return None
    found: BaseException = deliberate
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found if isinstance(found, GrangeError) else None


def _told(error: GrangeError) -> click.ClickException:
    if isinstance(error, Unreachable):
        remedy = "start it with `grange up`, or choose another with --kubeconfig or --context"
        return click.ClickException(f"{error.message}; {remedy}")
    if isinstance(error, ApiError):
        return ServerError(_explain(error))
    return click.ClickException(str(error))


class ServerError(click.ClickException):
    """What the API answered, in kubectl's words."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on standard error."""
        terminal.echo(f"Error from server {self.format_message()}", err=True)


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
