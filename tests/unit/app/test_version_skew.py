"""Which versions of agents and control planes work together."""

import pytest
from hypothesis import given, strategies as st

import grange
from grange.api.http import Request, Response
from grange.api.status import ServiceUnavailable
from grange.app.version_skew import check_version, fault
from grange.base.clock import Clock


@pytest.mark.parametrize(
    ("agent", "server", "why"),
    [
        ("0.1.0", "0.1.0", ""),
        ("0.1.9", "0.1.0", ""),
        ("0.1.0", "0.4.0", ""),
        ("0.1.0", "0.5.0", "3 minor versions older at most; install 0.5.0 here"),
        ("0.2.0", "0.1.5", "update the control plane first, or install 0.1.5 here"),
        ("1.0.0", "0.9.0", "may not be newer"),
        ("0.9.0", "1.0.0", "older at most"),
        ("0.10.0", "0.9.0", "may not be newer"),
        ("0.1.0", "", ""),
        ("0.1.0", "x.y", ""),
    ],
)
def test_skew_is_as_in_kubernetes(agent: str, server: str, why: str) -> None:
    found = fault(agent, server)
    assert why in found
    assert bool(found) == bool(why)


@given(st.text())
def test_any_text_is_judged(server: str) -> None:
    fault("0.1.0", server)


class Server:
    """Answers with a body, or not."""

    def __init__(self, body: bytes | None, clock: Clock) -> None:
        self._body, self._clock = body, clock

    async def send(self, request: Request) -> Response:
        assert request.path == "/version"
        if self._body is None:
            raise ServiceUnavailable("away")
        if self._body == b"hang":
            await self._clock.sleep(600)
        return Response(200, self._body)

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.mark.parametrize(
    "body", [None, b"hang", b"", b"[]", b"{}", b"null", b"\xff", b'{"gitVersion": 3}']
)
async def test_server_that_gives_no_version_stops_no_agent(
    body: bytes | None, clock: Clock
) -> None:
    assert await check_version(Server(body, clock), clock) == ""
    assert clock.monotonic() < 100


async def test_version_of_the_server_is_compared(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(b'{"gitVersion": "v1.36.0+grange.0.1.0"}', clock)
    assert await check_version(server, clock) == ""
    monkeypatch.setattr(grange, "__version__", "0.2.0")
    assert "may not be newer" in await check_version(server, clock)
