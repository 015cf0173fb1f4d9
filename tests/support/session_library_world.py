"""An API server for tests of the library of sessions, and pods whose states the test sets."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    COMPONENT_LABEL,
    SESSION_LABEL,
    SessionComponent,
    TestSession,
    TestSessionSpec,
)
from grange.api.meta import Document, ObjectMeta
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.library.controller_options import ControllerOptions
from grange.controllers.testsession.library.session_controller import SessionController
from grange.controllers.testsession.library.session_executor import ExecutionContext
from grange.controllers.testsession.library.session_records import (
    MemorySessionStore,
    SessionEventKind,
)
from grange.sim.api_fixture import ApiFixture, opened
from grange.sim.builders import create_node, pod_document

RUNNING: Document = {"running": {"startedAt": "2026-03-01T12:00:00Z"}}
IMAGE: Document = {"image": "i", "imageID": "i", "restartCount": 0}


def ended(code: int) -> Document:
    return {"terminated": {"exitCode": code, "finishedAt": "2026-03-01T12:00:01Z"}}


class SessionLibraryWorld(ApiFixture):
    """A server with pods of sessions."""

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.cuts = 0
        self.garbage: list[bytes] = []  # what the next watches begin with, one each

    def cut_watches(self) -> None:
        """End the open watches at their next change, which they do not deliver."""
        self.cuts += 1

    async def deliver(self, path: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """A watch as those under test get it."""
        cuts = self.cuts
        async with aclosing(super().deliver(path, chunks)) as delivered:
            if self.garbage:
                yield self.garbage.pop(0)
            async for chunk in delivered:
                if cuts != self.cuts:
                    return
                yield chunk

    async def add_pools(self, **pools: int) -> None:
        """Create the machines of pools: ``drivers=1``."""
        for pool, count in pools.items():
            for index in range(count):
                await create_node(self.client, f"{pool}-{index}", labels={"pool": pool})

    async def add_pod(self, session: str, component: str = "driver") -> Pod:
        """Create a pod of a session."""
        labels = {SESSION_LABEL: session, COMPONENT_LABEL: component}
        document = pod_document(f"{session}-{component}", labels=labels, restartPolicy="Never")
        return await self.client.create(POD, document)

    async def set_state(self, name: str, state: Document, *, ip: str = "10.0.0.1") -> None:
        """Set the state of a pod's main container."""
        phase = "Running"
        if (end := state.get("terminated")) is not None:
            phase = "Failed" if end["exitCode"] else "Succeeded"
        status: Document = {
            "phase": phase,
            "containerStatuses": [
                {"name": "main", "state": state, "ready": phase == "Running", **IMAGE}
            ],
        }
        if ip:
            status["podIP"] = ip
            status["podIPs"] = [{"ip": ip}]
        await self.client.patch(
            POD, name, "default", patch={"status": status}, subresource="status"
        )

    async def remove(self, name: str) -> None:
        """Delete a pod at once."""
        await self.client.delete(POD, name, "default", grace_period_s=0)


@asynccontextmanager
async def session_library_world(
    clock: Clock, rng: Stream, log: Logger
) -> AsyncIterator[SessionLibraryWorld]:
    async with opened(SessionLibraryWorld(clock, rng, log)) as world:
        yield world


class FakeExecutor:
    """Runs sessions until the test ends them.

    Attributes:
        started: names, in order.
        running: names of those that run now.
        most: how many ran at once at most.
        cleanup_s: how long a session that was cancelled goes on.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.started: list[str] = []
        self.sessions: list[TestSession] = []
        self.running: dict[str, asyncio.Future[dict[str, bytes]]] = {}
        self.most = 0
        self.cleanup_s = 0.0

    async def execute(self, context: ExecutionContext, session: TestSession) -> dict[str, bytes]:
        name = session.metadata.name
        self.sessions.append(session)
        self.started.append(name)
        self.running[name] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.running))
        context.record(SessionEventKind.PROVISION, "100%s")
        try:
            return await self.running[name]
        finally:
            if self.cleanup_s:
                await self.clock.sleep(self.cleanup_s)
            del self.running[name]

    def finish(self, name: str, error: Exception | None = None) -> None:
        if error is None:
            self.running[name].set_result({"driver": b"out"})
        else:
            self.running[name].set_exception(error)


def new_session(name: str, *, drivers: str = "drivers", workers: int = 0) -> TestSession:
    """A session of a driver, and servers on machines of the pool workers."""
    driver = SessionComponent(command=("bench",), pool=drivers)
    server = SessionComponent(command=("serve",), pool="workers", count=workers)
    spec = TestSessionSpec(driver=driver, servers=(server,) if workers else ())
    return TestSession(metadata=ObjectMeta(name=name, namespace="default"), spec=spec)


@dataclass
class ControllerWorld:
    """A controller of sessions, with a fake executor and a store."""

    world: SessionLibraryWorld
    controller: SessionController
    executor: FakeExecutor
    store: MemorySessionStore

    def schedule(self, *sessions: TestSession) -> None:
        for session in sessions:
            self.store.store_session(session)
            self.controller.schedule(session)

    def events(self, name: str) -> list[str]:
        return [event.kind.name for event in self.store.events(name)]

    def last(self, name: str) -> str:
        event = self.store.latest_event(name)
        assert event is not None
        return event.description


@asynccontextmanager
async def controller_world(
    world: SessionLibraryWorld, options: ControllerOptions | None = None
) -> AsyncIterator[ControllerWorld]:
    executor, store = FakeExecutor(world.clock), MemorySessionStore()
    async with SessionController(
        world.new_client(),
        store,
        options,
        executor=executor,
        clock=world.clock,
        rng=world.rng,
        log=world.log,
    ) as controller:
        yield ControllerWorld(world, controller, executor, store)
