"""Which local ports of ``grange port-forward`` lead to which ports of a pod."""

from collections.abc import Iterable
from typing import NamedTuple

import click

from grange.api.meta import Document
from grange.api.port_forward import is_port


class PortPair(NamedTuple):
    """One port that is forwarded.

    Attributes:
        local: to listen on; zero for a free one.
        remote: number or name.
    """

    local: int
    remote: str


def read_pair(word: str) -> PortPair:
    """``LOCAL:REMOTE``, ``:REMOTE`` for a free local port, or ``PORT`` for the same on both sides.

    Raises:
        click.UsageError: it is none of these.
    """
    local, colon, remote = word.partition(":")
    if not colon:
        local, remote = (local, local) if is_port(local) else ("", local)
    if (local and not is_port(local)) or not remote or (remote.isdecimal() and not is_port(remote)):
        raise click.UsageError(
            f"{word}: must be PORT, LOCAL:REMOTE or :REMOTE, with ports from 1 to 65535"
        )
    return PortPair(int(local or 0), remote)


def port_of_pod(pod: Document, remote: str) -> int:
    """The number of a pod's port.

    Raises:
        ClickException: no container has a port of this name.
    """
    if remote.isdecimal():
        return int(remote)
    ports = [
        port
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    ]
    for port in ports:
        if port.get("name") == remote:
            return int(port["containerPort"])
    where = f"pod {pod['metadata']['name']}"
    raise click.ClickException(_unknown(where, remote, (port.get("name") for port in ports)))


def port_behind_service(service: Document, pod: Document, remote: str) -> int:
    """The number of the pod's port that a Service's port leads to.

    Raises:
        ClickException: there is no such port.
    """
    ports = service["spec"].get("ports") or ()
    for port in ports:
        if remote in {str(port["port"]), port.get("name")}:
            return port_of_pod(pod, str(port.get("targetPort") or port["port"]))
    known = [text for port in ports for text in (str(port["port"]), port.get("name"))]
    where = f"service {service['metadata']['name']}"
    raise click.ClickException(_unknown(where, remote, known))


def _unknown(where: str, remote: str, known: Iterable[str | None]) -> str:
    listed = ", ".join(dict.fromkeys(text for text in known if text))
    return f"{where}: no port {remote}; it has {listed or 'no ports with names'}"
