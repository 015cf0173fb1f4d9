"""``grange rc delete``."""

import click

from grange.api.codec import to_document
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.cli import options, session
from grange.cli.command import Command
from grange.cli.confirm import confirm
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.results import Results
from grange.cli.verbs.rc import objects
from grange.client.replica_operations import still_wanted


@click.command(cls=Command, examples=("grange rc delete web --cascade background",))
@click.argument("names", nargs=-1, required=True, type=objects.CONTROLLER)
@click.option("--force", is_flag=True, help="Delete it even if it has replicas or is protected.")
@click.option(
    "--cascade",
    type=click.Choice(["orphan", "background", "foreground"]),
    default="orphan",
    show_default=True,
    help="How to treat its pods; orphan leaves them running.",
)
@options.YES
@objects.OUTPUT
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    names: tuple[str, ...],
    *,
    force: bool,
    cascade: str,
    yes: bool,
    output: str,
) -> None:
    """Delete NAMES; refused while they have replicas. Their pods stay unless --cascade is given."""

    async def verb(opened: session.ApiSession) -> int:
        ops = objects.operations(opened)
        found = [await ops.get(name) for name in names]  # all of them, or none is touched
        for one in found:
            if one.spec.replicas and not force:
                raise still_wanted(one)
        pods = sum(one.status.replicas for one in found)
        fate = "keep running without it" if cascade == "orphan" else "end"
        aside = f" Pods that {fate}: {pods}." if pods else ""
        confirm(f"Delete {', '.join(names)}?{aside}", yes=yes)
        results = Results(output)
        for one in found:
            name = one.metadata.name
            await ops.delete(name, force=force, propagation=cascade.capitalize())
            line = f'{documents.resource(REPLICATIONCONTROLLER)} "{name}" deleted'
            results.add(REPLICATIONCONTROLLER, to_document(one), line)
        results.end()
        return 0

    session.run(env, target, verb)
