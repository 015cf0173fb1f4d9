"""Which addresses of bind(2) and connect(2) are replaced."""

import socket
import struct

import pytest
from hypothesis import given, strategies as st

from grange.agent.runtimes.process.bind_filter import is_wildcard, localhost_port

ALL = "0.0.0.0"  # noqa: S104  parsed, not bound


def inet(host: str, port: int) -> bytes:
    return (
        struct.pack("=H", socket.AF_INET)
        + struct.pack("!H", port)
        + socket.inet_aton(host)
        + bytes(8)
    )


def inet6(host: str, port: int) -> bytes:
    address = socket.inet_pton(socket.AF_INET6, host)
    return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI", port, 0) + address + bytes(4)


@pytest.mark.parametrize(
    ("address", "replaced"),
    [
        (inet(ALL, 80), True),
        (inet(ALL, 0), False),
        (inet("127.0.0.1", 80), False),
        (inet6("::", 80), True),
        (inet6("::", 0), False),
        (inet6("::1", 80), False),
        (inet(ALL, 80)[:7], False),
        (inet6("::", 80)[:20], False),
        (struct.pack("=H", socket.AF_UNIX) + bytes(30), False),
        (b"\x02", False),
        (b"", False),
    ],
)
def test_wildcards_with_a_port_are_replaced(address: bytes, replaced: bool) -> None:
    assert is_wildcard(address) is replaced


@given(st.binary(max_size=128))
def test_any_bytes_are_an_address_or_not(address: bytes) -> None:
    assert is_wildcard(address) in (True, False)
    assert 0 <= localhost_port(address) < 65536


@pytest.mark.parametrize(
    ("address", "port"),
    [
        (inet("127.0.0.1", 80), 80),
        (inet(ALL, 80), 80),
        (inet("127.0.0.2", 80), 0),
        (inet("192.0.2.1", 80), 0),
        (inet6("::1", 80), 80),
        (inet6("::", 80), 80),
        (inet6("::ffff:127.0.0.1", 80), 80),
        (inet6("::ffff:127.0.0.2", 80), 0),
        (inet6("fe80::1", 80), 0),
        (inet("127.0.0.1", 80)[:7], 0),
        (inet6("::1", 80)[:20], 0),
        (struct.pack("=H", socket.AF_UNIX) + bytes(30), 0),
        (b"", 0),
    ],
)
def test_localhost_is_recognised(address: bytes, port: int) -> None:
    assert localhost_port(address) == port
