"""The two ends of a network that test_late_sender cuts: a server that reports, and a sender.

    late_sender.py serve HOST KEYS        prints the method of each request that arrives
    late_sender.py send HOST KEYS HOW     prints "ready"; after a line of input sends a DELETE, and
                                          then its outcome

HOW is ``fenced`` for a sender whose session ends ``SESSION_S`` later, or ``free``.
"""

import asyncio
import os
import sys
from pathlib import Path

import uvloop
from tests.contract import doors

from grange.api.http import Request, Response
from grange.api.status import Timeout
from grange.apiserver.listener import Listener
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.client.client import Client
from grange.client.transports.http import HTTP
from grange.reconcile.farm.fenced_client import FencedClient
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.session import Session

PORT, SESSION_S = 8443, 3.0


def report(word: str) -> None:
    """One line, whole or not at all."""
    os.write(1, f"{word}\n".encode())


async def serve(host: str, keys: Path) -> None:
    async def handle(request: Request) -> Response:
        report(request.method)
        return Response(200, b"{}")

    made = doors.keys(keys, host)
    async with Listener(
        handle,
        authenticator=None,
        ssl_context=made.server_context(),
        host=host,
        port=PORT,
        clock=LoopClock(),
        log=Logger("late"),
    ):
        (keys / "ca.pem").write_bytes(made.ca_pem)
        report("ready")
        await asyncio.Event().wait()


async def send(host: str, keys: Path, how: str) -> None:
    clock = LoopClock()
    client = Client(HTTP(f"https://{host}:{PORT}", ca_file=keys / "ca.pem"), clock=clock)
    await client.raw(Request("GET", "/api"))  # the connection that is used again
    report("ready")
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    if how == "fenced":
        session = Session(Token("one", "n", 1), clock, clock.elapsed() + SESSION_S)
        client = FencedClient(client, session, clock=clock)
    try:
        await client.raw(Request("DELETE", "/api/v1/namespaces/default/pods/web"))
    except Timeout:
        report("timeout")
    await asyncio.Event().wait()


if __name__ == "__main__":
    host, keys = sys.argv[2], Path(sys.argv[3])
    uvloop.run(serve(host, keys) if sys.argv[1] == "serve" else send(host, keys, sys.argv[4]))
