"""What only the HTTP transport can get wrong: trust, secrets, time, broken connections."""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from tests.support import transport_factories

from grange.api.http import ADMIN, Request, Response
from grange.api.status import BadRequest, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client import kubeconfig, kubeconfig_contexts
from grange.client.access import ServiceAccountAccess
from grange.client.client import Client
from grange.client.errors import KubeconfigError
from grange.client.transport import Transport
from grange.client.transports.bounds import BoundedExchange
from grange.client.transports.http_transport import HTTP, tls_context

pytestmark = pytest.mark.e2e

ASK = Request("GET", "/api")
WRITE = Request("POST", "/api", body=b"{}")
Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def whoami(request: Request) -> Response:
    return Response(200, request.user.name.encode())


@asynccontextmanager
async def peer(talk: Peer) -> AsyncGenerator[str, None]:
    """A server that speaks its own mind."""

    async def safely(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError):  # the client was through
                await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(safely, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"


@asynccontextmanager
async def closing(transport: HTTP) -> AsyncGenerator[Transport, None]:
    yield transport
    await transport.close()


async def test_pinned_authority_is_trusted_and_the_token_names_users(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    keys = transport_factories.keys(tmp_path, "127.0.0.1")
    async with transport_factories.listening(whoami, clock, log, keys.server_context()) as listener:
        kubeconfig_contexts.write(
            tmp_path / "config", "g", listener.url, keys.ca_pem, transport_factories.BEARER
        )
        access = kubeconfig.load([tmp_path / "config"])
        async with closing(HTTP.from_access(access)) as transport:
            assert (await transport.send(ASK)).body == ADMIN.name.encode()
        (tmp_path / "pinned.crt").write_bytes(keys.ca_pem)
        pinned = HTTP(listener.url, transport_factories.BEARER, ca_file=tmp_path / "pinned.crt")
        async with closing(pinned) as transport:
            assert (await transport.send(ASK)).status == 200


async def test_certificate_of_another_authority_is_refused(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """Pinning means: this authority and no other, whatever the system trusts."""
    keys = transport_factories.keys(tmp_path / "one", "127.0.0.1")
    others = transport_factories.keys(tmp_path / "two", "127.0.0.1")
    async with transport_factories.listening(whoami, clock, log, keys.server_context()) as listener:
        for tls in (tls_context(others.ca_pem), tls_context()):
            wrong = HTTP(listener.url, transport_factories.BEARER, ssl_context=tls)
            async with closing(wrong) as transport:
                with pytest.raises(ServiceUnavailable, match="certificate is not trusted"):
                    await transport.send(ASK)
        careless = HTTP(
            listener.url, transport_factories.BEARER, ssl_context=tls_context(insecure=True)
        )
        async with closing(careless) as transport:
            assert (await transport.send(ASK)).status == 200


async def test_server_name_can_be_given(tmp_path: Path, clock: Clock, log: Logger) -> None:
    """The address in use need not be the name in the certificate (tunnels, port forwards)."""
    keys = transport_factories.keys(tmp_path, "api.example.org")
    async with transport_factories.listening(whoami, clock, log, keys.server_context()) as listener:
        tls = tls_context(keys.ca_pem)
        async with closing(
            HTTP(listener.url, transport_factories.BEARER, ssl_context=tls)
        ) as transport:
            with pytest.raises(ServiceUnavailable, match="certificate is not trusted"):
                await transport.send(ASK)
        named = HTTP(
            listener.url, transport_factories.BEARER, ssl_context=tls, server_name="api.example.org"
        )
        async with closing(named) as transport:
            assert (await transport.send(ASK)).status == 200


async def test_unknown_token_is_an_answer_that_does_not_show_it(clock: Clock, log: Logger) -> None:
    async with transport_factories.listening(whoami, clock, log) as listener:
        secret = "wrong-s3cret"  # noqa: S105  the point of the test
        async with closing(HTTP(listener.url, secret)) as transport:
            answer = await transport.send(ASK)
            assert answer.status == 401
            assert secret not in f"{answer}"


async def test_unsendable_token_is_refused_without_showing_it() -> None:
    with pytest.raises(BadRequest) as caught:
        HTTP("http://127.0.0.1:1", "s3cret\r\nx: y")
    assert "s3cret" not in str(caught.value)


async def test_token_file_is_read_again_when_it_changes(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    """Tokens of pods are rotated under their running programs."""
    file = tmp_path / "token"
    file.write_text("old")
    async with AsyncExitStack() as stack:
        listener = await stack.enter_async_context(
            transport_factories.listening(whoami, clock, log)
        )
        rotated = HTTP(listener.url, token_file=file)
        transport = await stack.enter_async_context(closing(rotated))
        assert (await transport.send(ASK)).status == 401
        file.write_text(transport_factories.BEARER + "\n")
        assert (await transport.send(ASK)).status == 200
        file.unlink()
        assert (await transport.send(ASK)).status == 200, "the last one known"


def mount(directory: Path, version: str, **files: bytes) -> None:
    """Files as a kubelet mounts them: links through one link, which is replaced in one step."""
    (directory / version).mkdir()
    for name, data in files.items():
        (directory / version / name.replace("_", ".")).write_bytes(data)
        link = directory / name.replace("_", ".")
        if not link.is_symlink():
            link.symlink_to(f"..data/{link.name}")
    (directory / "next").symlink_to(version)
    (directory / "next").rename(directory / "..data")


async def test_pod_trusts_its_cluster_and_follows_its_rotating_token(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    keys = transport_factories.keys(tmp_path / "keys", "127.0.0.1")
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    mount(directory, "one", token=b"old", ca_crt=keys.ca_pem, namespace=b"grange-system")
    async with transport_factories.listening(whoami, clock, log, keys.server_context()) as listener:
        host, _, port = listener.url.removeprefix("https://").rpartition(":")
        access = kubeconfig.find([], "", ServiceAccountAccess(directory, host, port))
        assert access.namespace == "grange-system"
        async with closing(HTTP.from_access(access)) as transport:
            assert (await transport.send(ASK)).status == 401
            mount(directory, "two", token=transport_factories.BEARER.encode(), ca_crt=keys.ca_pem)
            assert (await transport.send(ASK)).body == ADMIN.name.encode()


async def test_none_listening_is_unavailable() -> None:
    async with peer(_silent) as url:
        pass
    async with closing(HTTP(url, transport_factories.BEARER)) as transport:
        for request in (ASK, WRITE):
            with pytest.raises(ServiceUnavailable, match="cannot connect") as caught:
                await transport.send(request)
            assert transport_factories.BEARER not in str(caught.value)


async def test_no_answer_in_time_is_a_timeout() -> None:
    async with peer(_silent) as url, closing(HTTP(url, request_s=0.2)) as transport:
        for request in (ASK, WRITE, Request("GET", "/api/v1/pods", {"watch": "true"})):
            with pytest.raises(Timeout, match="no answer within"):
                await transport.send(request)


async def test_write_on_broken_connection_is_sent_once() -> None:
    """Sent again, a create would answer AlreadyExists and a delete NotFound: both wrong."""
    heads: list[bytes] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))

    async with peer(hang_up) as url:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            async with closing(HTTP(url)) as transport:
                with pytest.raises(Timeout, match="not known"):
                    await transport.send(Request(method, "/api", body=b"{}"))
    assert len(heads) == 4


async def test_read_on_closed_connection_is_sent_again() -> None:
    heads: list[bytes] = []

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        heads.append(await reader.readuntil(b"\r\n\r\n"))  # and hangs up on the second

    async with peer(once) as url, closing(HTTP(url)) as transport:
        assert (await transport.send(ASK)).status == 200
        assert (await transport.send(ASK)).status == 200
    assert len(heads) == 3


async def test_connection_is_used_again(clock: Clock, log: Logger) -> None:
    connections: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while await reader.read(65536):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with peer(answer) as url, closing(HTTP(url)) as transport:
        for _ in range(10):
            await transport.send(ASK)
    assert len(connections) == 1


async def test_redirect_is_not_followed() -> None:
    """The token would go along to wherever it points."""

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        )
        await writer.drain()

    async with peer(elsewhere) as url, closing(HTTP(url, transport_factories.BEARER)) as transport:
        assert (await transport.send(ASK)).status == 302


async def test_stream_cut_in_the_middle_is_an_error() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        await writer.drain()

    async with peer(cut) as url, closing(HTTP(url)) as transport:
        answer = await transport.send(Request("GET", "/x", {"watch": "true"}))
        assert answer.chunks is not None
        assert await anext(answer.chunks) == b"one\n"
        with pytest.raises(ServiceUnavailable, match="the stream broke"):
            await anext(answer.chunks)


async def test_silent_stream_is_left_to_its_reader(clock: Clock) -> None:
    """A follow of a quiet log sends nothing for hours, and that is no fault."""

    async def quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        await clock.sleep(0.6)
        writer.write(b"4\r\ntwo\n\r\n0\r\n\r\n")
        await writer.drain()

    async with peer(quiet) as url, closing(HTTP(url, request_s=0.2)) as transport:
        logs = Client(transport).logs("p", "n")
        assert [piece async for piece in logs] == [b"one\n", b"two\n"]


async def test_junk_instead_of_http_is_unavailable() -> None:
    async def junk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")
        await writer.drain()

    async with peer(junk) as url, closing(HTTP(url)) as transport:
        with pytest.raises(ServiceUnavailable):
            await transport.send(ASK)


@pytest.mark.parametrize("url", ["127.0.0.1:6443", "ftp://h", ""])
async def test_address_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="URL"):
        HTTP(url)


async def test_unusable_key_material_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="authority is not PEM"):
        tls_context(b"junk")
    with pytest.raises(KubeconfigError, match="certificate and its key"):
        tls_context(certificate_pem=b"junk", key_pem=b"junk")
    with pytest.raises(KubeconfigError, match=r"no\.crt"):
        HTTP("https://h", ca_file=tmp_path / "no.crt")


