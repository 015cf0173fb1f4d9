"""``grange test cancel``: end sessions before their time."""

import click

from grange.api.kinds import TESTSESSION
from grange.cli import options, session, testsession_lookup, testsession_view
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.results import Results
from grange.cli.testruns import session_writes


@click.command(
    cls=Command, examples=("grange test cancel qps-x7k2p", "grange test cancel qps-x7k2p --now")
)
@testsession_lookup.NAMES
@click.option("--now", is_flag=True, help="Without keeping logs and artifacts first.")
@options.output(documents.OBJECT)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    names: tuple[str, ...],
    now: bool,  # noqa: FBT001  click passes flags by name
    output: str,
) -> None:
    """End the sessions NAME…: their pods are deleted and their machines are free again.

    grange wait ts/NAME --for jsonpath={.status.phase}=Cancelled waits until that is done.
    """
    how = session_writes.CANCEL_NOW if now else session_writes.CANCEL_COLLECT

    async def verb(opened: session.ApiSession) -> int:
        results = Results(output)
        for name in names:
            with results.refusals.of_one():
                found = await testsession_lookup.find(opened, name)
                shown = testsession_view.view(found)
                text = f"{testsession_view.label(shown)} cancelled"
                if testsession_view.is_finished(shown):
                    phase = testsession_view.phase(shown).lower()
                    text = f"{testsession_view.label(shown)} had {phase} already"
                else:
                    found = await session_writes.cancel(opened, found, how)
                results.add(TESTSESSION, found, text)
        return results.end()

    session.run(env, target, verb)
