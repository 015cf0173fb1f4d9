"""Events are a story for an hour; whatever repeats stays as long as it repeats."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, Server, configmap

from grange.api import codec
from grange.api.meta import Document
from grange.apiserver.event_ttl import EVENTS_KEPT_S, Expiry
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import exposition, registry
from grange.base.tasks import Nursery
from grange.store.errors import StorageFull

EVENTS = "/api/v1/namespaces/default/events"


def event(name: str, **more: object) -> Document:
    involved = {"kind": "Pod", "namespace": "default", "name": "web"}
    return {"metadata": {"name": name}, "involvedObject": involved, "type": "Normal", **more}


@pytest.fixture
def expiry(server: Server, clock: Clock, log: Logger) -> Expiry:
    return Expiry(server.application.registry, clock=clock, log=log)


async def test_events_without_news_for_an_hour_go(
    server: Server, expiry: Expiry, clock: Clock
) -> None:
    await server.made(CONFIGMAPS, configmap())
    await server.made(EVENTS, event("old"))
    await clock.sleep(EVENTS_KEPT_S - 10)
    await server.made(EVENTS, event("new"))
    await server.made(EVENTS, event("repeats", lastTimestamp="2026-01-01T00:59:00Z"))
    assert await expiry.sweep() == 0
    await clock.sleep(20)
    watcher = await server.watch(EVENTS, resourceVersion=str(server.store.revision))
    assert await expiry.sweep() == 1
    gone = await watcher.next()
    assert (gone["type"], gone["object"]["metadata"]["name"]) == ("DELETED", "old")
    assert gone["object"]["metadata"]["resourceVersion"] == str(server.store.revision)
    assert (await server.get(EVENTS)).names == ["new", "repeats"]
    assert (await server.get(CONFIGMAPS)).names == ["settings"]
    await watcher.close()


async def test_repeated_events_are_as_old_as_their_last_repetition(
    server: Server, expiry: Expiry, clock: Clock
) -> None:
    await server.made(EVENTS, event("a"))
    await clock.sleep(EVENTS_KEPT_S)
    series = {"count": 7, "lastObservedTime": "2026-01-01T01:00:00.000000Z"}
    await server.patch(f"{EVENTS}/a", {"series": series})
    await clock.sleep(EVENTS_KEPT_S - 1)
    assert await expiry.sweep() == 0
    await clock.sleep(2)
    assert await expiry.sweep() == 1


async def test_server_sweeps_by_itself_page_by_page(server: Server, clock: Clock) -> None:
    for number in range(1100):
        await server.made(EVENTS, event(f"e-{number}"))
    async with Nursery() as nursery:
        nursery.start(server.application.run())
        await clock.sleep(EVENTS_KEPT_S + 120)
        nursery.cancel()
    assert (await server.get(EVENTS)).names == []


async def test_store_that_refuses_is_asked_again(
    server: Server, clock: Clock, records: list[tuple[str, dict[str, object]]]
) -> None:
    await server.made(EVENTS, event("a"))
    deleting, faults = server.store.delete, [StorageFull("full"), StorageFull("full")]

    async def delete(*positional: object, **named: object) -> object:
        if faults:
            raise faults.pop()
        return await deleting(*positional, **named)  # type: ignore[arg-type]  # handed on as is

    server.store.delete = delete  # type: ignore[assignment,method-assign]  # a fault on the seam
    async with Nursery() as nursery:
        nursery.start(server.application.run())
        await clock.sleep(EVENTS_KEPT_S + 300)
        nursery.cancel()
    assert (await server.get(EVENTS)).names == []
    assert [event for event, _ in records].count("events not expired") == 2


def always(body: bytes) -> Callable[[int], bytes]:
    return lambda _: body


async def test_expiry_skips_unreadable_events(
    server: Server, clock: Clock, log: Logger, records: list[tuple[str, dict[str, object]]]
) -> None:
    """Whatever an older server or another program has written: one event costs one event."""
    written: tuple[dict[str, Any], ...] = (
        {"lastTimestamp": "2026-11-22T15:00:00+0000"},
        {"lastTimestamp": 7},
        {"metadata": {}},
    )
    for number, more in enumerate(written):
        body = codec.encode(event(f"odd-{number}", **more))
        await server.store.put(f"/core/events/default/odd-{number}", always(body))
    await server.made(EVENTS, event("sound"))
    await clock.sleep(EVENTS_KEPT_S + 1)
    metrics = registry()
    expiry = Expiry(server.application.registry, clock=clock, log=log, metrics=metrics)
    assert [await expiry.sweep(), await expiry.sweep()] == [1, 0]
    skipped = [facts["key"] for name, facts in records if name == "object skipped"]
    assert skipped == [f"/core/events/default/odd-{number}" for number in range(3)]
    line = b'grange_skipped_objects_total{loop="event expiry"} 3.0'
    assert line in exposition(metrics)
    key = "/core/events/default/odd-0"
    await server.store.put(key, lambda _: codec.encode(event("odd-0", eventTime=1)))
    await expiry.sweep()
    assert [name for name, _ in records].count("object skipped") == 4, "another version"


async def test_event_time_that_expiry_cannot_read_is_refused(server: Server) -> None:
    answer = await server.create(EVENTS, event("a", lastTimestamp="2026-11-22T15:00:00+0000"))
    assert (answer.code, answer.fields) == (422, ["lastTimestamp"])
    answer = await server.create(EVENTS, event("a", eventTime="2026-11-22T15:00:00Z"))
    assert (answer.code, answer.fields) == (422, ["eventTime"])