async def _silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize(("within_s", "end"), [(None, "closed"), (5.0, "reset")])
async def test_bound_write_is_aborted_when_its_sender_gives_it_up(
    within_s: float | None, end: str
) -> None:
    """An orderly close would deliver first what the kernel holds; a reset drops it."""
    ends: asyncio.Queue[str] = asyncio.Queue()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            ends.put_nowait("read")
            while await reader.read(100):
                pass
        except ConnectionResetError:
            ends.put_nowait("reset")
        else:
            ends.put_nowait("closed")

    async with peer(talk) as url, closing(HTTP(url)) as transport:
        sent = asyncio.ensure_future(transport.send(Request("DELETE", "/api", within_s=within_s)))
        assert await ends.get() == "read"
        sent.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sent
        assert await ends.get() == end


async def test_bound_write_limits_how_long_the_kernel_sends_it_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionResetError):
            await reader.read()

    async with peer(talk) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        BoundedExchange(2.5).take(writer.transport)
        opened = writer.transport.get_extra_info("socket")
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 2500
        writer.close()


async def test_cancelled_request_leaves_no_connection(tmp_path: Path) -> None:
    """Also where the server is busy and does not answer the end of TLS."""
    keys = transport_factories.keys(tmp_path, "127.0.0.1")
    context = keys.server_context()
    asked, ended = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(received, sent, server_side=True)
        with suppress(ConnectionResetError):
            while piece := await reader.read(4096):
                received.write(piece)
                with suppress(ssl.SSLError):  # it wants more, or is at its end
                    tls.do_handshake()
                    if tls.read(4096):
                        asked.set()
                writer.write(sent.read())
        ended.set()

    async with peer(talk) as url:
        tls = tls_context(keys.ca_pem)
        async with closing(HTTP(url.replace("http:", "https:"), ssl_context=tls)) as transport:
            request = asyncio.ensure_future(transport.send(ASK))
            await asked.wait()
            request.cancel()
            await asyncio.wait([request])
        async with asyncio.timeout(5):
            await ended.wait()


async def test_answered_request_leaves_its_connection_to_others() -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async with peer(talk) as url, closing(HTTP(url)) as transport:
        for _ in range(3):
            assert (await transport.send(ASK)).body == b"{}"
    assert connections == 1
