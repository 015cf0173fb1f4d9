"""An informer's store converges to the server's state, and its handlers hear every difference."""

import itertools
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.fake_api import Collection, Faults, Handler, failed, pods_seen

from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey
from grange.api.status import NotFound, ServiceUnavailable, TooManyRequests
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.metrics import exposition, registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.informer import Informer, InformerFactory, InformerSettings
from grange.sim.pytest_plugin import Records


class Mirror:
    """A copy kept by handlers alone; refuses what an informer must never report."""

    def __init__(self, informer: Informer[Pod]) -> None:
        self.objects: dict[ObjectKey, Pod] = {}
        self.calls: list[str] = []
        self._informer = informer
        informer.add_handler(self.add, self.update, self.delete)

    def add(self, obj: Pod) -> None:
        assert obj.key not in self.objects
        assert self._informer.store.get(obj.key) is obj, "the store changes first"
        self.objects[obj.key] = obj
        self.calls.append(f"+{obj.metadata.name}")

    def update(self, old: Pod, new: Pod) -> None:
        assert self.objects[new.key] is old
        assert old.metadata.uid == new.metadata.uid
        assert old.metadata.resource_version != new.metadata.resource_version
        self.objects[new.key] = new
        self.calls.append(f"~{new.metadata.name}")

    def delete(self, last: Pod) -> None:
        known = self.objects.pop(last.key)
        assert known.metadata.uid == last.metadata.uid
        assert self._informer.store.get(last.key) is None
        self.calls.append(f"-{last.metadata.name}")


Opened = tuple[Informer[Pod], Mirror]


@asynccontextmanager
async def running(
    handler: Handler, clock: Clock, log: Logger, settings: InformerSettings | None = None
) -> AsyncGenerator[Opened, None]:
    client = Client(InProcess(handler, ADMIN), clock=clock)
    informer = Informer(client, POD, clock=clock, rng=Stream(1), log=log, settings=settings)
    mirror = Mirror(informer)
    async with Nursery() as nursery:
        nursery.start(informer.run())
        yield informer, mirror
        nursery.cancel()
    assert informer.statistics().handler_errors == 0


async def test_lists_then_follows_the_watch(clock: Clock, log: Logger) -> None:
    server = Collection()
    server.put("a")
    async with running(server.handle, clock, log) as (informer, mirror):
        assert not informer.has_synced
        await informer.synced.wait()
        assert mirror.calls == ["+a"]
        server.put("a", x="1")
        server.put("b")
        server.delete("a")
        await clock.sleep(0.1)
        assert mirror.calls == ["+a", "~a", "+b", "-a"]
        assert pods_seen(informer.store.list()) == server.state()
    assert server.lists == 1
    assert server.open == 0


