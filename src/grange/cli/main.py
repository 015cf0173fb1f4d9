"""The command line: the table of verbs, and how errors are shown.

A verb is one module, which exports ``command``, and one line of ``VERBS``.
"""

from collections.abc import Mapping

import click

from grange.cli import shown_errors
from grange.cli.command import LazyGroup, Section, Verb

USAGE_ERROR = 64  # sysexits' EX_USAGE; 2 means "infrastructure" for test sessions

_DEPLOY, _INSPECT = Section.DEPLOY, Section.INSPECT
_DIAGNOSE, _OPERATE = Section.DIAGNOSE, Section.OPERATE
_VERBS = "grange.cli.verbs"

VERBS: dict[str, Verb] = {
    "apply": Verb(_DEPLOY, f"{_VERBS}.apply", "Create or change objects from manifests."),
    "scale": Verb(_DEPLOY, f"{_VERBS}.scale", "Set the number of replicas."),
    "wait": Verb(_DEPLOY, f"{_VERBS}.wait", "Wait until objects meet a condition."),
    "delete": Verb(_DEPLOY, f"{_VERBS}.delete", "Delete objects."),
    "job": Verb(_DEPLOY, f"{_VERBS}.job.group", "Work with jobs of every kind."),
    "rc": Verb(_DEPLOY, f"{_VERBS}.rc.group", "Work with ReplicationControllers."),
    "lease": Verb(_DEPLOY, f"{_VERBS}.lease.group", "Lease whole machines of pools."),
    "machines": Verb(_DEPLOY, f"{_VERBS}.machines.group", "Work with machines of node pools."),
    "test": Verb(_DEPLOY, f"{_VERBS}.test.group", "Run and inspect test sessions."),
    "get": Verb(_INSPECT, f"{_VERBS}.get", "List objects, or show some."),
    "describe": Verb(_INSPECT, f"{_VERBS}.describe", "Show an object with conditions and events."),
    "logs": Verb(_INSPECT, f"{_VERBS}.logs", "Print the logs of containers."),
    "exec": Verb(_INSPECT, f"{_VERBS}.exec", "Run a command in a container."),
    "attach": Verb(_INSPECT, f"{_VERBS}.attach", "Follow the output and input of a container."),
    "port-forward": Verb(_INSPECT, f"{_VERBS}.port_forward", "Forward local ports to a pod."),
    "cp": Verb(_INSPECT, f"{_VERBS}.cp", "Copy files to and from containers."),
    "top": Verb(_INSPECT, f"{_VERBS}.top", "Show what nodes and pods use."),
    "history": Verb(_INSPECT, f"{_VERBS}.history", "List the changes of a controller's pods."),
    "why": Verb(_DIAGNOSE, f"{_VERBS}.why", "Explain why an object waits or fails."),
    "events": Verb(_DIAGNOSE, f"{_VERBS}.events", "List events, the latest last."),
    "farm": Verb(_OPERATE, f"{_VERBS}.farm", "Show the controller processes; resume deletions."),
    "auth": Verb(_OPERATE, f"{_VERBS}.auth", "Check who may do what."),
    "version": Verb(_OPERATE, f"{_VERBS}.version", "Print the versions of client and server."),
    "completion": Verb(_OPERATE, f"{_VERBS}.completion", "Print a completion script for a shell."),
}

# What kubectl does well against this server.
_KUBECTL = frozenset(
    [
        "annotate",
        "api-resources",
        "cluster-info",
        "config",
        "cordon",
        "create",
        "diff",
        "drain",
        "edit",
        "explain",
        "label",
        "patch",
        "replace",
        "taint",
        "uncordon",
    ]
)


class CommandLine(LazyGroup):
    """The whole command line: shows deliberate errors as one clear line and exit code 1."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the verb."""
        with shown_errors.deliberate():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb; the message for one that only kubectl has names kubectl."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            if error.command_name in _KUBECTL:
                hint = f"Use `kubectl {error.command_name}`: every Kubernetes client works."
                raise click.UsageError(f"{error.message} {hint}", ctx) from error
            raise


def group(extra: Mapping[str, Verb], version: str) -> click.Group:
    """The whole command line: the verbs of this room and those that ``app`` adds."""
    result = CommandLine(
        name="grange",
        verbs={**extra, **VERBS},
        help="One control plane for services, jobs, test sessions and machines.",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        epilog="First steps: grange up --detach, then grange apply -f FILE --wait. "
        "The help of each verb has examples: grange VERB --help.",
    )
    return click.version_option(version, prog_name="grange")(result)
