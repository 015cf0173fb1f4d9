"""``grange exec``: run a command in a container."""

import sys

import click

from grange.api.remote_command import PROTOCOLS
from grange.api.stream_requests import EXEC
from grange.cli import completers, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.pod_connection import pod_connection
from grange.cli.pod_lookup import container_of, running_pod
from grange.cli.remote_program import StreamUse, run_program


@click.command(
    cls=Command,
    examples=(
        "grange exec web-1 -- ls -l",
        "grange exec -it web-1 -c main -- sh",
        "grange exec grc/web -- env",
    ),
)
@click.argument("what", metavar="POD", shell_complete=completers.pods)
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@options.container("the first one by default")
@click.option("-i", "--stdin", is_flag=True, help="Pass on standard input.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    what: str,
    words: tuple[str, ...],
    container: str,
    *,
    stdin: bool,
    tty: bool,
) -> None:
    """Run COMMAND in a container of POD, or of a pod of KIND/NAME, and leave with its exit code.

    Write -- before the command. It ends when this verb is ended.
    """
    if tty and not (stdin and sys.stdin.isatty()):
        terminal.echo("-t is ignored: standard input is not a terminal, or -i is missing", err=True)
        tty = False
    use = StreamUse(stdin=stdin, tty=tty)

    async def verb(opened: session.ApiSession) -> int:
        pod = await running_pod(opened, what)
        query = {
            "container": [container_of(pod, container)["name"]],
            "command": list(words),
            **use.query(),
        }
        async with pod_connection(opened, pod, EXEC, PROTOCOLS, query) as (socket, protocol):
            return await run_program(socket, protocol, use)

    session.run(env, target, verb)