async def test_watch_that_ends_is_resumed_without_a_list(clock: Clock, log: Logger) -> None:
    """A relist of everything for every ended connection is what brings servers down."""
    server = Collection()
    async with running(server.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        await clock.sleep(5)
        server.put("a")
        await clock.sleep(5)
        server.end_watches()
        server.put("b")
        await clock.sleep(5)
        assert mirror.calls == ["+a", "+b"]
    assert (server.lists, server.watches) == (1, 2)


async def test_bookmark_moves_the_point_to_resume_from(clock: Clock, log: Logger) -> None:
    """Else a quiet collection would fall behind the compaction of a busy server."""
    server = Collection()
    async with running(server.handle, clock, log) as (informer, _):
        await informer.synced.wait()
        await clock.sleep(5)
        server.revision += 100
        server.bookmark()
        server.compact()
        await clock.sleep(5)
        server.end_watches()
        await clock.sleep(5)
        assert informer.resource_version == "110"
    assert server.lists == 1


async def test_expired_lists_again_and_shows_what_is_missing(clock: Clock, log: Logger) -> None:
    server = Collection()
    for name in "abc":
        server.put(name)
    flaky = Faults(server.handle, Stream(2), clock)
    async with running(flaky.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        await clock.sleep(5)
        flaky.error = 1.0  # cut off: nothing that follows is seen
        server.end_watches()
        await clock.sleep(5)
        server.delete("a")
        server.put("b", x="1")
        server.put("d")
        server.delete("c")
        server.put("c")
        server.compact()
        flaky.calm()
        await clock.sleep(60)
        assert sorted(mirror.calls[3:]) == sorted(["-a", "~b", "+d", "-c", "+c"])
        assert pods_seen(informer.store.list()) == server.state()
    assert server.lists == 2


async def test_deleted_and_created_again_is_never_an_update(clock: Clock, log: Logger) -> None:
    """Another UID is another object: what was promised about the old one does not hold."""
    server = Collection()
    server.put("a")
    async with running(server.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        server.delete("a")
        server.put("a")
        await clock.sleep(1)
        assert mirror.calls == ["+a", "-a", "+a"]
        # The deletion is lost: only MODIFIED of another object arrives.
        server.objects[ObjectKey("ns", "a")]["metadata"]["uid"] = "uid-x"
        server.put("a")
        await clock.sleep(1)
        assert mirror.calls == ["+a", "-a", "+a", "-a", "+a"]


async def test_restored_server_is_listed_again(clock: Clock, log: Logger, records: Any) -> None:
    """A backup takes the revision back; what happened since is gone, whatever its version."""
    server = Collection()
    server.put("a")
    backup = server.snapshot()
    server.put("a", x="1")
    server.put("b")
    async with running(server.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        await clock.sleep(5)
        server.restore(backup)
        await clock.sleep(60)
        assert pods_seen(informer.store.list()) == server.state()
        assert mirror.calls == ["+a", "+b", "-b", "~a"]
        server.put("c")
        await clock.sleep(1)
        assert mirror.calls[-1] == "+c"
    assert "the server went back in time" in [event for event, _ in records]


async def test_bookmark_behind_what_was_seen_lists_again(clock: Clock, log: Logger) -> None:
    server = Collection()
    server.put("a")
    async with running(server.handle, clock, log) as (informer, _):
        await informer.synced.wait()
        await clock.sleep(5)
        document = {"metadata": {"resourceVersion": "3"}}
        server.history.append((server.revision, "BOOKMARK", document))
        server.put("b")
        await clock.sleep(5)
        assert pods_seen(informer.store.list()) == server.state()
    assert server.lists == 2


def first_watch_silent(server: Collection, clock: Clock) -> Handler:
    """The server's handler, but the connection of the first watch dies without a word."""
    silent = [True]

    async def handler(request: Request) -> Response:
        if silent and request.query.get("watch"):
            silent.pop()

            async def nothing() -> AsyncGenerator[bytes, None]:
                await clock.sleep(1e9)
                yield b""

            return Response(200, chunks=nothing())
        return await server.handle(request)

    return handler


async def test_silent_watch_is_resumed(clock: Clock, log: Logger, records: Any) -> None:
    """A connection can die without a word; then neither events nor bookmarks come."""
    server = Collection()
    settings = InformerSettings(stale_after_s=90)
    handler = first_watch_silent(server, clock)
    async with running(handler, clock, log, settings) as (informer, mirror):
        await informer.synced.wait()
        server.put("a")
        await clock.sleep(89)
        assert mirror.calls == []
        await clock.sleep(2)
        assert mirror.calls == ["+a"]
    assert server.lists == 1
    assert "watch went silent" in [event for event, _ in records]


async def test_silence_is_noticed_where_adding_seconds_leaves_a_rest(
    clock: Clock, log: Logger
) -> None:
    """150 s after 173.67 are 149.99999999999997 s by a float; the rest is too short to wait for."""
    server = Collection()
    await clock.sleep(173.67)
    started = clock.monotonic()
    assert started + 150.0 - started < 150.0
    async with running(first_watch_silent(server, clock), clock, log) as (informer, mirror):
        await informer.synced.wait()
        server.put("a")
        await clock.sleep(151)
        assert mirror.calls == ["+a"]


async def test_failures_back_off_and_recover(clock: Clock, log: Logger) -> None:
    server = Collection()
    asked: list[float] = []

    async def handler(request: Request) -> Response:
        asked.append(clock.monotonic())
        if clock.monotonic() < 300:
            return failed(ServiceUnavailable("not now"))
        return await server.handle(request)

    async with running(handler, clock, log) as (informer, _):
        await informer.synced.wait()
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps[0] == 0, "the first trouble is retried at once"
    assert max(gaps) <= 5
    assert len(asked) < 100
    assert clock.monotonic() < 306, "the outage is over when the server is back"


async def test_busy_server_is_given_the_time_it_asks_for(clock: Clock, log: Logger) -> None:
    server = Collection()
    asked: list[float] = []

    async def handler(request: Request) -> Response:
        asked.append(clock.monotonic())
        if len(asked) <= 5:  # as often as the client asks by itself
            return failed(TooManyRequests("busy", retry_after_s=10))
        return await server.handle(request)

    async with running(handler, clock, log) as (informer, _):
        await informer.synced.wait()
    assert asked[:6] == [0, 10, 20, 30, 40, 50]


async def test_server_that_ends_every_watch_at_once_is_not_hammered(
    clock: Clock, log: Logger
) -> None:
    server = Collection()
    ended = Faults(server.handle, Stream(3), clock, cut=1.0)
    server.put("a")
    async with running(ended.handle, clock, log) as (informer, _):
        await informer.synced.wait()
        for _ in range(100):
            server.put("a")
            await clock.sleep(1)
    assert server.watches < 20


async def test_history_that_is_always_too_short_is_not_hammered(clock: Clock, log: Logger) -> None:
    server = Collection()

    async def handler(request: Request) -> Response:
        response = await server.handle(request)
        server.revision += 1
        server.compact()
        return response

    async with running(handler, clock, log) as (informer, _):
        await informer.synced.wait()
        await clock.sleep(100)
    assert 3 < server.lists < 20


async def test_server_back_without_history_is_listed_at_once(clock: Clock, log: Logger) -> None:
    """However long it was away: that it refuses the watch shows that it is there again."""
    server = Collection()
    away = False
    refused = 0.0

    async def handler(request: Request) -> Response:
        nonlocal refused
        if away:
            return failed(ServiceUnavailable("not now"))
        if server.lists == 1 and server.compacted and not refused:
            refused = clock.monotonic()
        return await server.handle(request)

    async with running(handler, clock, log) as (informer, _):
        await informer.synced.wait()
        await clock.sleep(10)
        away = True
        server.end_watches()
        await clock.sleep(100)
        server.put("a")
        server.compact()
        away = False
        while not refused:
            await clock.sleep(0.5)
        await clock.sleep(0.6)
        assert server.lists == 2
        assert len(informer.store) == 1


async def test_large_lists_come_in_pages(clock: Clock, log: Logger) -> None:
    server = Collection()
    for number in range(25):
        server.put(f"pod-{number:02}")
    settings = InformerSettings(page=10)
    async with running(server.handle, clock, log, settings) as (informer, mirror):
        await informer.synced.wait()
        assert len(mirror.calls) == 25
    assert server.lists == 3


async def test_many_objects_share_their_containers(clock: Clock, log: Logger) -> None:
    """Each is looked for once: when it is listed, or when it comes; a change keeps what it had."""
    server = Collection()
    server.spec = {"containers": [{"name": "main", "image": "web:1"}]}
    for number in range(5):
        server.put(f"pod-{number}")
    settings = InformerSettings(share_from=2)
    async with running(server.handle, clock, log, settings) as (informer, mirror):
        await informer.synced.wait()
        assert informer._sharing.searches == 3
        server.put("pod-5")
        server.put("pod-4", x="1")
        await clock.sleep(1)
        assert informer._sharing.searches == 4
        server.put("pod-0", x="1")  # it was there before there were many
        await clock.sleep(1)
        assert mirror.calls[-3:] == ["+pod-5", "~pod-4", "~pod-0"]
        held = [pod.spec.containers for pod in informer.store.list()]
    assert all(containers is held[0] for containers in held if containers is not held[1])


async def test_pages_that_expire_are_listed_in_one_piece(clock: Clock, log: Logger) -> None:
    server = Collection()
    for number in range(25):
        server.put(f"pod-{number:02}")

    async def handler(request: Request) -> Response:
        response = await server.handle(request)
        if server.lists == 1:
            server.put("pod-99")
            server.compact()
        return response

    async with running(handler, clock, log, InformerSettings(page=10)) as (informer, _):
        await informer.synced.wait()
        assert pods_seen(informer.store.list()) == server.state()
    assert server.lists == 3


async def test_failing_handler_hurts_no_other(clock: Clock, log: Logger, records: Any) -> None:
    server = Collection()
    server.put("a")
    client = Client(InProcess(server.handle, ADMIN), clock=clock)
    informer = Informer(client, POD, clock=clock, rng=Stream(1), log=log)
    received: list[str] = []

    def bad(obj: Pod) -> None:
        raise ZeroDivisionError(obj.metadata.name)

    informer.add_handler(bad)
    informer.add_handler(lambda obj: received.append(obj.metadata.name))
    async with Nursery() as nursery:
        nursery.start(informer.run())
        await informer.synced.wait()
        server.put("b")
        await clock.sleep(1)
        nursery.cancel()
    assert received == ["a", "b"]
    assert informer.statistics().handler_errors == 2
    assert [event for event, _ in records].count("handler failed") == 2


async def test_handler_that_comes_late_is_reported_what_there_is(clock: Clock, log: Logger) -> None:
    server = Collection()
    server.put("a")
    async with running(server.handle, clock, log) as (informer, _):
        await informer.synced.wait()
        assert Mirror(informer).calls == ["+a"]


async def test_object_that_does_not_fit_keeps_its_last_state(
    clock: Clock, log: Logger, records: Any
) -> None:
    """To forget it would be to act as if it were deleted."""
    server = Collection()
    server.put("a")
    async with running(server.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        document = server.put("a")
        document["spec"] = {"nodeName": 7}
        server.put("b")
        await clock.sleep(1)
        assert mirror.calls == ["+a", "+b"]
        assert informer.statistics().undecodable == 1
    assert server.lists == 1
    assert "change left out: the object does not fit our view" in [event for event, _ in records]


async def test_opaque_versions_work_without_comparing(clock: Clock, log: Logger) -> None:
    server = Collection()
    server.numeric = False
    server.put("a")
    async with running(server.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        server.put("b")
        server.delete("a")
        server.bookmark()
        await clock.sleep(5)
        server.end_watches()
        server.put("c")
        await clock.sleep(5)
        assert mirror.calls == ["+a", "+b", "-a", "+c"]
    assert server.lists == 1


async def test_duplicates_are_dropped_and_late_events_list_again(clock: Clock, log: Logger) -> None:
    server = Collection()
    server.put("a")
    async with running(server.handle, clock, log) as (informer, mirror):
        await informer.synced.wait()
        await clock.sleep(5)
        server.put("b")
        server.history.append(server.history[-1])
        server.put("c")
        await clock.sleep(1)
        assert mirror.calls == ["+a", "+b", "+c"]
        assert informer.statistics().dropped == 1
        assert server.lists == 1
        server.put("d")
        server.put("e")
        server.history[-1], server.history[-2] = server.history[-2], server.history[-1]
        await clock.sleep(5)
        assert server.lists == 2
        assert pods_seen(informer.store.list()) == server.state()


Step = tuple[str, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "delete", "wait", "compact", "bookmark", "end", "restore"]),
        st.sampled_from("abcde"),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=STEPS, late=st.booleans())
async def test_store_converges_whatever_the_network_does(
    seed: int, steps: list[Step], late: bool
) -> None:
    """The promise that everything else stands on: when faults stop, the copy is the original.

    A server that is restored from a backup is quiet until it is noticed: one that is back at our
    revision by then, with another history, cannot be distinguished from one that was never restored (which
    is why a restore should skip revisions).
    """
    clock = LoopClock()
    log = Logger("informer")
    rng = Stream(seed)
    server = Collection()
    backup = server.snapshot()
    bad = Faults(
        server.handle,
        rng,
        clock,
        error=0.2,
        slow=0.2,
        cut=0.1,
        duplicate=0.2,
        late=0.2 if late else 0.0,
        expire=0.1,
    )
    network = replace(bad)
    actions: dict[str, Callable[[str], object]] = {
        "put": lambda name: server.put(name, x=str(rng.integer(0, 9))),
        "delete": server.delete,
        "compact": lambda _: server.compact(),
        "bookmark": lambda _: server.bookmark(),
        "end": lambda _: server.end_watches(),
    }
    async with running(network.handle, clock, log, InformerSettings(page=2)) as (informer, mirror):
        for action, name in steps:
            if action == "wait":
                await clock.sleep(rng.uniform(0.0, 10.0))
            elif action == "restore":
                server.restore(backup)
                network.calm()
                await clock.sleep(400)
                network.become(bad)
            else:
                actions[action](name)
        network.calm()
        await clock.sleep(400)
        assert pods_seen(informer.store.list()) == server.state()
        assert pods_seen(list(mirror.objects.values())) == server.state()


async def test_factory_shares_and_starts_informers(clock: Clock, log: Logger) -> None:
    server = Collection()
    server.put("a")
    client = Client(InProcess(server.handle, ADMIN), clock=clock)
    factory = InformerFactory(client, clock=clock, rng=Stream(1), log=log)
    first = factory.informer(POD)
    assert factory.informer(POD) is first
    assert factory.informer(POD, namespace="ns") is not first
    async with Nursery() as nursery:
        nursery.start(factory.run())
        await factory.wait_synced()
        late = factory.informer(POD, labels="x=y")
        before = late.has_synced
        await factory.wait_synced()
        assert (before, late.has_synced) == (False, True)
        nursery.cancel()
    assert server.open == 0


async def test_crashed_informer_restarts_alone(clock: Clock, log: Logger, records: Any) -> None:
    server = Collection()
    server.put("a")
    crashes = [RuntimeError("first"), RuntimeError("second")]

    async def handler(request: Request) -> Response:
        if crashes and "labelSelector" in request.query:
            raise crashes.pop()
        return await server.handle(request)

    metrics = registry()
    client = Client(InProcess(handler, ADMIN), clock=clock)
    factory = InformerFactory(client, clock=clock, rng=Stream(1), log=log, metrics=metrics)
    sound, crashing = factory.informer(POD), factory.informer(POD, labels="x=y")
    async with Nursery() as nursery:
        nursery.start(factory.run())
        await sound.synced.wait()
        assert not crashing.has_synced
        await crashing.synced.wait()
        nursery.cancel()
    assert [event for event, _ in records].count("service crashed") == 2
    assert b'grange_service_crashes_total{service="informer pods"} 2.0' in exposition(metrics)


async def test_object_that_an_index_cannot_read_is_skipped_there_alone(
    clock: Clock, log: Logger, records: Any
) -> None:
    server = Collection()
    server.put("a")
    server.put("b")

    def first_letter(obj: Pod) -> tuple[str, ...]:
        if obj.metadata.name == "a":
            raise ZeroDivisionError
        return (obj.metadata.name[0],)

    async with running(server.handle, clock, log) as (informer, mirror):
        informer.store.add_index("letter", first_letter)
        await informer.synced.wait()
        server.put("a")
        await clock.sleep(1)
        assert [obj.metadata.name for obj in informer.store.by_index("letter", "b")] == ["b"]
        assert pods_seen(informer.store.list()) == server.state()
        server.delete("a")
        await clock.sleep(1)
        assert "-a" in mirror.calls
    assert [event for event, _ in records].count("index failed") == 2, "once for each version"


async def test_check_32_waiting_for_never_synced_caches_is_an_error(
    clock: Clock, log: Logger
) -> None:
    async def refuse(request: Request) -> Response:
        return failed(ServiceUnavailable("not now"))

    client = Client(InProcess(refuse, ADMIN), clock=clock)
    factory = InformerFactory(client, clock=clock, rng=Stream(1), log=log)
    factory.informer(POD)
    async with Nursery() as nursery:
        nursery.start(factory.run())
        with pytest.raises(TimeoutError):
            async with clock.timeout(60):
                await factory.wait_synced()
        nursery.cancel()


async def test_kind_that_is_not_served_yet_has_no_objects(clock: Clock, log: Logger) -> None:
    """A cluster without our kinds must not stop those that would only read them."""
    server = Collection()
    server.put("a")

    async def handler(request: Request) -> Response:
        if clock.monotonic() < 100:
            return failed(NotFound("the server could not find the requested resource"))
        return await server.handle(request)

    async with running(handler, clock, log) as (informer, mirror):
        await informer.synced.wait()
        assert clock.monotonic() == 0
        assert len(informer.store) == 0
        await clock.sleep(140)
        assert mirror.calls == ["+a"]


async def test_kind_that_is_not_served_is_logged_once(
    clock: Clock, log: Logger, records: Records
) -> None:
    async def handler(request: Request) -> Response:
        return failed(NotFound("the server could not find the requested resource"))

    async with running(handler, clock, log) as (informer, _):
        await informer.synced.wait()
        await clock.sleep(300)
        events = [event for event, _ in records]
        assert events.count("the server has no such kind; looking again") == 1
        assert "list or watch failed" not in events


async def test_kind_that_is_not_served_any_more_keeps_its_last_state(
    clock: Clock, log: Logger
) -> None:
    """A user who takes a definition away for a moment must not have everything torn down."""
    server = Collection()
    server.put("a")

    async def handler(request: Request) -> Response:
        if 10 < clock.monotonic() < 200:
            return failed(NotFound("the server could not find the requested resource"))
        return await server.handle(request)

    async with running(handler, clock, log) as (informer, mirror):
        await informer.synced.wait()
        await clock.sleep(20)
        server.end_watches()
        await clock.sleep(100)
        assert len(informer.store) == 1
        await clock.sleep(200)
        assert mirror.calls == ["+a"]
