"""``grange machines cordon``, ``uncordon``, ``drain`` and ``return``."""

import click

from grange.api.kinds import MACHINE, NODE, POD
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.cli import machine_board, machine_drain, options, session
from grange.cli.command import Command
from grange.cli.confirm import confirm
from grange.cli.durations import parse_duration
from grange.cli.environment import Environment
from grange.cli.name_args import ObjectName
from grange.cli.printers import documents
from grange.cli.results import Results

_NAMES = click.argument("names", nargs=-1, required=True, type=ObjectName(MACHINE))


@click.command(cls=Command, examples=("grange machines cordon batch-x7k2p",))
@_NAMES
@options.output(documents.OBJECT)
@options.connected
def cordon(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Let no more pods come to the machines NAME…; those that are there stay."""
    _run(env, target, names, output, unschedulable=True)


@click.command(cls=Command, examples=("grange machines uncordon batch-x7k2p",))
@_NAMES
@options.output(documents.OBJECT)
@options.connected
def uncordon(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Let pods come to the machines NAME… again."""
    _run(env, target, names, output, unschedulable=False)


def _run(
    env: Environment,
    target: session.ClusterTarget,
    names: tuple[str, ...],
    output: str,
    *,
    unschedulable: bool,
) -> None:
    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        for name in names:
            with results.refusals.of_one():
                changed = await set_unschedulable(opened, name, value=unschedulable)
                done = "cordoned" if unschedulable else "uncordoned"
                node = await opened.document(NODE, (await machine_of(opened, name)).node)
                results.add(
                    NODE, node, f"{label(name)} {done if changed else f'is {done} already'}"
                )
        return results.end()

    session.run(env, target, verb)


async def set_unschedulable(opened: session.ApiSession, name: str, *, value: bool) -> bool:
    """Mark the node of a machine, or unmark it; whether it was not so before.

    Raises:
        click.ClickException: the machine has no node.
        NotFound: there is no such machine.
    """
    machine = await machine_of(opened, name)
    try:
        node = await opened.client.get(NODE, machine.node)
    except NotFound:
        text = f"{label(name)}: it is {machine.phase.value} and has no node"
        if machine.phase in (MachinePhase.CREATING, MachinePhase.CREATED):
            text += "; grange machines list --watch shows when it has one"
        raise click.ClickException(text) from None
    if node.spec.unschedulable == value:
        return False
    patch = {"metadata": {"uid": node.metadata.uid}, "spec": {"unschedulable": value or None}}
    await opened.client.patch(NODE, machine.node, patch=patch)
    return True


@click.command(
    cls=Command,
    examples=("grange machines drain batch-x7k2p", "grange machines drain batch-x7k2p --end"),
)
@click.argument("name", type=ObjectName(MACHINE))
@click.option("--end", is_flag=True, help="End the machine when no pod is left on it.")
@options.timeout("10m")
@options.YES
@options.output(documents.OBJECT)
@options.connected
def drain(
    env: Environment, target: session.ClusterTarget, name: str, output: str, **given: object
) -> None:
    """Cordon the machine NAME, evict its pods and wait until they are gone.

    Evictions respect disruption budgets. Pods of every node stay. Interrupted, it leaves the machine
    cordoned; call it again to continue.
    """
    timeout_s = parse_duration(str(given["timeout"]))
    ends = bool(given["end"])

    async def verb(opened: session.ApiSession) -> int:
        machine = await machine_of(opened, name)
        pods = await machine_drain.movable_pods(opened, machine.node)
        if pods:
            confirm(machine_drain.question(name, pods), yes=bool(given["yes"]))
        await set_unschedulable(opened, name, value=True)
        if not await machine_drain.drained(opened, machine, timeout_s):
            return 1
        if ends:
            await opened.client.patch(MACHINE, name, patch={"spec": {"terminate": True}})
        results = Results(output)
        done = "drained; it ends" if ends else "drained"
        results.add(MACHINE, await opened.document(MACHINE, name), f"{label(name)} {done}")
        results.end()
        return 0

    session.run(env, target, verb)


@click.command("return", cls=Command, examples=("grange machines return batch-x7k2p --yes",))
@click.argument("name", type=ObjectName(MACHINE))
@options.YES
@options.output(documents.OBJECT)
@options.connected
def return_(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    output: str,
    **given: object,
) -> None:
    """Give back the machine NAME that a pod has to itself: deletes the pod.

    The machine is wiped or ended when the pod is gone, as its pool has it.
    """

    async def verb(opened: session.ApiSession) -> int:
        machine = await machine_of(opened, name)
        pod = claiming_pod(machine)
        confirm(f"Delete pod {pod} to give {name} back?", yes=bool(given["yes"]))
        done = await return_one(opened, machine)
        results = Results(output)
        results.add(MACHINE, await opened.document(MACHINE, name), f"{label(name)} {done}")
        results.end()
        return 0

    session.run(env, target, verb)


def claiming_pod(machine: Machine) -> str:
    """``namespace/name`` of the pod that has claimed a machine.

    Raises:
        click.ClickException: the machine is not a pod's.
    """
    name, status = machine.metadata.name, machine.status
    if machine.phase is not MachinePhase.CLAIMED:
        raise click.ClickException(
            f"{label(name)}: it is {machine.phase.value}; only a claimed machine can be given back"
        )
    if not status.bound_pod_name:
        raise click.ClickException(f"{label(name)}: {status.holder} has it and gives it back")
    return status.bound_pod_name


async def return_one(opened: session.ApiSession, machine: Machine) -> str:
    """Delete the pod that has a machine; what was done. Another pod of its name is left alone.

    Raises:
        Conflict: the pod of that name is another one.
    """
    pod = claiming_pod(machine)
    namespace, _, name = pod.partition("/")
    try:
        await opened.client.delete(POD, name, namespace, uid=machine.status.bound_pod_uid)
    except NotFound:
        return f"is given back: pod {pod} is gone"
    return f"is given back: pod {pod} deleted"


async def machine_of(opened: session.ApiSession, name: str) -> Machine:
    """A machine by its name.

    Raises:
        NotFound: there is none.
    """
    try:
        document: Document = await opened.document(MACHINE, name)
    except NotFound as error:
        raise NotFound(f"{error.message}; grange machines list lists the machines") from error
    return machine_board.view(document)


def label(name: str) -> str:
    """How results name a machine."""
    return f"{documents.resource(MACHINE)}/{name}"
