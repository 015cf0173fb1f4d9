"""``grange rc drain-node``, ``undrain-node``, ``pause-transfers`` and ``resume-transfers``."""

import getpass
import socket

import click

from grange.api.kinds import NODE, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import TRANSFER_LOCK, drained_nodes
from grange.api.meta import ObjectKey
from grange.api.status import Forbidden, NotFound, ServiceUnavailable
from grange.base.plurals import be, counted
from grange.cli import options, progress, readiness, session, terminal, waiting
from grange.cli.command import Command
from grange.cli.confirm import confirm
from grange.cli.durations import parse_duration, parse_term
from grange.cli.environment import Environment
from grange.cli.name_args import ObjectName
from grange.cli.verbs.rc import objects
from grange.client import locks
from grange.client.replica_operations import pods_of

_LOOK_S = 0.5


@click.command("drain-node", cls=Command, examples=("grange rc drain-node web node-1 --wait",))
@click.argument("name", type=objects.CONTROLLER)
@click.argument("node", type=ObjectName(NODE))
@click.option("--shrink", is_flag=True, help="Remove the pods there and as many replicas.")
@click.option("--wait", is_flag=True, help="Wait until none of its pods is there.")
@options.timeout("10m")
@options.YES
@objects.OUTPUT
@options.connected
def drain_node(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    node: str,
    **given: object,
) -> None:
    """Move the pods of NAME off NODE: each starts on another node before it ends."""
    timeout_s = parse_duration(str(given["timeout"]))
    shrink = bool(given["shrink"])

    async def verb(opened: session.ApiSession) -> int:
        seen = await objects.operations(opened).get(name)
        await require_node(opened, node)
        held = locks.hold(seen, TRANSFER_LOCK, env.clock.now())
        if held is not None and held.holder != _me():
            raise click.ClickException(f"transfers of {name} are paused by {held}")
        if count := await _there(opened, name, node):
            confirm(question(name, node, count, shrink=shrink), yes=bool(given["yes"]))
        done = await objects.operations(opened).drain_node(name, node, shrink=shrink)
        count = done.spec.replicas
        aside = f"; {counted(count, 'replica')} {be(count)} wanted" if shrink else ""
        await objects.report(opened, [name], str(given["output"]), f"leaves node {node}{aside}")
        if given["wait"]:
            return await left(opened, name, node, timeout_s)
        return 0

    session.run(env, target, verb)


@click.command("undrain-node", cls=Command, examples=("grange rc undrain-node web node-1",))
@click.argument("name", type=objects.CONTROLLER)
@click.argument("node", type=ObjectName(NODE))
@objects.OUTPUT
@options.connected
def undrain_node(
    env: Environment, target: session.ClusterTarget, name: str, node: str, output: str
) -> None:
    """Allow pods of NAME on NODE again."""

    async def verb(opened: session.ApiSession) -> int:
        seen = await objects.operations(opened).get(name)
        if node not in drained_nodes(seen):  # a deleted node can still be removed from the list
            await require_node(opened, node)
        await objects.operations(opened).undrain_node(name, node)
        await objects.report(opened, [name], output, f"may use node {node} again")
        return 0

    session.run(env, target, verb)


@click.command(
    "pause-transfers", cls=Command, examples=("grange rc pause-transfers web --for 10m",)
)
@click.argument("name", type=objects.CONTROLLER)
@click.option("--for", "length", default="10m", show_default=True, help="How long.")
@objects.OUTPUT
@options.connected
def pause_transfers(
    env: Environment, target: session.ClusterTarget, name: str, length: str, output: str
) -> None:
    """Start no transfers of pods of NAME to other nodes for a while; those under way go on."""
    ttl_s = parse_term("--for", length)

    async def verb(opened: session.ApiSession) -> int:
        await lock(opened, name, ttl_s).acquire()
        await objects.report(opened, [name], output, f"starts no transfers for {length}")
        return 0

    session.run(env, target, verb)


@click.command("resume-transfers", cls=Command, examples=("grange rc resume-transfers web",))
@click.argument("name", type=objects.CONTROLLER)
@objects.OUTPUT
@options.connected
def resume_transfers(
    env: Environment, target: session.ClusterTarget, name: str, output: str
) -> None:
    """Allow transfers of pods of NAME that you have paused."""

    async def verb(opened: session.ApiSession) -> int:
        await lock(opened, name, 1.0).release()
        await objects.report(opened, [name], output, "may start transfers")
        return 0

    session.run(env, target, verb)


def _me() -> str:
    """Who holds the locks that are taken here: one holder a user and machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def lock(opened: session.ApiSession, name: str, ttl_s: float) -> locks.ObjectLock:
    """The lock on a controller's transfers, for this user on this machine."""
    return locks.ObjectLock(
        opened.client,
        REPLICATIONCONTROLLER,
        ObjectKey(opened.namespace or "default", name),
        annotation=TRANSFER_LOCK,
        holder=_me(),
        ttl_s=ttl_s,
        clock=opened.env.clock,
    )


async def _there(opened: session.ApiSession, name: str, node: str) -> int:
    """How many pods of the controller are on the node."""
    found = await objects.operations(opened).get(name)
    return len(await pods_of(opened.client, found, node))


async def require_node(opened: session.ApiSession, node: str) -> None:
    """Check that the node exists, as far as the user may read nodes.

    Raises:
        NotFound: there is no such node.
    """
    try:
        await opened.client.get(NODE, node)
    except Forbidden:
        return
    except NotFound as error:
        raise NotFound(f"{error.message}; grange get nodes lists the nodes") from error


def question(name: str, node: str, count: int, *, shrink: bool) -> str:
    """What to ask before so many pods of a controller leave a node."""
    pods = f"{counted(count, 'pod')} of {name}"
    return f"Remove {pods} from {node} for good?" if shrink else f"Move {pods} off {node}?"


async def left(opened: session.ApiSession, name: str, node: str, timeout_s: float) -> int:
    """Wait until no pod of the controller is on the node; the exit code."""
    clock, label = opened.env.clock, f"grc/{name}"
    shown = progress.Progress(opened.env)
    shown.add(label)
    try:
        async with clock.timeout(timeout_s), shown.shown():
            while not (state := await _look(opened, name, node)).done:
                shown.update(label, state)
                await clock.sleep(_LOOK_S)
            shown.update(label, state)
            return 0
    except TimeoutError:
        text = shown.rows[label].state.text
        terminal.echo(f"timed out after {timeout_s:g}s: {label}: {text}", err=True)
        terminal.echo(f"next: grange why {label}", err=True)
        return 1


async def _look(opened: session.ApiSession, name: str, node: str) -> readiness.WaitState:
    """How many are there, and what keeps them where it is known."""
    try:
        found = await objects.operations(opened).get(name)
        count = len(await pods_of(opened.client, found, node))
    except ServiceUnavailable:
        return readiness.WaitState(done=False, text=waiting.SILENT)
    if not count:
        return readiness.WaitState(done=True, text=f"no pod on {node}")
    text = f"{counted(count, 'pod')} still on {node}"
    kept = [item for item in found.status.conditions if item.type == "Misplaced"]
    if kept and kept[0].status == "True" and kept[0].reason != "Transferring":
        text += f": {kept[0].message}"
    return readiness.WaitState(done=False, text=text)
