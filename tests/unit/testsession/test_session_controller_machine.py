"""Random lives of the library's controller: sessions, pools, cancellations, crashes, stops and starts.

Never do more sessions run than there are executors, nor on more machines than there are; no session
that could run waits; each has one terminal event, as its last.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.session_library_world import (
    ControllerWorld,
    SessionLibraryWorld,
    controller_world,
    new_session,
    session_library_world,
)

from grange.api.kinds import NODE
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.library.controller_options import ControllerOptions
from grange.controllers.testsession.library.library_errors import (
    ControllerStoppedError,
    SessionFailedError,
    StopTimeoutError,
)
from grange.controllers.testsession.library.session_needs import needed_machines
from grange.sim.builders import create_node
from grange.sim.runner import Runner

POOLS = ("drivers", "workers")
TERMINAL = {"DONE", "ERROR", "CANCELLED"}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
SETTLED_S = 0.5


async def opened_world(options: ControllerOptions) -> AsyncGenerator[ControllerWorld, None]:
    clock, rng, log = LoopClock(EPOCH), Stream(1), Logger("machine")
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(session_library_world(clock, rng, log))
        yield await stack.enter_async_context(controller_world(world, options))


class ControllerLife(RuleBasedStateMachine):
    """A controller under everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = Runner()
        self.nodes: dict[str, str] = {}  # pool by name
        self.cordoned: set[str] = set()
        self.scheduled: list[str] = []
        self.needs: dict[str, dict[str, int]] = {}
        self.overcommitted: list[str] = []

    @initialize(executors=st.integers(1, 3), grace_s=st.sampled_from([0.0, 5.0]))
    def begin(self, executors: int, grace_s: float) -> None:
        self.limit = executors
        options = ControllerOptions(executor_count=executors, impossible_grace_s=grace_s)
        self.opened = self.runner.open(opened_world(options), name="world")
        self.w: ControllerWorld = self.opened.value
        self.w.executor.on_start = self.check_machines
        for name, pool in (
            ("d0", "drivers"),
            ("d1", "drivers"),
            ("d2", "drivers"),
            ("w0", "workers"),
        ):
            self.nodes[name] = pool
            self.run(create_node(self.world.client, name, labels={"pool": pool}))
        self.run(self.w.controller.start())

    @property
    def world(self) -> SessionLibraryWorld:
        return self.w.world

    def run(self, work: Coroutine[Any, Any, object] | None = None, seconds: float = 0.0) -> None:
        """Do some work, and let the controller see it."""

        async def both() -> None:
            if work is not None:
                await work
            await self.world.settle(SETTLED_S + seconds)

        self.runner.run(both())

    def check_machines(self) -> None:
        """No more machines are used than a pool has, at the time at which a session starts."""
        used: Counter[str] = Counter()
        for name in self.w.executor.running:
            used.update(self.needs[name])
        there = Counter(self.nodes.values())
        for pool, count in self.needs[self.w.executor.started[-1]].items():
            if count and used[pool] > there[pool]:
                self.overcommitted.append(f"{used[pool]} of {there[pool]} machines of {pool}")

    # --- what happens ---------------------------------------------------------------------------

    @rule(
        drivers=st.sampled_from(["drivers", "drivers", "drivers", "nowhere"]),
        workers=st.sampled_from([0, 0, 1, 2]),
    )
    def schedule(self, drivers: str, workers: int) -> None:
        session = new_session(f"s{len(self.scheduled)}", drivers=drivers, workers=workers)
        name = session.metadata.name
        self.needs[name] = needed_machines(session, {})

        async def schedule() -> None:
            try:
                self.w.schedule(session)
            except ControllerStoppedError:
                assert self.w.controller.stopped
                self.w.store.delete_session(name)
            else:
                self.scheduled.append(name)

        self.run(schedule())

    @rule(index=st.integers(0, 5), end=st.sampled_from(["pass", "pass", "fail", "crash"]))
    def finish(self, index: int, end: str) -> None:
        running = list(self.w.executor.running)
        if not running:
            return
        errors = {"fail": SessionFailedError("failed: 100%s"), "crash": KeyError("a bug")}
        name = running[index % len(running)]
        if not self.w.executor.running[name].done():
            self.w.executor.finish(name, errors.get(end))
            self.run()

    @rule(index=st.integers(0, 5), cleanup_s=st.sampled_from([0.0, 0.0, 3.0]))
    def cancel(self, index: int, cleanup_s: float) -> None:
        names = [*self.w.controller.active, *self.w.controller.waiting]
        if names:
            self.w.executor.cleanup_s = cleanup_s

            async def cancel() -> None:
                self.w.controller.cancel(names[index % len(names)])

            self.run(cancel())

    @rule(pool=st.sampled_from(POOLS))
    def add_node(self, pool: str) -> None:
        name = f"{pool}-{len(self.nodes)}-{len(self.scheduled)}-{self.runner.loop.time():.0f}"
        if name not in self.nodes:
            self.nodes[name] = pool
            self.run(create_node(self.world.client, name, labels={"pool": pool}))

    @rule(index=st.integers(0, 5))
    def remove_node(self, index: int) -> None:
        if self.nodes:
            name = [*self.nodes][index % len(self.nodes)]
            del self.nodes[name]
            self.cordoned.discard(name)
            self.run(self.world.client.delete(NODE, name))

    @rule(index=st.integers(0, 5))
    def cordon(self, index: int) -> None:
        if self.nodes:
            name = [*self.nodes][index % len(self.nodes)]
            self.cordoned ^= {name}
            patch = {"spec": {"unschedulable": name in self.cordoned}}
            self.run(self.world.client.patch(NODE, name, patch=patch))

    @rule(timeout_s=st.sampled_from([0.0, 1.0]))
    def stop(self, timeout_s: float) -> None:
        running = self.w.controller.active

        async def stop() -> None:
            try:
                await self.w.controller.stop(timeout_s)
            except StopTimeoutError:
                assert running
            assert self.w.controller.stopped

        self.run(stop())

    @rule()
    def start(self) -> None:
        self.run(self.w.controller.start())

    @rule(seconds=st.sampled_from([1.0, 70.0]))
    def pass_time(self, seconds: float) -> None:
        self.run(seconds=seconds)

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def executors_are_bounded(self) -> None:
        if hasattr(self, "w"):
            assert self.w.executor.most <= self.limit
            assert len(self.w.controller.active) <= self.limit
            assert self.overcommitted == []

    @invariant()
    def events_are_in_order(self) -> None:
        if not hasattr(self, "w"):
            return
        here = {*self.w.controller.active, *self.w.controller.waiting}
        for name in self.scheduled:
            kinds = self.w.events(name)
            ends = [kind for kind in kinds if kind in TERMINAL]
            assert kinds[0] == "QUEUE"
            assert kinds.count("QUEUE") == 1
            assert kinds.count("ACCEPT") <= 1
            assert len(ends) == (name not in here)
            assert not ends or kinds[-1] == ends[0]

    @invariant()
    def nothing_waits_that_could_run(self) -> None:
        if not hasattr(self, "w") or not self.w.controller.waiting:
            return
        assert not self.w.controller.stopped
        if len(self.w.controller.active) < self.limit:
            need, pools = self.needs[self.w.controller.waiting[0]], self.w.controller.pools()
            assert any(
                pool not in pools or count > pools[pool].available for pool, count in need.items()
            )

    @invariant()
    def machines_are_counted(self) -> None:
        if not hasattr(self, "w") or self.w.controller.stopped:
            return
        used: Counter[str] = Counter()
        for name in self.w.controller.active:
            used.update(self.needs[name])
        there = Counter(self.nodes.values())
        usable = Counter(pool for name, pool in self.nodes.items() if name not in self.cordoned)
        for name, pool in self.w.controller.pools().items():
            assert pool.capacity == there[name]
            assert pool.available == max(0, usable[name] - used[name])

    def teardown(self) -> None:
        if not hasattr(self, "w"):
            self.runner.close()
            return
        self.opened.close()
        for name in self.scheduled:
            ends = [kind for kind in self.w.events(name) if kind in TERMINAL]
            assert len(ends) == 1
            assert self.w.events(name)[-1] == ends[0]
        assert self.w.executor.running == {}
        self.runner.close()


ControllerLife.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestControllerLife = ControllerLife.TestCase
