"""The controller of the library: C1-C11, and what it does about each session whatever happens."""

from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.session_library_world import (
    SessionLibraryWorld,
    controller_world,
    new_session,
    session_library_world,
)

from grange.api.kinds import NODE, POD
from grange.api.kinds.testsession import (
    SessionComponent,
    SessionTimeouts,
    TestSession,
    TestSessionSpec,
)
from grange.api.meta import ObjectMeta
from grange.api.status import Forbidden
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.library.controller_options import ControllerOptions
from grange.controllers.testsession.library.library_errors import (
    ControllerStartError,
    ControllerStoppedError,
    InvalidSessionError,
    SessionExistsError,
    SessionFailedError,
    SessionUnknownError,
    StopTimeoutError,
)
from grange.controllers.testsession.library.pod_watcher import WatcherOptions
from grange.controllers.testsession.library.session_controller import SessionController
from grange.controllers.testsession.library.session_records import MemorySessionStore, RecordedEvent
from grange.placement.machine_pools import Pool

PASSED = ["QUEUE", "ACCEPT", "PROVISION", "DONE"]
FAILED = ["QUEUE", "ACCEPT", "PROVISION", "ERROR"]


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[SessionLibraryWorld]:
    async with session_library_world(clock, rng, log) as world:
        await world.add_pools(drivers=3, workers=3)
        yield world


def test_check_1_a_client_is_required() -> None:
    with pytest.raises(ValueError, match="client: is None; connect to a cluster first"):
        SessionController(None)  # type: ignore[arg-type]  # as untyped programs do


