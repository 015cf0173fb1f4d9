"""``grange version``: the versions of this program and of the server."""

import platform

import click

import grange
from grange.api.codec import decode_document
from grange.api.http import Request
from grange.api.meta import Document
from grange.base.errors import GrangeError
from grange.cli import options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.printers import documents

_LIMIT_S = 5.0


@click.command(cls=Command, examples=("grange version", "grange version --client -o json"))
@click.option("--client", "client_only", is_flag=True, help="Do not ask the server.")
@options.output(documents.REPORT)
@options.connected
def command(
    env: Environment, target: session.ClusterTarget, *, client_only: bool, output: str
) -> None:
    """Print the versions of this program and of the server.

    A server that cannot be reached is reported and is no failure.
    """
    found: Document = {"clientVersion": client()}
    reason = ""
    if not client_only:
        try:
            env.run(_ask(env, target, found))
        except (GrangeError, TimeoutError) as error:
            reason = str(error) or f"no answer in {_LIMIT_S:g} s"
    if output:
        terminal.write(documents.report(output, found))
    else:
        terminal.echo("\n".join(lines(found)))
    if reason:
        terminal.echo(f"server not reached: {reason}", err=True)


def client() -> Document:
    """The version of this program and of what runs it."""
    return {
        "version": grange.__version__,
        "pythonVersion": platform.python_version(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


async def _ask(env: Environment, target: session.ClusterTarget, found: Document) -> None:
    """Add the server's answer to what was found."""
    async with env.clock.timeout(_LIMIT_S), session.opened(env, target) as opened:
        found["serverVersion"] = await server(opened)


async def server(opened: session.ApiSession) -> Document:
    """The server's answer on ``/version``.

    Raises:
        ApiError: it refused.
    """
    return decode_document((await opened.fetch(Request("GET", "/version"))).body)


def lines(found: Document) -> list[str]:
    """The versions for people."""
    mine = found["clientVersion"]
    result = [f"Client: {mine['version']} (Python {mine['pythonVersion']}, {mine['platform']})"]
    if served := found.get("serverVersion"):
        result.append(f"Server: {served.get('gitVersion', 'unknown')}")
    return result
