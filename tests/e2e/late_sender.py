"""The two ends of a network that test_late_sender cuts: a server that reports, and a sender.

    late_sender.py serve HOST PORT KEYS       prints the method of each request that arrives
    late_sender.py api HOST PORT KEYS         an API server; prints method and answer of each write
    late_sender.py send HOST PORT KEYS HOW    prints "ready"; after a line of input sends a DELETE,
                                              and then its outcome

The line names pod, UID and version; the body is padded, so that no small buffer holds it. HOW is ``fenced`` for a sender whose session ends ``SESSION_S`` later, or ``free``.
"""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import uvloop
from tests.support import transport_factories

from grange.api.http import ADMIN, JSON, Request, Response
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.api.status import Timeout
from grange.apiserver.application import Application
from grange.apiserver.listener import Listener
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP
from grange.reconcile.farm.fenced_client import FencedClient
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.member_session import Session
from grange.store.memory import MemoryStore

Handler = Callable[[Request], Awaitable[Response]]

SESSION_S = 3.0
PADDING = 16 * 1024  # an API server takes 32 KiB


def report(word: str) -> None:
    """One line, whole or not at all."""
    os.write(1, f"{word}\n".encode())


async def receive(request: Request) -> Response:
    """Report the method, and do nothing."""
    report(request.method)
    return Response(200, b"{}")


async def api_server() -> Handler:
    """An API server that reports what became of each write."""
    clock, log = LoopClock(), Logger("late")
    application = Application(
        MemoryStore(), Scheme(BUILT_IN), clock=clock, rng=Stream(1), log=log, authn=None
    )
    await application.bootstrap()

    async def handle(request: Request) -> Response:
        response = await application.handle(replace(request, user=ADMIN))
        if request.method not in {"GET", "POST"}:
            report(f"{request.method} {response.status}")
        return response

    return handle


async def serve(host: str, port: int, keys: Path, handle: Handler) -> None:
    made = transport_factories.keys(keys, host)
    async with Listener(
        handle,
        authenticator=None,
        ssl_context=made.server_context(),
        host=host,
        port=port,
        clock=LoopClock(),
        log=Logger("late"),
    ):
        (keys / "ca.pem").write_bytes(made.ca_pem)
        report("ready")
        await asyncio.Event().wait()


async def send(host: str, port: int, keys: Path, how: str) -> None:
    clock = LoopClock()
    client = Client(HTTP(f"https://{host}:{port}", ca_file=keys / "ca.pem"), clock=clock)
    await client.raw(Request("GET", "/api"))  # the connection that is used again
    report("ready")
    line = await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    pod, uid, version = line.split()
    if how == "fenced":
        session = Session(Token("one", "n", 1), clock, clock.elapsed() + SESSION_S)
        client = FencedClient(client, session, clock=clock)
    options = {"preconditions": {"uid": uid, "resourceVersion": version}}
    body = json.dumps(options).encode() + b" " * PADDING
    path = f"/api/v1/namespaces/default/pods/{pod}"
    try:
        await client.raw(Request("DELETE", path, headers={"content-type": JSON}, body=body))
    except Timeout:
        report("timeout")
    await asyncio.Event().wait()


async def main(what: str, host: str, port: int, keys: Path) -> None:
    if what == "send":
        await send(host, port, keys, sys.argv[5])
    else:
        await serve(host, port, keys, receive if what == "serve" else await api_server())


if __name__ == "__main__":
    what, host, port, keys = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    uvloop.run(main(what, host, port, keys))
