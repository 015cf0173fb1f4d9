"""``tcpSocket``: a connection that opens passes."""

import asyncio

from grange.agent.container_runtime import PodRuntime
from grange.agent.probe_answer import Answer, ProbeTarget, close, no_port, port_of, unreachable
from grange.api.kinds.pod import Probe


def asks(probe: Probe) -> bool:
    """Whether the probe opens a connection."""
    return probe.tcp_socket is not None


async def ask(probe: Probe, target: ProbeTarget, _runtime: PodRuntime, _limit_s: float) -> Answer:
    """Open a connection once and close it."""
    action = probe.tcp_socket
    if action is None or (number := port_of(action.port, target.container)) is None:
        return no_port(action.port if action is not None else "")
    address = action.host or target.address
    try:
        _, writer = await asyncio.open_connection(address, number)
    except (OSError, ValueError) as error:  # UnicodeError: a host that cannot be a name
        return unreachable(address, number, error)
    close(writer)
    return Answer(ok=True)
