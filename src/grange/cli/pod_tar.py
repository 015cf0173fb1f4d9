"""tar in a container, for ``grange cp``."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from grange.api import remote_command
from grange.api.meta import Document
from grange.api.remote_command import CLOSE, ERROR, STDERR, STDIN, STDOUT, V5
from grange.api.status import ServiceUnavailable
from grange.api.stream_requests import EXEC
from grange.base.message_socket import MessageSocket
from grange.base.tasks import Nursery
from grange.cli.pod_connection import pod_connection
from grange.cli.session import ApiSession

_ERRORS_MAX_BYTES = 4096

Take = Callable[[bytes], Awaitable[None]]


class TarEnd(NamedTuple):
    """How it ended.

    Attributes:
        exit_code: zero where all went well.
        errors: the beginning of what it wrote to standard error.
    """

    exit_code: int
    errors: str


async def run_in_pod(
    opened: ApiSession,
    pod: Document,
    container: str,
    words: Sequence[str],
    *,
    given: Iterable[bytes] | None = None,
    take: Take | None = None,
) -> TarEnd:
    """Run a command in a container.

    Args:
        opened: the session.
        pod: where.
        container: its name.
        words: program and arguments.
        given: its input; None for none.
        take: gets its output.

    Raises:
        ApiError: it could not be run.
    """
    query = {
        "container": [container],
        "command": list(words),
        **{name: ["true"] for name in ("stdout", "stderr", *(["stdin"] if given else []))},
    }
    # Only this version can end the input.
    async with (
        pod_connection(opened, pod, EXEC, (V5,), query) as (socket, _),
        Nursery("tar") as nursery,
    ):
        if given is not None:
            nursery.start(_send(socket, given), name="input")
        end = await _receive(socket, take)
        nursery.cancel()
    return end


async def _send(socket: MessageSocket, given: Iterable[bytes]) -> None:
    try:
        for piece in given:
            await socket.send(remote_command.message(STDIN, piece))
        await socket.send(remote_command.message(CLOSE, bytes((STDIN,))))
    except ConnectionError:
        pass  # the reader of the answers learns of it, too


async def _receive(socket: MessageSocket, take: Take | None) -> TarEnd:
    errors = b""
    while (message := await socket.receive()) is not None:
        channel, data = message[:1], message[1:]
        if channel == bytes((ERROR,)):
            return TarEnd(remote_command.exit_code(data), errors.decode(errors="replace").strip())
        if channel == bytes((STDERR,)):
            errors = (errors + data)[:_ERRORS_MAX_BYTES]
        elif channel == bytes((STDOUT,)) and take is not None:
            await take(data)
    raise ServiceUnavailable("the connection to the pod broke off; the copy is not complete")
