"""``grange rc enable``, ``disable``, ``set-strategy`` and ``update-template``: one field each."""

import click

from grange.api.kinds.replicationcontroller import STRATEGIES
from grange.cli import manifests, session
from grange.cli.surroundings import Surroundings
from grange.cli.verbs.rc import objects


@click.command("enable")
@click.argument("names", nargs=-1, required=True, callback=objects.CONTROLLER)
@session.connected
def enable(around: Surroundings, target: session.Target, names: tuple[str, ...]) -> None:
    """Have NAMES scaled and repaired again."""
    session.run(around, target, lambda opened: switch(opened, names, paused=False))


@click.command("disable")
@click.argument("names", nargs=-1, required=True, callback=objects.CONTROLLER)
@session.connected
def disable(around: Surroundings, target: session.Target, names: tuple[str, ...]) -> None:
    """Leave NAMES alone: their pods keep running, nothing is scaled or repaired."""
    session.run(around, target, lambda opened: switch(opened, names, paused=True))


async def switch(opened: session.Session, names: tuple[str, ...], *, paused: bool) -> int:
    """Disable or enable all of these, or none where one is not there.

    Raises:
        NotFound: one is not there; nothing was changed.
    """
    ops = objects.operations(opened)
    for name in names:
        await ops.get(name)
    for name in names:
        await (ops.disable(name) if paused else ops.enable(name))
        await objects.told(opened, name, "", "disabled" if paused else "enabled")
    return 0


@click.command("set-strategy")
@click.argument("name", callback=objects.CONTROLLER)
@click.argument("strategy", type=click.Choice(STRATEGIES))
@objects.OUTPUT
@session.connected
def set_strategy(
    around: Surroundings, target: session.Target, name: str, strategy: str, output: str
) -> None:
    """Say whether the pods of NAME may move off nodes that no longer fit."""

    async def verb(opened: session.Session) -> int:
        await objects.operations(opened).set_strategy(name, strategy)
        await objects.told(opened, name, output, f"is {strategy}")
        return 0

    session.run(around, target, verb)


@click.command("update-template")
@click.argument("name", callback=objects.CONTROLLER)
@click.option("-f", "--filename", required=True, help="Pod, pod template or controller; - reads.")
@objects.YES
@objects.OUTPUT
@session.connected
def update_template(
    around: Surroundings,
    target: session.Target,
    name: str,
    filename: str,
    *,
    yes: bool,
    output: str,
) -> None:
    """Make the pods of NAME from another template, as fast as spec.rollout says."""
    template = objects.template_of(filename, manifests.read_one(filename))

    async def verb(opened: session.Session) -> int:
        seen = await objects.operations(opened).get(name)
        if seen.spec.template == template:
            await objects.told(opened, name, output, "unchanged")
            return 0
        objects.confirm_replacing(seen, yes=yes)
        await objects.set_template(opened, seen, template)
        await objects.told(opened, name, output, "has a new template")
        return 0

    session.run(around, target, verb)
