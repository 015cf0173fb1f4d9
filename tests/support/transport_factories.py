"""Ways to reach a handler: the transports under test, with what each of them needs around it."""

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from grange.api.http import ADMIN, Request, Response
from grange.apiserver.authn import StaticTokens
from grange.apiserver.listener import Listener
from grange.app import certificates, key_files
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.transport import Transport
from grange.client.transports.http_transport import HTTP
from grange.client.transports.inprocess import InProcess

Handler = Callable[[Request], Awaitable[Response]]
BEARER = "a-token-that-nobody-should-see"


@asynccontextmanager
async def inprocess(handler: Handler) -> AsyncGenerator[Transport, None]:
    transport = InProcess(handler, ADMIN)
    yield transport
    await transport.close()


@asynccontextmanager
async def http(handler: Handler, clock: Clock, log: Logger) -> AsyncGenerator[Transport, None]:
    """Plain HTTP on loopback."""
    async with listening(handler, clock, log) as listener:
        transport = HTTP(listener.url, BEARER, request_s=10)
        yield transport
        await transport.close()


@asynccontextmanager
async def listening(
    handler: Handler, clock: Clock, log: Logger, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Listener, None]:
    """A real listener that knows one token."""
    tokens = StaticTokens({BEARER: ADMIN})
    async with Listener(
        handler, authenticator=tokens, ssl_context=tls, clock=clock, log=log
    ) as listener:
        yield listener


def keys(directory: Path, *names: str) -> key_files.Keys:
    """A CA and a server certificate for these names."""
    return certificates.ensure(directory, names=names, now=datetime.now(UTC))
