"""``grange rc scale`` and ``grange rc remove-pod``: the number of replicas."""

from contextlib import suppress

import click

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import controller_of
from grange.api.status import Conflict
from grange.cli import options, session, waiting
from grange.cli.command import Command
from grange.cli.confirm import confirm
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.name_args import ObjectName
from grange.cli.results import Results
from grange.cli.verbs.rc import objects
from grange.client.replica_operations import OtherCount

_ATTEMPTS = 5


@click.command(
    "scale",
    cls=Command,
    examples=(
        "grange rc scale web --replicas 5 --wait",
        "grange rc scale web --add -1",
    ),
)
@click.argument("name", type=objects.CONTROLLER)
@click.option("--replicas", type=click.IntRange(min=0), default=None, help="So many.")
@click.option("--add", "more", type=int, default=None, help="So many more; less than 0 is fewer.")
@click.option(
    "--current-replicas",
    "current",
    type=click.IntRange(min=0),
    default=None,
    help="Only if so many are wanted now.",
)
@click.option("--wait", is_flag=True, help="Wait until all of them are ready.")
@options.timeout("60s")
@options.YES
@objects.OUTPUT
@options.connected
def scale(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    **given: object,
) -> None:
    """Set the number of replicas of NAME; asks for confirmation before there are fewer."""
    replicas, more, current = (given[key] for key in ("replicas", "more", "current"))
    timeout_s = parse_duration(str(given["timeout"]))
    if (replicas is None) == (more is None):
        raise click.UsageError("give either --replicas N or --add N")
    if current is not None and replicas is None:
        raise click.UsageError("--current-replicas needs --replicas")

    async def verb(opened: session.ApiSession) -> int:
        ops = objects.operations(opened)
        yes = bool(given["yes"])
        if replicas is None:
            seen = await ops.get(name)
            ask(seen, max(0, seen.spec.replicas + int(str(more))), yes=yes)
            done = await ops.add_replicas(name, int(str(more)))
        elif current is None:
            done = await set_to(opened, name, int(str(replicas)), yes=yes)
        else:
            ask(await ops.get(name), int(str(replicas)), yes=yes)
            done = await ops.compare_and_set_replicas(name, int(str(current)), int(str(replicas)))
        await objects.report(
            opened, [name], str(given["output"]), f"scaled to {done.spec.replicas}{_aside(done)}"
        )
        if given["wait"]:
            shown = [(REPLICATIONCONTROLLER, name, opened.within(REPLICATIONCONTROLLER))]
            return await waiting.wait_ready(opened, shown, timeout_s=timeout_s)
        return 0

    session.run(env, target, verb)


def ask(seen: ReplicationController, wanted: int, *, yes: bool) -> None:
    """Ask before there are fewer.

    Raises:
        NotConfirmed: the answer was not yes, or there is no terminal to ask at.
    """
    lost = seen.spec.replicas - wanted
    if lost > 0:
        confirm(
            f"Scale {seen.metadata.name} from {seen.spec.replicas} to {wanted}?"
            f" {lost} {'pods end' if lost > 1 else 'pod ends'}.",
            yes=yes,
        )


async def set_to(
    opened: session.ApiSession, name: str, wanted: int, *, yes: bool
) -> ReplicationController:
    """Set the number of replicas; ask again if it changed since the last question.

    Raises:
        NotConfirmed: the answer was not yes, or there is no terminal to ask at.
        Conflict: others kept changing the number.
    """
    ops = objects.operations(opened)
    if yes:
        return await ops.set_replicas(name, wanted)
    for _ in range(_ATTEMPTS):
        seen = await ops.get(name)
        ask(seen, wanted, yes=False)
        with suppress(OtherCount):
            return await ops.compare_and_set_replicas(name, seen.spec.replicas, wanted)
    raise Conflict(f"{name}: other clients keep scaling it; nothing was changed")


def _aside(controller: ReplicationController) -> str:
    return " (it is disabled: enable it first)" if controller.spec.paused else ""


@click.command("remove-pod", cls=Command, examples=("grange rc remove-pod web-1",))
@click.argument("pod", type=ObjectName(POD))
@options.YES
@objects.OUTPUT
@options.connected
def remove_pod(
    env: Environment, target: session.ClusterTarget, pod: str, *, yes: bool, output: str
) -> None:
    """Remove POD and one replica of its controller, in one write."""

    async def verb(opened: session.ApiSession) -> int:
        found = await opened.client.get(POD, pod, opened.within(POD))
        owner = controller_of(found.metadata)
        if owner is None or owner.kind != REPLICATIONCONTROLLER.kind:
            raise click.ClickException(
                f"pod {pod} has no ReplicationController; use grange delete pod {pod}"
            )
        confirm(f"Remove {pod}, and one replica of {owner.name} with it?", yes=yes)
        ops = objects.operations(opened)
        done = await ops.remove_pod(owner.name, pod, uid=found.metadata.uid)
        results = Results(output)
        left = await objects.document(opened, owner.name) if results.wants_objects else {}
        line = f"pod/{pod} removed; {owner.name} asks for {done.spec.replicas}"
        results.add(REPLICATIONCONTROLLER, left, line)
        results.end()
        return 0

    session.run(env, target, verb)
