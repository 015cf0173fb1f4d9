"""``grange attach``: the output and input of a running container."""

import sys

import click

from grange.api.remote_command import PROTOCOLS
from grange.api.stream_requests import ATTACH
from grange.cli import completers, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.pod_connection import pod_connection
from grange.cli.pod_lookup import container_of, running_pod
from grange.cli.remote_program import StreamUse, run_program


@click.command(cls=Command, examples=("grange attach web-1", "grange attach -it shell-1 -c main"))
@click.argument("what", metavar="POD", shell_complete=completers.pods)
@options.container("the first one by default")
@click.option("-i", "--stdin", is_flag=True, help="Pass on standard input.")
@click.option("-t", "--tty", is_flag=True, help="Use the container's terminal.")
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    what: str,
    container: str,
    *,
    stdin: bool,
    tty: bool,
) -> None:
    """Print what a container of POD writes from now on, and pass on input to it.

    The container must have `stdin: true` for input and `tty: true` for a terminal.
    """

    async def verb(opened: session.ApiSession) -> int:
        pod = await running_pod(opened, what)
        found = container_of(pod, container)
        name = found["name"]
        if stdin and not found.get("stdin"):
            raise click.ClickException(
                f"container {name}: it takes no input, as its stdin is not true; attach without -i"
            )
        has_terminal = tty and stdin and sys.stdin.isatty() and bool(found.get("tty"))
        if tty and not has_terminal:
            text = f"-t is ignored: container {name} or standard input has no terminal"
            terminal.echo(text, err=True)
        use = StreamUse(stdin=stdin, tty=has_terminal)
        query = {"container": [name], **use.query()}
        async with pod_connection(opened, pod, ATTACH, PROTOCOLS, query) as (socket, protocol):
            return await run_program(socket, protocol, use)

    session.run(env, target, verb)
