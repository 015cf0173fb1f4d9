"""``grange rc delete``."""

import click

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.cli import session, terminal
from grange.cli.confirm import confirm
from grange.cli.printers import documents
from grange.cli.surroundings import Surroundings
from grange.cli.verbs.rc import objects
from grange.client.replication import still_wanted


@click.command()
@click.argument("names", nargs=-1, required=True, callback=objects.CONTROLLER)
@click.option("--force", is_flag=True, help="Although it asks for replicas, or is protected.")
@click.option(
    "--cascade",
    type=click.Choice(["orphan", "background", "foreground"]),
    default="orphan",
    show_default=True,
    help="What becomes of its pods; orphan leaves them running.",
)
@objects.YES
@session.connected
def command(
    around: Surroundings,
    target: session.Target,
    names: tuple[str, ...],
    *,
    force: bool,
    cascade: str,
    yes: bool,
) -> None:
    """Delete NAMES; refused while they ask for replicas. Their pods stay unless --cascade says else."""

    async def verb(opened: session.Session) -> int:
        ops = objects.operations(opened)
        found = [await ops.get(name) for name in names]  # all of them, or none is touched
        for one in found:
            if one.spec.replicas and not force:
                raise still_wanted(one)
        pods = sum(one.status.replicas for one in found)
        fate = "keep running without it" if cascade == "orphan" else "end"
        aside = f" Pods that {fate}: {pods}." if pods else ""
        confirm(f"Delete {', '.join(names)}?{aside}", yes=yes)
        for name in names:
            await ops.delete(name, force=force, propagation=cascade.capitalize())
            terminal.echo(f'{documents.resource(REPLICATIONCONTROLLER)} "{name}" deleted')
        return 0

    session.run(around, target, verb)
