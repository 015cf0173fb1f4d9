"""Typed verbs over any transport."""

from contextlib import aclosing

import msgspec
import pytest
from tests.unit.client.scripted import Scripted

from grange.api import status
from grange.api.http import ADMIN, ANONYMOUS, Request, Response, User
from grange.api.kinds import NODE, POD
from grange.base.clock import Clock
from grange.client.client import Client, LogOptions
from grange.client.transports.inprocess import InProcess

POD_A = b'{"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"3"}}'


def failed(error: status.ApiError) -> Response:
    return Response(error.code, msgspec.json.encode(error.status().document()))


async def test_get_gives_the_typed_view() -> None:
    transport = Scripted(Response(200, POD_A))
    pod = await Client(transport).get(POD, "a", "ns")
    assert (pod.metadata.uid, pod.metadata.resource_version) == ("u", "3")


async def test_get_document_keeps_fields_without_a_view() -> None:
    transport = Scripted(Response(200, b'{"spec":{"unheardOf":1}}'))
    assert await Client(transport).get_document(POD, "a", "ns") == {"spec": {"unheardOf": 1}}


async def test_errors_of_the_server_are_raised_as_their_class() -> None:
    transport = Scripted(failed(status.NotFound("no such pod", kind="pods", name="a")))
    with pytest.raises(status.NotFound, match="no such pod") as caught:
        await Client(transport).get(POD, "a", "ns")
    assert caught.value.details.kind == "pods"


async def test_read_waits_as_long_as_the_server_asks(clock: Clock) -> None:
    busy = failed(status.TooManyRequests("busy", retry_after_s=3))
    transport = Scripted(busy, busy, Response(200, POD_A))
    started = clock.monotonic()
    await Client(transport, clock=clock).get(POD, "a", "ns")
    assert clock.monotonic() - started == 6


async def test_read_gives_up_when_the_server_stays_busy(clock: Clock) -> None:
    busy = failed(status.TooManyRequests("busy", retry_after_s=1))
    transport = Scripted(*[busy] * 9)
    with pytest.raises(status.TooManyRequests):
        await Client(transport, clock=clock).list(POD)
    assert len(transport.requests) == 5


@pytest.mark.parametrize("retry_after_s", [0, 3600])
async def test_read_does_not_wait_without_a_time_or_for_ever(
    clock: Clock, retry_after_s: int
) -> None:
    transport = Scripted(failed(status.TooManyRequests("busy", retry_after_s=retry_after_s)))
    with pytest.raises(status.TooManyRequests):
        await Client(transport, clock=clock).get(POD, "a", "ns")
    assert clock.monotonic() == 0


async def test_writes_are_sent_once_whatever_comes_back() -> None:
    """Only the work queue retries; a write that is sent twice may happen twice."""
    for error in (
        status.TooManyRequests("busy", retry_after_s=1),
        status.InternalError("oops"),
        status.ServiceUnavailable("later"),
        status.Conflict("changed"),
    ):
        transport = Scripted(*[failed(error)] * 5)
        client = Client(transport)
        for call in (
            client.create(NODE, {"metadata": {"name": "n"}}),
            client.update(NODE, {"metadata": {"name": "n"}}),
            client.patch(NODE, "n", patch={}),
            client.delete(NODE, "n"),
            client.post(POD, "a", "ns", "binding", {}),
        ):
            with pytest.raises(type(error)):
                await call
        assert len(transport.requests) == 5


async def test_strict_client_has_unknown_fields_refused() -> None:
    for strict, validation in ((False, None), (True, "Strict")):
        transport = Scripted(*[Response(200, POD_A)] * 4)
        client = Client(transport, strict=strict)
        await client.get(POD, "a", "ns")
        await client.create(POD, {"metadata": {"name": "a"}}, "ns", dry_run=True)
        await client.patch(POD, "a", "ns", patch={})
        await client.raw(Request("PUT", "/api/v1/namespaces/ns/pods/a"))
        asked = [sent.query.get("fieldValidation") for sent in transport.requests]
        assert asked == [None, validation, validation, validation]
        assert transport.requests[1].query["dryRun"] == "All"


