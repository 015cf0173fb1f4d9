"""The gRPC probe's one call: what it sends, and what it makes of every answer."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from grange.agent import grpc_health
from grange.agent.grpc_health import GrpcError, frame

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0, 1, 3, 4, 6, 7
HELLO = frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0)
SERVING = b"\0\0\0\0\2\x08\1"


class Writer:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


async def ask(answer: bytes) -> tuple[str, bytes]:
    reader = asyncio.StreamReader()
    reader.feed_data(answer)
    reader.feed_eof()
    writer: Any = Writer()
    return await grpc_health.check(reader, writer), writer.data


def test_request_has_the_form_of_the_protocol() -> None:
    made = grpc_health.request("127.1.2.3:80", "shop.Cart")
    assert made.startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    assert b"\0\5:path\x1c/grpc.health.v1.Health/Check" in made
    assert made.endswith(b"\0\0\x10\0\1\0\0\0\1" + b"\0\0\0\0\x0b\x0a\x09shop.Cart")
    assert grpc_health.request("x:1", "").endswith(b"\0\0\5\0\1\0\0\0\1\0\0\0\0\0")


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (SERVING, "SERVING"),
        (b"\0\0\0\0\2\x08\2", "NOT_SERVING"),
        (b"\0\0\0\0\0", "UNKNOWN"),
        (b"\0\0\0\0\2\x08\x09", "status 9"),
    ],
)
async def test_status_is_found_in_the_answer(message: bytes, status: str) -> None:
    headers = frame(HEADERS, 4, 1, b"\x88")
    whole = HELLO + headers + frame(DATA, 0, 1, message) + frame(HEADERS, 5, 1, b"x")
    assert (await ask(whole))[0] == status
    parts = b"".join(frame(DATA, 0, 1, bytes([byte])) for byte in message)
    assert (await ask(HELLO + headers + parts))[0] == status
    padded = frame(DATA, 8, 1, b"\3" + message + b"\0\0\0")
    assert (await ask(HELLO + headers + padded))[0] == status


async def test_settings_and_pings_are_acknowledged() -> None:
    answer = HELLO + frame(PING, 0, 0, b"12345678") + frame(DATA, 0, 1, SERVING)
    assert (await ask(answer))[1] == frame(SETTINGS, 1, 0) + frame(PING, 1, 0, b"12345678")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"", "closed the connection"),
        (HELLO, "closed the connection"),
        (HELLO + frame(GOAWAY, 0, 0, b"\0" * 8), "closed the connection"),
        (HELLO + frame(RST_STREAM, 0, 1, b"\0" * 4), "refused the call"),
        (HELLO + frame(HEADERS, 5, 1, b"x"), "no health service"),
        (HELLO + frame(DATA, 1, 1), "no health service"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not HTTP/2"),
        (frame(SETTINGS, 1, 0) * 200, "does not come to its answer"),
        (HELLO + frame(DATA, 0, 1, b"\1" + SERVING[1:]), "compressed"),
        (HELLO + frame(DATA, 0, 1, b"\0\0\0\0\1x"), "not one of a health service"),
        (HELLO + frame(DATA, 0, 1, b"\0\0\xff\0\0" + b"x" * 2000), "too long"),
        (HELLO + frame(DATA, 8, 1, b""), "closed the connection"),
    ],
)
async def test_other_answers_are_failures(answer: bytes, expected: str) -> None:
    with pytest.raises(GrpcError, match=expected):
        await ask(answer)


FRAMES = st.builds(
    frame,
    st.integers(0, 9),
    st.integers(0, 255),
    st.sampled_from([0, 1, 3]),
    st.binary(max_size=20),
)


@given(st.binary(max_size=60) | st.lists(FRAMES, max_size=8).map(b"".join))
@settings(max_examples=200, deadline=None)
def test_no_answer_raises_anything_else(answer: bytes) -> None:
    async def attempt() -> str:
        return (await ask(answer))[0]

    with suppress(GrpcError):
        assert asyncio.run(attempt())
