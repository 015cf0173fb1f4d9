"""``grange port-forward``: local ports that lead to ports of a pod."""

import click
import msgspec

from grange.api.kinds import POD, SERVICE
from grange.api.meta import Document
from grange.api.port_forward import TUNNEL
from grange.api.status import ServiceUnavailable
from grange.api.stream_requests import PORT_FORWARD
from grange.base.spdy_connection import SpdyConnection
from grange.base.tasks import Nursery
from grange.cli import completers, options, session, terminal
from grange.cli.command import Command
from grange.cli.environment import Environment
from grange.cli.pod_connection import pod_connection
from grange.cli.pod_lookup import best_pod, running_pod
from grange.cli.port_choice import port_behind_service, port_of_pod, read_pair
from grange.cli.port_forwarder import PortForwarder


@click.command(
    "port-forward",
    cls=Command,
    examples=(
        "grange port-forward web-1 8080:80",
        "grange port-forward svc/web 8080:http",
        "grange port-forward grc/web :80 -o json",
    ),
)
@click.argument("what", metavar="POD", shell_complete=completers.pods)
@click.argument("words", metavar="PORTS...", nargs=-1, required=True)
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; others than loopback let other machines in.",
)
@options.output(("json",))
@options.connected
def command(
    env: Environment,
    target: session.ClusterTarget,
    what: str,
    words: tuple[str, ...],
    address: str,
    output: str,
) -> None:
    """Forward local PORTS to a pod, until Ctrl-C or the pod's end.

    A port is LOCAL:REMOTE, PORT for the same on both sides, or :REMOTE for a free local one; REMOTE is a
    number or a name. POD may be KIND/NAME: of a Service a ready pod behind it is taken.
    """
    pairs = [read_pair(word) for word in words]

    async def verb(opened: session.ApiSession) -> int:
        pod, service = await _find(opened, what)
        name = pod["metadata"]["name"]
        remotes = [
            port_of_pod(pod, pair.remote)
            if service is None
            else port_behind_service(service, pod, pair.remote)
            for pair in pairs
        ]
        async with (
            pod_connection(opened, pod, PORT_FORWARD, (TUNNEL,), {}) as (socket, _),
            Nursery("port-forward") as nursery,
        ):
            tunnel = SpdyConnection(socket, is_server=False)
            forwarder = PortForwarder(tunnel, nursery, _report)
            try:
                for pair, remote in zip(pairs, remotes, strict=True):
                    local = await _listen(forwarder, address, pair.local, remote)
                    _print(output, name, address, local, remote)
                await tunnel.run(lambda _: None)
            finally:
                forwarder.close()
                nursery.cancel()
        raise ServiceUnavailable(f"the connection to pod {name} ended; see grange get pod {name}")

    session.run(env, target, verb)


async def _find(opened: session.ApiSession, what: str) -> tuple[Document, Document | None]:
    """The pod, and the Service that it is behind where one is meant."""
    word, slash, name = what.partition("/")
    kind = await opened.kind(word) if slash else POD
    if kind is not SERVICE:
        return await running_pod(opened, what), None
    service = await opened.document(SERVICE, name)
    selector = service["spec"].get("selector") or {}
    if not selector:
        raise click.ClickException(f"service {name}: it has no selector; name a pod instead")
    labels = ",".join(f"{key}={value}" for key, value in selector.items())
    pods = await opened.listed(POD, opened.within(POD), selector=labels)
    return best_pod(pods, f"service {name} has no pod that runs"), service


async def _listen(forwarder: PortForwarder, address: str, local: int, remote: int) -> int:
    try:
        return await forwarder.listen(address, local, remote)
    except OSError as error:
        why = error.strerror or str(error)
        raise click.ClickException(
            f"cannot listen on {address} port {local}: {why}; choose another one, or :{remote} for a free one"
        ) from error


def _print(output: str, pod: str, address: str, local: int, remote: int) -> None:
    if output:
        found = {"pod": pod, "address": address, "port": local, "remotePort": remote}
        terminal.echo(msgspec.json.encode(found).decode())
    else:
        terminal.echo(f"{address}:{local} leads to port {remote} of pod {pod}")


def _report(why: str) -> None:
    terminal.echo(why, err=True)
