"""``grange rc enable``, ``disable``, ``set-strategy`` and ``update-template``: one field each."""

import click

from grange.api.kinds.replicationcontroller import STRATEGIES
from grange.cli import manifests, options, session
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.verbs.rc import objects


@click.command("enable", cls=Command, examples=("grange rc enable web",))
@click.argument("names", nargs=-1, required=True, type=objects.CONTROLLER)
@objects.OUTPUT
@options.connected
def enable(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Resume scaling and repair of NAMES."""
    session.run(env, target, lambda opened: switch(opened, names, output, paused=False))


@click.command("disable", cls=Command, examples=("grange rc disable web api",))
@click.argument("names", nargs=-1, required=True, type=objects.CONTROLLER)
@objects.OUTPUT
@options.connected
def disable(
    env: Environment, target: session.ClusterTarget, names: tuple[str, ...], output: str
) -> None:
    """Stop scaling and repair of NAMES; their pods keep running."""
    session.run(env, target, lambda opened: switch(opened, names, output, paused=True))


async def switch(
    opened: session.ApiSession, names: tuple[str, ...], output: str = "", *, paused: bool
) -> int:
    """Disable or enable all of these, or none where one does not exist.

    Raises:
        NotFound: one does not exist; nothing was changed.
    """
    ops = objects.operations(opened)
    for name in names:
        await ops.get(name)
    for name in names:
        await (ops.disable(name) if paused else ops.enable(name))
    await objects.report(opened, names, output, "disabled" if paused else "enabled")
    return 0


@click.command("set-strategy", cls=Command, examples=("grange rc set-strategy web Dynamic",))
@click.argument("name", type=objects.CONTROLLER)
@click.argument("strategy", type=click.Choice(STRATEGIES))
@objects.OUTPUT
@options.connected
def set_strategy(
    env: Environment, target: session.ClusterTarget, name: str, strategy: str, output: str
) -> None:
    """Set whether the pods of NAME may move off nodes that no longer fit."""

    async def verb(opened: session.ApiSession) -> int:
        await objects.operations(opened).set_strategy(name, strategy)
        await objects.report(opened, [name], output, f"is {strategy}")
        return 0

    session.run(env, target, verb)


@click.command(
    "update-template", cls=Command, examples=("grange rc update-template web -f pod.yaml",)
)
@click.argument("name", type=objects.CONTROLLER)
@click.option(
    "-f",
    "--filename",
    type=click.Path(),
    required=True,
    help="File with a pod, a pod template or a controller; - is standard input.",
)
@options.YES
@objects.OUTPUT
@options.connected
def update_template(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    filename: str,
    *,
    yes: bool,
    output: str,
) -> None:
    """Replace the pods of NAME by those of another template, as fast as spec.rollout allows."""
    template = objects.template_of(filename, manifests.read_one(filename))

    async def verb(opened: session.ApiSession) -> int:
        seen = await objects.operations(opened).get(name)
        if seen.spec.template == template:
            await objects.report(opened, [name], output, "unchanged")
            return 0
        objects.confirm_replacing(seen, yes=yes)
        await objects.set_template(opened, seen, template)
        await objects.report(opened, [name], output, "has a new template")
        return 0

    session.run(env, target, verb)
