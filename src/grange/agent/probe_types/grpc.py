"""``grpc``: the service ``grpc.health.v1.Health`` answers SERVING; without TLS."""

import asyncio

from grange.agent import grpc_health
from grange.agent.container_runtime import PodRuntime
from grange.agent.probe_answer import Answer, ProbeTarget, close, no_port, port_of, unreachable
from grange.api.kinds.pod import Probe


def asks(probe: Probe) -> bool:
    """Whether the probe calls the health service."""
    return probe.grpc is not None


async def ask(probe: Probe, target: ProbeTarget, _runtime: PodRuntime, _limit_s: float) -> Answer:
    """Call the service once."""
    action = probe.grpc
    if action is None or (number := port_of(action.port, target.container)) is None:
        return no_port(action.port if action is not None else "")
    where = f"{target.address}:{number}"
    try:
        reader, writer = await asyncio.open_connection(target.address, number)
        try:
            writer.write(grpc_health.request(where, action.service))
            status = await grpc_health.check(reader, writer)
        finally:
            close(writer)
    except grpc_health.GrpcError as error:
        return Answer(ok=False, message=f"{where}: {error}")
    except OSError as error:
        return unreachable(target.address, number, error)
    return Answer(status == "SERVING", f'the service answered "{status}"')
