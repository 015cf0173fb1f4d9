"""What a probe is asked of, and what it answers; shared by all types of probes."""

import asyncio
import errno
import re
from typing import NamedTuple

from grange.agent.container_runtime import ContainerID
from grange.api.kinds.pod import Container

MESSAGE_CHARS = 300
_PORT = re.compile(r"[0-9]{1,5}")
# What the agent or its machine lacks: no statement about the container.
_OURS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EADDRNOTAVAIL, errno.EAGAIN}
)


class Answer(NamedTuple):
    """One answer of a probe.

    Attributes:
        ok: whether it passed; None when it could not be asked, which is no statement about the container.
        message: what was found, or why it could not be asked.
        code: status of an HTTP answer; zero where there was none.
    """

    ok: bool | None
    message: str = ""
    code: int = 0


class ProbeTarget(NamedTuple):
    """What to ask.

    Attributes:
        address: the pod's own address.
        container: for its named ports.
        target: the running attempt, for commands.
    """

    address: str
    container: Container
    target: ContainerID


def port_of(port: int | str, container: Container) -> int | None:
    """The number of a port that is given by number or by name; None for an unknown name."""
    if isinstance(port, int) or _PORT.fullmatch(port):
        number = int(port)
        return number if 0 < number < 65536 else None
    for item in container.ports:
        if item.name == port:
            return item.container_port
    return None


def no_port(port: int | str) -> Answer:
    """The answer where the container has no port of that name."""
    shown = str(port)[:MESSAGE_CHARS]
    return Answer(ok=False, message=f'the container has no port named "{shown}"')


def unreachable(address: str, port: int, error: Exception) -> Answer:
    """The answer where no connection was made."""
    if isinstance(error, ConnectionRefusedError):
        return Answer(
            ok=False,
            message=f"connection refused at {address}:{port} "
            "(is the program listening on $POD_IP or 0.0.0.0?)",
        )
    return not_asked(error) or Answer(ok=False, message=f"{address}:{port}: {reason_of(error)}")


def not_asked(error: Exception) -> Answer | None:
    """The answer where it is this process that lacks something; None where it is not."""
    if isinstance(error, OSError) and error.errno in _OURS:
        return Answer(ok=None, message=f"the agent cannot ask: {reason_of(error)}")
    return None


def reason_of(error: Exception) -> str:
    """The text of an error, without its number."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def close(writer: asyncio.StreamWriter) -> None:
    """Close at once: the rest of the answer is not needed."""
    writer.transport.abort()
