"""Events report what happened and never get in the way of what happens."""

from tests.support.request_log import RequestLog
from tests.unit.reconcile.builders import create_pod

from grange.api.kinds import EVENT, NODE
from grange.api.kinds.event import Event
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectMeta
from grange.api.status import ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.reconcile.recorder import NORMAL, WARNING, Recorder


async def events(client: Client) -> list[Event]:
    return (await client.list(EVENT)).items


async def test_event_names_the_object_and_the_reporter(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    recorder.event(pod, WARNING, "FailedCreate", "no room")
    await recorder.flush()
    (event,) = await events(client)
    assert (event.type, event.reason, event.message) == (WARNING, "FailedCreate", "no room")
    assert event.involved_object.kind == "Pod"
    assert event.involved_object.uid == pod.metadata.uid
    assert event.metadata.namespace == "default"
    assert event.source.component == "tester"
    assert event.count == 1
    assert event.first_timestamp == event.last_timestamp == "2026-01-01T00:00:00Z"


async def test_kind_is_taken_from_the_view_when_object_has_none(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Items of lists carry no kind."""
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    recorder.event(Pod(metadata=ObjectMeta(name="a", namespace="default")), NORMAL, "R", "m")
    await recorder.flush()
    (event,) = await events(client)
    assert (event.involved_object.api_version, event.involved_object.kind) == ("v1", "Pod")


async def test_events_of_cluster_scoped_objects_go_to_default(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    node = await client.create(NODE, {"metadata": {"name": "n1"}})
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    recorder.event(node, NORMAL, "Ready", "it is")
    await recorder.flush()
    (event,) = await events(client)
    assert event.metadata.namespace == "default"
    assert event.involved_object.namespace == ""


async def test_equal_events_become_one_with_a_count(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    async with Nursery() as nursery:
        nursery.start(recorder.run())
        for _ in range(3):
            recorder.event(pod, NORMAL, "Pulled", "again")
            await clock.sleep(10)
        recorder.event(pod, NORMAL, "Pulled", "something else")
        await clock.sleep(1)
        nursery.cancel()
    first, second = sorted(await events(client), key=lambda event: -event.count)
    assert (first.count, second.count) == (3, 1)
    assert first.first_timestamp == "2026-01-01T00:00:00Z"
    assert first.last_timestamp == "2026-01-01T00:00:20Z"


async def test_equal_events_that_wait_are_sent_once(
    client: Client, clock: Clock, rng: Stream, log: Logger, request_log: RequestLog
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    request_log.requests.clear()
    for _ in range(50):
        recorder.event(pod, NORMAL, "Pulled", "again")
    await recorder.flush()
    assert len(request_log.writes()) == 1
    (event,) = await events(client)
    assert event.count == 50


async def test_old_series_starts_again(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    recorder.event(pod, NORMAL, "Pulled", "again")
    await recorder.flush()
    await clock.sleep(601)
    recorder.event(pod, NORMAL, "Pulled", "again")
    await recorder.flush()
    assert [event.count for event in await events(client)] == [1, 1]


async def test_expired_event_is_created_again_with_its_count(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    recorder.event(pod, NORMAL, "Pulled", "again")
    await recorder.flush()
    (event,) = await events(client)
    await client.delete(EVENT, event.metadata.name, event.metadata.namespace)
    recorder.event(pod, NORMAL, "Pulled", "again")
    await recorder.flush()
    assert [event.count for event in await events(client)] == [2]


async def test_full_queue_drops_and_counts_without_an_error(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log, limit=3)
    pod = await create_pod(client, "a")
    for number in range(10):
        recorder.event(pod, NORMAL, "Pulled", f"number {number}")
    assert recorder.statistics().waiting == 3
    assert recorder.statistics().dropped == 7
    await recorder.flush()
    assert len(await events(client)) == 3


async def test_server_that_is_away_costs_the_event_and_nothing_else(
    client: Client, clock: Clock, rng: Stream, log: Logger, request_log: RequestLog
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    async with Nursery() as nursery:
        nursery.start(recorder.run())
        request_log.error = ServiceUnavailable("away")
        recorder.event(pod, NORMAL, "Pulled", "lost")
        await clock.sleep(1)
        request_log.error = None
        recorder.event(pod, NORMAL, "Pulled", "kept")
        await clock.sleep(1)
        nursery.cancel()
    assert [event.message for event in await events(client)] == ["kept"]
    assert recorder.statistics().failed == 1
    assert recorder.statistics().sent == 1


async def test_long_messages_are_cut_to_what_the_api_takes(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    recorder.event(pod, NORMAL, "Pulled", "x" * 5000)
    await recorder.flush()
    (event,) = await events(client)
    assert len(event.message) == 1024


async def test_one_object_cannot_flood_the_store(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    """A message that changes with every failure would else make an Event for each."""
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    other = await create_pod(client, "b")
    for number in range(100):
        recorder.event(pod, WARNING, "Failed", f"attempt {number}")
    recorder.event(other, NORMAL, "Started", "all is well")
    await recorder.flush()
    assert len(await events(client)) == 26
    assert recorder.statistics().dropped == 75
    await clock.sleep(300)
    recorder.event(pod, WARNING, "Failed", "still")
    await recorder.flush()
    assert len(await events(client)) == 27


async def test_repetitions_beyond_limit_count_in_the_next_event(
    client: Client, clock: Clock, rng: Stream, log: Logger
) -> None:
    recorder = Recorder(client, "tester", clock=clock, rng=rng, log=log)
    pod = await create_pod(client, "a")
    for _ in range(40):
        recorder.event(pod, WARNING, "Failed", "again")
        await recorder.flush()
    assert [event.count for event in await events(client)] == [25]
    await clock.sleep(300)
    recorder.event(pod, WARNING, "Failed", "again")
    await recorder.flush()
    assert [event.count for event in await events(client)] == [41]
