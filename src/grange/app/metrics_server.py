"""``/metrics``, ``/livez`` and ``/readyz`` of a process of controllers, over HTTP and without credentials."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import click

from grange.api.http import Request, Response
from grange.app.settings import ListenAddress
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import CollectorRegistry, exposition

Check = Callable[[], str]
"""What is wrong; empty when nothing is."""

_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Answers what a monitoring system and a kubelet ask; nothing can be changed through it.

    Args:
        registry: what ``/metrics`` shows.
        ready: what ``/readyz`` checks, by name. ``/livez`` checks nothing but that the loop runs.
    """

    def __init__(self, registry: CollectorRegistry, ready: Mapping[str, Check]) -> None:
        self._registry = registry
        self._ready = ready

    async def handle(self, request: Request) -> Response:
        """The answer to a request."""
        if request.method not in {"GET", "HEAD"}:
            return Response(405, b"only GET is served\n", _TEXT)
        match request.path.rstrip("/"):
            case "/metrics":
                return Response(200, exposition(self._registry), _METRICS)
            case "/livez" | "/healthz":
                return Response(200, b"ok", _TEXT)
            case "/readyz":
                found = {name: check() for name, check in self._ready.items()}
                lines = [
                    f"[-]{name} failed: {why}" if why else f"[+]{name} ok"
                    for name, why in found.items()
                ]
                failed = any(found.values())
                if not failed and "verbose" not in request.query:
                    return Response(200, b"ok", _TEXT)
                lines.append(f"readyz check {'failed' if failed else 'passed'}")
                return Response(500 if failed else 200, ("\n".join(lines) + "\n").encode(), _TEXT)
        return Response(404, b"there are /metrics, /livez and /readyz\n", _TEXT)


@asynccontextmanager
async def serve_metrics(
    server: MetricsServer, address: ListenAddress, clock: Clock, log: Logger
) -> AsyncIterator[str]:
    """Serve at an address; the value is the URL.

    Raises:
        click.ClickException: the address cannot be used.
    """
    from grange.apiserver.listener import Listener  # takes its time

    listener = Listener(
        server.handle,
        authenticator=None,
        ssl_context=None,
        clock=clock,
        log=log,
        host=address.host,
        port=address.port,
    )
    try:
        await listener.start()
    except OSError as error:
        raise click.ClickException(
            f"--metrics-listen {address}: {error.strerror or error}; choose another address"
        ) from error
    try:
        yield listener.url
    finally:
        await listener.close()
