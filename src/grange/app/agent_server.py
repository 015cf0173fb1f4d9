"""The server of a node's agent: mutual TLS, on a port that the Node publishes."""

import errno
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grange.apiserver.connections import ConnectionLimits
from grange.apiserver.listener import Limits, Listener
from grange.app.agent_endpoints import AgentEndpoints
from grange.app.agent_settings import PORT
from grange.app.settings import SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger

_ANY = "0.0.0.0"  # noqa: S104  callers show a certificate
_LIMITS = Limits(
    body_bytes=64 * 1024,
    bodies_bytes=1024 * 1024,
    connections=ConnectionLimits(total=512, unauthenticated=64, unauthenticated_per_peer=32),
)


@asynccontextmanager
async def serve_agent(
    endpoints: AgentEndpoints,
    context: ssl.SSLContext,
    host: str,
    port: int | None,
    *,
    clock: Clock,
    log: Logger,
) -> AsyncIterator[int]:
    """Serve until the end of the block; the value is the port.

    Args:
        endpoints: what is served.
        context: demands client certificates; without a certificate connections fail.
        host: address of the node. One that this machine does not have, as behind address
            translation, means all addresses.
        port: None takes ``PORT``, or a free one where another program has that.
        clock: time.
        log: of the process.

    Raises:
        SettingsError: the port cannot be listened on.
    """
    listener = await _listening(endpoints, context, host, port, clock, log)
    try:
        yield listener.port
    finally:
        await listener.close()


async def _listening(
    endpoints: AgentEndpoints,
    context: ssl.SSLContext,
    host: str,
    port: int | None,
    clock: Clock,
    log: Logger,
) -> Listener:
    wanted = PORT if port is None else port
    for _ in range(3):
        listener = Listener(
            endpoints.handle,
            authenticator=None,
            ssl_context=context,
            clock=clock,
            log=log,
            host=host,
            port=wanted,
            admit=endpoints.admit,
            limits=_LIMITS,
        )
        try:
            await listener.start()
        except OSError as error:
            await listener.close()
            if error.errno == errno.EADDRNOTAVAIL and host != _ANY:
                host = _ANY
            elif error.errno == errno.EADDRINUSE and port is None and wanted:
                wanted = 0
            else:
                raise SettingsError(
                    f"--port {wanted}: cannot listen on {host}: {error.strerror or error}; "
                    "choose another port (0 takes any)"
                ) from error
        else:
            return listener
    raise SettingsError(f"--port {wanted}: cannot listen on {host}; choose another port")