async def test_failures_of_the_transport_pass_through() -> None:
    transport = Scripted(status.Timeout("no answer"), status.ServiceUnavailable("no way"))
    client = Client(transport)
    with pytest.raises(status.Timeout):
        await client.create(NODE, {"metadata": {"name": "n"}})
    with pytest.raises(status.ServiceUnavailable):
        await client.get(NODE, "n")


async def test_list_gives_one_page() -> None:
    body = b'{"metadata":{"resourceVersion":"9","continue":"t"},"items":[' + POD_A + b"]}"
    listing = await Client(Scripted(Response(200, body))).list(POD, "ns", limit=1)
    assert (listing.items[0].metadata.name, listing.next) == ("a", "t")


def event(kind: bytes, body: bytes = POD_A) -> bytes:
    return b'{"type":"' + kind + b'","object":' + body + b"}\n"


GONE = b'{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}'


async def test_watch_yields_events_and_returns_at_an_orderly_end() -> None:
    transport = Scripted()
    transport.script(transport.stream([event(b"ADDED")[:9], event(b"ADDED")[9:]]))
    events = [item async for item in Client(transport).watch(POD, resource_version="1")]
    assert [item.type for item in events] == ["ADDED"]
    assert transport.open_streams == 0


async def test_watch_raises_expired_after_earlier_events() -> None:
    transport = Scripted()
    transport.script(transport.stream([event(b"ADDED") + event(b"ERROR", GONE)]))
    types = []
    with pytest.raises(status.Expired, match="too old"):
        async for item in Client(transport).watch(POD, resource_version="1"):
            types.append(item.type)  # noqa: PERF401  the error ends it
    assert types == ["ADDED"]
    assert transport.open_streams == 0


async def test_watch_raises_expired_from_the_answer() -> None:
    for body in (GONE, GONE.replace(b"Expired", b"Gone")):
        with pytest.raises(status.Expired):
            async for _ in Client(Scripted(Response(410, body))).watch(POD, resource_version="1"):
                pass


async def test_watch_that_breaks_off_inside_an_event_is_an_error() -> None:
    transport = Scripted()
    transport.script(transport.stream([event(b"ADDED")[:-9]]))
    with pytest.raises(status.ServiceUnavailable):
        async for _ in Client(transport).watch(POD, resource_version="1"):
            pass
    assert transport.open_streams == 0


async def test_closing_a_watch_closes_its_stream() -> None:
    """A stream left open is a connection, or a subscription in the store, that is not read."""
    transport = Scripted()
    transport.script(transport.stream([event(b"ADDED")] * 3))
    async with aclosing(Client(transport).watch(POD, resource_version="1")) as watch:
        async for _ in watch:
            assert transport.open_streams == 1
            break
    assert transport.open_streams == 0


async def test_logs_stream_and_close() -> None:
    transport = Scripted()
    transport.script(transport.stream([b"one\n", b"two\n"]))
    logs = Client(transport).logs("a", "ns", options=LogOptions(tail_lines=2))
    assert [piece async for piece in logs] == [b"one\n", b"two\n"]
    assert transport.requests[0].query == {"tailLines": "2"}
    assert transport.open_streams == 0


async def test_logs_of_a_server_that_sends_them_whole() -> None:
    logs = Client(Scripted(Response(200, b"all\n"))).logs("a", "ns")
    assert [piece async for piece in logs] == [b"all\n"]


async def test_logs_error_in_a_streamed_body_is_read() -> None:
    transport = Scripted()
    answer = transport.stream([msgspec.json.encode(status.NotFound("gone").status().document())])
    answer.status = 404
    transport.script(answer)
    with pytest.raises(status.NotFound, match="gone"):
        async for _ in Client(transport).logs("a", "ns"):
            pass
    assert transport.open_streams == 0


async def test_inprocess_asks_as_its_user_and_leaves_the_request_alone() -> None:
    asked: list[User] = []

    async def handler(request: Request) -> Response:
        asked.append(request.user)
        return Response(200, POD_A)

    transport = InProcess(handler, ADMIN)
    request = Request("GET", "/api")
    await transport.send(request)
    assert asked == [ADMIN]
    assert request.user == ANONYMOUS
    await transport.close()
    await transport.close()
    with pytest.raises(status.ServiceUnavailable):
        await transport.send(request)
