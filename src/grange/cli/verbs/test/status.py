"""``grange test status``: a session, its components and its latest events, once or until it ends."""

import click

from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import TestSession
from grange.api.status import NotFound
from grange.base.tasks import Nursery
from grange.cli import (
    options,
    session,
    steady_screen,
    terminal,
    testsession_board,
    testsession_lookup,
    testsession_view,
)
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents
from grange.cli.watched_object import WatchedObject

_REFRESH_S = 1.0


@click.command(cls=Command, examples=("grange test status qps-x7k2p --watch",))
@testsession_lookup.NAME
@click.option("-w", "--watch", is_flag=True, help="Until it ends; the exit code is its verdict's.")
@options.output(documents.REPORT)
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    name: str,
    watch: bool,  # noqa: FBT001  click passes flags by name
    output: str,
) -> None:
    """Show NAME: phase, verdict, position in the queue, components, latest events.

    With --watch the exit code is 0 if it passed, 1 if it failed, 2 after an infrastructure error and
    130 if it was cancelled.
    """

    async def verb(opened: session.ApiSession) -> int:
        found = await testsession_lookup.find(opened, name)
        if output:
            terminal.write(documents.report(output, found.get("status") or {}))
            return 0
        shown = testsession_view.view(found)
        if watch:
            return await follow(opened, shown)
        terminal.echo("\n".join(testsession_board.lines(shown, env.clock.now())))
        return 0

    session.run(env, target, verb)


async def follow(opened: session.ApiSession, shown: TestSession) -> int:
    """Show the board until the session has ended; its exit code.

    Raises:
        NotFound: it was deleted.
    """
    env, meta = opened.env, shown.metadata
    subject = WatchedObject(opened, TESTSESSION, meta.name, meta.namespace, pods=False)
    async with steady_screen.opened(env) as draw, Nursery("session") as nursery:
        for watch in subject.watches:
            nursery.start(watch())
        while True:
            if subject.is_known:
                found = subject.document
                if found is None or found["metadata"]["uid"] != meta.uid:
                    raise NotFound(f"{testsession_view.label(shown)}: it was deleted")
                shown = testsession_view.view(found)
                draw(testsession_board.lines(shown, env.clock.now()))
                if testsession_view.is_finished(shown):
                    nursery.cancel()
                    break
            await subject.changed(_REFRESH_S if env.interactive else None)
    return testsession_view.exit_code(shown)