async def test_check_2_no_session_is_refused(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        with pytest.raises(InvalidSessionError, match="session: is None"):
            w.controller.schedule(None)


async def test_check_3_schedule_before_start_is_refused(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        assert w.controller.stopped
        with pytest.raises(ControllerStoppedError, match="the controller is stopped; start it"):
            w.controller.schedule(new_session("a"))


async def test_check_4_executor_gets_the_session_at_once(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        await world.settle(60.0)
        w.schedule(new_session("a", workers=2))
        await world.settle(0.001)
        (session,) = w.executor.sessions
        assert (session.spec, session.metadata.name) == (new_session("a", workers=2).spec, "a")
        assert session.metadata.uid
        w.executor.finish("a")
        await world.settle()
        assert w.events("a") == PASSED


async def test_check_5_started_controller_is_not_stopped(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        assert not w.controller.stopped


@pytest.mark.parametrize(
    ("path", "watch"),
    [
        ("/api/v1/nodes", False),
        ("/api/v1/namespaces/default/pods", False),
        ("/api/v1/namespaces/default/pods", True),
    ],
    ids=["c6-nodes", "c7-pods", "c7-watch"],
)
async def test_check_6_c7_start_fails_and_can_be_repeated(
    world: SessionLibraryWorld, path: str, watch: bool
) -> None:
    async with controller_world(world) as w:
        world.gate = lambda request: (
            Forbidden("not you")
            if request.path == path and ("watch" in request.query) is watch
            else None
        )
        with pytest.raises(ControllerStartError, match="not you; start it again"):
            await w.controller.start()
        assert w.controller.stopped
        with pytest.raises(ControllerStoppedError):
            w.controller.schedule(new_session("a"))
        world.gate = lambda request: None
        await w.controller.start()
        w.schedule(new_session("a"))
        await world.settle()
        assert w.executor.started == ["a"]


async def test_check_8_stop_without_executors(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.stop(1.0)  # never started
        await w.controller.start()
        await w.controller.stop(1.0)
        await w.controller.stop(1.0)
        assert w.controller.stopped


async def test_check_9_stop_waits_for_an_executor(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"))
        await world.settle()
        world.nursery.start(finish_later(world, w.executor.finish, "a"))
        started = world.clock.monotonic()
        await w.controller.stop(10.0)
        assert world.clock.monotonic() - started == pytest.approx(5.0)
        assert w.events("a") == PASSED


async def finish_later(
    world: SessionLibraryWorld, finish: Callable[[str], None], name: str
) -> None:
    await world.settle(5.0)
    finish(name)


async def test_check_10_stop_raises_when_its_time_is_over(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"))
        await world.settle()
        with pytest.raises(StopTimeoutError, match="did not stop in 3 s: sessions still run: a"):
            await w.controller.stop(3.0)
        assert w.executor.running  # it goes on, and is still watched
        events = w.controller.watcher.subscribe("a")
        await world.add_pod("a")
        await world.settle()
        assert len(events) == 1
        w.executor.finish("a")
        await w.controller.stop(1.0)
        await world.add_pod("a", "server")
        await world.settle()
        assert len(events) == 1
        assert w.events("a") == PASSED


@pytest.mark.parametrize("timed_out", [False, True])
async def test_check_11_schedule_after_stop_is_refused(
    world: SessionLibraryWorld, timed_out: bool
) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        if timed_out:
            w.schedule(new_session("a"))
            await world.settle()
            with pytest.raises(StopTimeoutError):
                await w.controller.stop(0.0)
        else:
            await w.controller.stop()
        with pytest.raises(ControllerStoppedError):
            w.controller.schedule(new_session("b"))


# --- what upstream does not test ------------------------------------------------------------------


@pytest.mark.parametrize(("count", "expected"), [(0, 1), (1, 1), (2, 2)])
async def test_executor_count_is_reached_and_kept(
    world: SessionLibraryWorld, count: int, expected: int
) -> None:
    async with controller_world(world, ControllerOptions(executor_count=count)) as w:
        await w.controller.start()
        names = [f"s{index}" for index in range(5)]
        w.schedule(*map(new_session, names))
        for index, name in enumerate(names):
            await world.settle()
            assert len(w.executor.running) == min(expected, len(names) - index)
            w.executor.finish(name)
        await world.settle()
        assert (w.executor.started, w.executor.most) == (names, expected)


@pytest.mark.parametrize(
    "options",
    [
        *({"executor_count": -1}, {"test_timeout_s": -1.0}, {"aging_s": -0.1}),
        {"impossible_grace_s": -1.0},
    ],
)
def test_negative_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is negative; give 0 or more"):
        ControllerOptions(**options)  # type: ignore[arg-type]  # as untyped programs do
    with pytest.raises(ValueError, match="event_buffer_size"):
        ControllerOptions(watcher_options=WatcherOptions(-1))


async def test_impossible_sessions_end_at_once(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(
            new_session("unknown", drivers="fast"),
            new_session("large", workers=4),
            new_session("c"),
        )
        assert w.events("unknown") == w.events("large") == ["QUEUE", "ERROR"]
        assert 'no machine has the label pool="fast"' in w.last("unknown")
        assert "pool workers has 3 machines and 4 are requested" in w.last("large")
        await world.settle()
        assert w.executor.started == ["c"]


async def test_impossible_sessions_may_have_a_grace(world: SessionLibraryWorld) -> None:
    options = ControllerOptions(executor_count=2, impossible_grace_s=10.0)
    async with controller_world(world, options) as w:
        await w.controller.start()
        w.schedule(new_session("fast", drivers="fast"), new_session("large", workers=4))
        await world.settle(5.0)
        assert [*w.controller.waiting] == ["fast", "large"]
        await world.add_pools(fast=1)
        await world.settle(4.9)
        assert [*w.controller.active, *w.controller.waiting] == ["fast", "large"]
        await world.settle(0.2)
        assert w.events("large") == ["QUEUE", "ERROR"]


async def test_session_that_outgrows_its_pool_ends(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a", workers=3), new_session("b", workers=3))
        await world.settle()
        await world.client.delete(NODE, "workers-0")
        await world.settle()
        assert w.events("b") == ["QUEUE", "ERROR"]
        assert "pool workers has 2 machines and 3 are requested" in w.last("b")
        w.executor.finish("a")
        await world.settle()
        assert w.controller.pools()["workers"].available == 2


async def test_session_waits_for_cordoned_machines(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        await cordon(world, True)
        await world.settle()
        w.schedule(new_session("a", workers=3))
        await world.settle()
        assert w.controller.waiting == ("a",)
        await cordon(world, False)
        await world.settle()
        assert w.controller.active == ("a",)


async def test_session_waits_for_machines_to_be_ready(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        await set_ready(world, "False")
        await world.settle()
        assert w.controller.pools()["workers"] == Pool("workers", 2, 3)
        w.schedule(new_session("a", workers=3))
        await world.settle()
        assert w.controller.waiting == ("a",)
        await set_ready(world, "True")
        await world.settle()
        assert w.controller.active == ("a",)


async def set_ready(world: SessionLibraryWorld, status: str) -> None:
    condition = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
    patch = {"status": {"conditions": [condition]}}
    await world.client.patch(NODE, "workers-0", patch=patch, subresource="status")


@pytest.mark.parametrize("machine", [0, 1])
async def test_cordoned_machine_of_a_session_is_counted_once(
    world: SessionLibraryWorld, machine: int
) -> None:
    async with controller_world(world, ControllerOptions(executor_count=3)) as w:
        await w.controller.start()
        w.schedule(new_session("a", workers=1))
        await world.settle()
        await world.add_pod("a", "server")
        target = {"target": {"kind": "Node", "name": "workers-1"}}
        await world.client.post(POD, "a-server", "default", "binding", target)
        await world.settle()
        patch = {"spec": {"unschedulable": True}}
        await world.client.patch(NODE, f"workers-{machine}", patch=patch)
        await world.settle()
        free = 2 if machine == 1 else 1
        assert w.controller.pools()["workers"] == Pool("workers", free, 3)


async def cordon(world: SessionLibraryWorld, cordoned: bool) -> None:
    patch = {"spec": {"unschedulable": cordoned}}
    await world.client.patch(NODE, "workers-0", patch=patch)


async def test_leased_machines_are_not_free(world: SessionLibraryWorld) -> None:
    labels = {"grange.dev/machine-lease": "uid"}
    await world.client.patch(NODE, "workers-0", patch={"metadata": {"labels": labels}})
    async with controller_world(world) as w:
        await w.controller.start()
        assert (
            w.controller.pools()["workers"].available,
            w.controller.pools()["workers"].capacity,
        ) == (2, 3)
        w.schedule(new_session("a", workers=3))
        await world.settle()
        assert w.controller.waiting == ("a",)


async def test_pool_that_appears_is_used(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        await world.add_pools(fast=1)
        await world.settle()
        w.schedule(new_session("a", drivers="fast"))
        await world.settle()
        assert w.executor.started == ["a"]


async def test_default_pools_fill_in_for_empty_ones(world: SessionLibraryWorld) -> None:
    options = ControllerOptions(default_pools={"driver": "drivers"})
    async with controller_world(world, options) as w:
        await w.controller.start()
        w.schedule(new_session("a", drivers=""))
        await world.settle()
        assert w.controller.pools()["drivers"].available == 2
        spec = TestSessionSpec(
            driver=SessionComponent(image="i"), servers=(SessionComponent(image="i"),)
        )
        message = "component server: has no pool, and role server has no default; set its pool"
        with pytest.raises(InvalidSessionError, match=message):
            w.controller.schedule(TestSession(metadata=ObjectMeta(name="b"), spec=spec))
        assert w.controller.waiting == ()


def changed(**spec: object) -> TestSession:
    driver = SessionComponent(image="i", pool="drivers")
    fields: dict[str, object] = {"driver": driver, **spec}
    return TestSession(
        metadata=ObjectMeta(name=str(fields.pop("name", "a"))),
        spec=TestSessionSpec(**fields),  # type: ignore[arg-type]  # by name
    )


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (changed(driver=None), "spec.driver: Required"),
        (changed(driver=SessionComponent(image="i", count=2)), "spec.driver.count: Invalid"),
        (changed(driver=SessionComponent()), "spec.driver.command: Required"),
        (changed(timeouts=SessionTimeouts(run_seconds=-1)), "spec.timeouts.runSeconds: Invalid"),
        (changed(servers=(SessionComponent(image="i", name="driver"),)), "Duplicate value"),
        (changed(name="x" * 60), "spec.driver.name: Invalid"),
        (changed(name="x" * 64), "metadata.name: "),
        (changed(name=""), "metadata.name: "),
        (changed(name="A%s"), "metadata.name: "),
    ],
)
async def test_invalid_sessions_are_refused(
    world: SessionLibraryWorld, session: TestSession, message: str
) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        with pytest.raises(InvalidSessionError, match=message):
            w.controller.schedule(session)
        assert w.controller.waiting == ()


async def test_name_that_is_taken_is_refused(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"), new_session("b"))
        await world.settle()
        for name in ("a", "b"):  # one runs, one waits
            with pytest.raises(SessionExistsError, match=f"session {name} was not scheduled"):
                w.controller.schedule(new_session(name))
        w.executor.finish("a")
        await world.settle()
        w.controller.schedule(new_session("a"))


async def test_stop_ends_sessions_that_wait(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"), new_session("b"), new_session("c"))
        await world.settle()
        with pytest.raises(StopTimeoutError):
            await w.controller.stop(1.0)
        assert w.events("b") == w.events("c") == ["QUEUE", "CANCELLED"]
        w.executor.finish("a")
        await world.settle()
        assert (w.executor.started, w.controller.active) == (["a"], ())


async def test_stopped_controller_starts_again(world: SessionLibraryWorld) -> None:
    async with controller_world(world, ControllerOptions(executor_count=2)) as w:
        for name in ("a", "b"):
            await w.controller.start()
            await w.controller.start()
            w.schedule(new_session(name))
            await world.settle()
            w.executor.finish(name)
            await w.controller.stop(1.0)
        assert w.events("a") == w.events("b") == PASSED
        await w.controller.start()
        w.schedule(new_session("c"))
        await world.settle()
        with pytest.raises(StopTimeoutError):
            await w.controller.stop(1.0)
        await w.controller.start()  # while one still runs
        w.schedule(new_session("d"), new_session("e"))
        await world.settle()
        assert w.controller.active == ("c", "d")


async def test_failure_of_the_test_is_recorded(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"))
        await world.settle()
        logs = {"driver": b"d", "server": b"s"}
        w.executor.finish("a", SessionFailedError("server failed: 100%s %d {}", logs=logs))
        await world.settle()
        assert w.events("a") == FAILED
        event = w.store.latest_event("a")
        assert event is not None
        assert (event.description, dict(event.logs)) == ("server failed: 100%s %d {}", logs)
        assert [e.description for e in w.store.events("a")][2] == "100%s"


async def test_crash_of_an_executor_frees_everything(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a", workers=3), new_session("b", workers=3))
        await world.settle()
        w.executor.finish("a", ZeroDivisionError("a bug"))
        await world.settle()
        assert w.last("a") == "the executor failed: ZeroDivisionError: a bug"
        assert (w.events("a"), w.controller.active) == (FAILED, ("b",))


@pytest.mark.parametrize("store", [None, "broken"])
async def test_store_does_not_disturb_sessions(
    world: SessionLibraryWorld, store: str | None
) -> None:
    class Broken(MemorySessionStore):
        def store_event(self, event: RecordedEvent) -> None:
            raise OSError("disk full")

    async with (
        controller_world(world) as w,
        SessionController(
            world.new_client(),
            Broken() if store else None,
            executor=w.executor,
            clock=world.clock,
            rng=world.rng,
            log=world.log,
        ) as controller,
    ):
        await controller.start()
        controller.schedule(new_session("a"))
        await world.settle()
        w.executor.finish("a")
        await controller.stop(1.0)
        assert w.executor.started == ["a"]


# --- cancellation -------------------------------------------------------------------------------


async def test_session_that_waits_is_cancelled(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"), new_session("b"), new_session("c"))
        await world.settle()
        w.controller.cancel("b")
        assert w.events("b") == ["QUEUE", "CANCELLED"]
        w.executor.finish("a")
        await world.settle()
        assert w.executor.started == ["a", "c"]


async def test_machines_stay_reserved_until_clean_up(world: SessionLibraryWorld) -> None:
    async with controller_world(world, ControllerOptions(executor_count=2)) as w:
        w.executor.cleanup_s = 30.0
        await w.controller.start()
        w.schedule(new_session("a", workers=3), new_session("b", workers=3))
        await world.settle()
        w.controller.cancel("a")
        await world.settle(29.0)
        assert (w.controller.waiting, w.events("a")[-1]) == (("b",), "PROVISION")
        await world.settle(2.0)
        assert w.controller.active == ("b",)
        assert w.events("a") == ["QUEUE", "ACCEPT", "PROVISION", "CANCELLED"]


async def test_second_cancellation_does_not_cut_clean_up_short(
    world: SessionLibraryWorld,
) -> None:
    async with controller_world(world, ControllerOptions(executor_count=2)) as w:
        w.executor.cleanup_s = 30.0
        await w.controller.start()
        w.schedule(new_session("a", workers=3), new_session("b", workers=3))
        await world.settle()
        w.controller.cancel("a")
        await world.settle(1.0)
        w.controller.cancel("a")
        await world.settle(28.0)
        assert (w.controller.active, w.controller.waiting) == (("a",), ("b",))
        await world.settle(2.0)
        assert w.controller.active == ("b",)
        assert w.events("a") == ["QUEUE", "ACCEPT", "PROVISION", "CANCELLED"]


async def test_cancelled_before_the_executor_ran(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        await world.settle()
        w.schedule(new_session("a", workers=3))
        while not w.controller.active:
            await world.settle(0.0)
        assert not w.executor.started
        w.controller.cancel("a")
        await world.settle()
        assert w.events("a") == ["QUEUE", "ACCEPT", "CANCELLED"]
        assert (w.executor.started, w.controller.active) == ([], ())
        assert w.controller.pools()["workers"].available == 3


async def test_unknown_session_is_not_cancelled(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"))
        await world.settle()
        w.executor.finish("a")
        await world.settle()
        with pytest.raises(SessionUnknownError, match="a was not cancelled: it neither waits nor"):
            w.controller.cancel("a")


async def test_leaving_the_block_ends_all_sessions(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"), new_session("b"))
        await world.settle()
    assert w.events("a") == ["QUEUE", "ACCEPT", "PROVISION", "CANCELLED"]
    assert w.events("b") == ["QUEUE", "CANCELLED"]
    assert w.executor.running == {}


async def test_error_of_the_block_passes_as_it_is(world: SessionLibraryWorld) -> None:
    with pytest.raises(LookupError):
        async with controller_world(world) as w:
            await w.controller.start()
            raise LookupError


async def test_wait_returns_when_sessions_have_ended(world: SessionLibraryWorld) -> None:
    async with controller_world(world) as w:
        await w.controller.start()
        w.schedule(new_session("a"), new_session("b"), new_session("c"))
        await w.controller.wait("unknown")
        first = world.nursery.start(w.controller.wait("b"))
        every = world.nursery.start(w.controller.wait())
        await world.settle()
        w.executor.finish("a")
        await world.settle()
        assert not first.done()
        w.controller.cancel("b")
        await world.settle()
        assert (first.done(), every.done()) == (True, False)
        await world.settle()
        w.executor.finish("c")
        await world.settle()
        assert every.done()
