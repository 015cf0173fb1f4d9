"""The watcher of pods: W1-W7, and that no terminal state is lost."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from tests.support.session_library_world import (
    RUNNING,
    SessionLibraryWorld,
    ended,
    session_library_world,
)

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.status import Expired, Forbidden, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.health import WAITING_GRACE_S, Health, PodDiagnosis
from grange.controllers.testsession.library.library_errors import (
    ControllerStartError,
    SubscriptionError,
)
from grange.controllers.testsession.library.pod_subscription import PodSubscription, PodWatchEvent
from grange.controllers.testsession.library.pod_watcher import Watcher, WatcherOptions

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[SessionLibraryWorld]:
    async with session_library_world(clock, rng, log) as world:
        yield world


def watcher_of(world: SessionLibraryWorld) -> Watcher:
    return Watcher(world.new_client(), clock=world.clock, rng=world.rng, log=world.log)


async def read(events: PodSubscription, world: SessionLibraryWorld) -> list[PodWatchEvent]:
    """What arrives within two seconds."""
    await world.settle()
    return [await anext(events) for _ in range(len(events))]


def healths(events: list[PodWatchEvent]) -> list[str]:
    return [str(event.health) for event in events]


@pytest.mark.parametrize("refused", ["list", "watch"])
async def test_w1_start_raises_what_the_server_refuses(
    world: SessionLibraryWorld, refused: str
) -> None:
    async with watcher_of(world) as watcher:
        world.gate = lambda request: (
            Forbidden("not you, 100%s")
            if request.path == PODS and ("watch" in request.query) is (refused == "watch")
            else None
        )
        with pytest.raises(ControllerStartError, match="not you, 100%s; start it again"):
            await watcher.start()
        world.gate = lambda request: None
        events = watcher.subscribe("a")
        await watcher.start()
        await world.add_pod("a")
        assert len(await read(events, world)) == 1


async def test_w2_start_is_idempotent(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        await watcher.start()
        await world.add_pod("a")
        assert healths(await read(events, world)) == ["NotReady"]


async def test_w3_no_event_arrives_after_stop(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        watcher.stop()
        watcher.stop()
        await world.add_pod("a")
        assert await read(events, world) == []


async def test_stop_before_start_and_start_after_stop(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        watcher.stop()
        await watcher.start()
        await world.add_pod("a")
        await world.add_pod("a", "server")
        assert len(await read(events, world)) == 2
        watcher.stop()
        await world.set_state("a-server", ended(3))
        await world.remove("a-driver")
        await watcher.start()
        found = {e.component_name: e for e in await read(events, world)}
        assert found["server"].health is found["driver"].health is Health.FAILED
        assert found["driver"].deleted


async def test_w4_second_subscription_is_refused(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        watcher.subscribe("a")
        with pytest.raises(SubscriptionError, match="session a has a subscriber already"):
            watcher.subscribe("a")
        watcher.unsubscribe("a")
        watcher.subscribe("a")


async def test_w5_each_session_gets_its_events(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        first, second = watcher.subscribe("a"), watcher.subscribe("b")
        await watcher.start()
        await world.add_pod("a")
        await world.add_pod("b", "server")
        await world.add_pod("c")
        for events, session, component in ((first, "a", "driver"), (second, "b", "server")):
            (event,) = await read(events, world)
            assert (event.session_name, event.component_name) == (session, component)
            assert (event.pod.metadata.name, event.pod_ip) == (f"{session}-{component}", "")


async def test_w6_unsubscribing_without_a_subscription(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        with pytest.raises(SubscriptionError, match="session a has no subscriber"):
            watcher.unsubscribe("a")


async def test_w7_no_event_arrives_after_unsubscribing(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        await world.add_pod("a")
        await world.settle()
        watcher.unsubscribe("a")
        await world.add_pod("a", "server")
        await world.settle()
        assert [event.component_name async for event in events] == ["driver"]


async def test_subscriber_learns_how_pods_are(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        await watcher.start()
        await world.add_pod("a")
        await world.set_state("a-driver", ended(0))
        await world.settle()
        assert healths(await read(watcher.subscribe("a"), world)) == ["Succeeded"]


async def test_deletion_of_a_pod_is_a_failure(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        await world.add_pod("a")
        await world.set_state("a-driver", RUNNING)
        await world.remove("a-driver")
        found = await read(events, world)
        assert healths(found)[-1] == "Failed"
        assert (found[-1].deleted, found[-1].error) == (True, "the pod was deleted")


async def test_terminal_health_of_a_pod_stays(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        await world.add_pod("a")
        await world.set_state("a-driver", ended(3))
        await world.settle()
        await world.set_state("a-driver", RUNNING)
        await world.remove("a-driver")
        found = await read(events, world)
        assert {e.diagnosis.exit_code for e in found if e.health is Health.FAILED} == {3}
        assert healths(found)[-2:] == ["Failed", "Failed"]
        await world.add_pod("a")
        assert healths(await read(events, world)) == ["NotReady"]  # another pod of the name


async def test_missing_image_is_reported_when_its_grace_ends(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        await world.add_pod("a")
        await world.set_state("a-driver", {"waiting": {"reason": "ErrImagePull"}})
        assert healths(await read(events, world))[-1] == "Unknown"
        await world.settle(WAITING_GRACE_S)
        (event,) = await read(events, world)
        assert (event.health, event.diagnosis.is_infrastructure) == (Health.FAILED, True)


# --- broken watches -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Expired("410"), ServiceUnavailable("restarting")])
async def test_state_that_was_missed_arrives_later(
    world: SessionLibraryWorld, error: Expired | ServiceUnavailable
) -> None:
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        await world.add_pod("a")
        await world.add_pod("a", "server")
        await read(events, world)
        world.gate = lambda request: error if "watch" in request.query else None
        world.cut_watches()
        await world.set_state("a-driver", ended(0))
        await world.remove("a-server")
        await world.settle(1.0)
        world.gate = lambda request: None
        await world.settle(30.0)
        found = {e.component_name: str(e.health) for e in await read(events, world)}
        assert found == {"driver": "Succeeded", "server": "Failed"}


async def test_garbage_in_the_watch_is_survived(world: SessionLibraryWorld) -> None:
    garbage = [
        b'{"type":"MODIFIED","object":{"kind":"Status","code":410}}\n',
        b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n',
        b"not JSON\n",
    ]
    async with watcher_of(world) as watcher:
        events = watcher.subscribe("a")
        await watcher.start()
        world.garbage = garbage
        for number in range(3):
            world.cut_watches()
            await world.add_pod("a", f"client-{number}")
            await world.settle(5.0)
        assert garbage == []
        await world.add_pod("a")
        await world.set_state("a-driver", ended(0))
        assert healths(await read(events, world))[-1] == "Succeeded"


# --- buffers ------------------------------------------------------------------------------------


def event(pod: str, health: Health) -> PodWatchEvent:
    found = msgspec.convert({"metadata": {"name": pod, "uid": pod}}, Pod)
    return PodWatchEvent("a", pod, found, PodDiagnosis(health))


def test_negative_buffer_is_refused() -> None:
    with pytest.raises(ValueError, match="event_buffer_size: -1 is negative"):
        WatcherOptions(-1)
    assert WatcherOptions().event_buffer_size == 32


async def test_full_buffer_keeps_the_latest_of_each_pod() -> None:
    events = PodSubscription("a", 2)
    for name in ("p0", "p1", "p2"):
        events.put(event(name, Health.NOT_READY))
        events.put(event(name, Health.READY))
    for _ in range(100):
        events.put(event("p1", Health.FAILED))
    events.close()
    found = [(e.component_name, str(e.health)) async for e in events]
    assert found == [("p0", "Ready"), ("p2", "Ready"), ("p1", "Failed")]


async def test_slow_subscriber_delays_no_other(world: SessionLibraryWorld) -> None:
    async with watcher_of(world) as watcher:
        slow, fast = watcher.subscribe("slow"), watcher.subscribe("fast")
        await watcher.start()
        await world.add_pod("slow")
        await world.add_pod("fast")
        for number in range(100):
            for name in ("slow-driver", "fast-driver"):
                patch = {"metadata": {"annotations": {"n": str(number)}}}
                await world.client.patch(POD, name, "default", patch=patch)
        await world.set_state("slow-driver", ended(0))
        await world.set_state("fast-driver", ended(0))
        assert healths(await read(fast, world))[-1] == "Succeeded"
        found = await read(slow, world)
        assert len(found) <= 32
        assert healths(found)[-1] == "Succeeded"
