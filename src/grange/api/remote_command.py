"""The messages of ``exec`` and ``attach`` over a WebSocket: ``v4`` and ``v5.channel.k8s.io``.

The first byte of a message is its channel. The error channel carries one ``Status`` at the end:
Success, or a failure whose cause ``ExitCode`` is the exit code. Version 5 adds a channel by which a
client closes its input.
"""

from typing import NamedTuple

import msgspec

from grange.api.status import ApiError, APIStatus, Cause, Details, from_status

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
PROTOCOLS = (V5, V4)
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255

_NON_ZERO, _EXIT_CODE = "NonZeroExitCode", "ExitCode"
_SIZE_MAX = (1 << 16) - 1


class TerminalSize(NamedTuple):
    """Of a terminal, in characters."""

    columns: int
    rows: int


class _Size(msgspec.Struct, rename="pascal"):
    width: int = 0
    height: int = 0


_sizes = msgspec.json.Decoder(_Size)
_statuses = msgspec.json.Decoder(APIStatus)


def message(channel: int, data: bytes = b"") -> bytes:
    """A message on a channel."""
    return bytes((channel,)) + data


def resize(size: TerminalSize) -> bytes:
    """The message that gives a terminal its size."""
    return message(RESIZE, msgspec.json.encode({"Width": size.columns, "Height": size.rows}))


def read_size(data: bytes) -> TerminalSize | None:
    """The size in a message on the channel ``RESIZE``; None where it is no usable one."""
    try:
        found = _sizes.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if 0 < found.width <= _SIZE_MAX and 0 < found.height <= _SIZE_MAX:
        return TerminalSize(found.width, found.height)
    return None


def succeeded() -> bytes:
    """The last message of a command that ended with zero, or of an attached stream."""
    return message(ERROR, msgspec.json.encode(APIStatus(status="Success").document()))


def exited(code: int) -> bytes:
    """The last message of a command that ended with another code."""
    text = f"command terminated with non-zero exit code: exit status {code}"
    details = Details(causes=[Cause(_EXIT_CODE, str(code))])
    status = APIStatus(message=text, reason=_NON_ZERO, details=details)
    return message(ERROR, msgspec.json.encode(status.document()))


def failed(error: ApiError) -> bytes:
    """The last message of a stream that could not be served."""
    return message(ERROR, msgspec.json.encode(error.status().document()))


def exit_code(data: bytes) -> int:
    """The exit code in a message on the channel ``ERROR``.

    Raises:
        ApiError: the stream failed for another reason, or the message cannot be read.
    """
    try:
        status = _statuses.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise ApiError(f"the stream ended with an unreadable status: {data[:200]!r}") from None
    if status.status == "Success":
        return 0
    if status.reason == _NON_ZERO and status.details is not None:
        for cause in status.details.causes:
            if cause.reason == _EXIT_CODE and cause.message.isdecimal():
                return int(cause.message)
    raise from_status(status.code or 500, data)
