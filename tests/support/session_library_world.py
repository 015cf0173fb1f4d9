"""An API server for tests of the library of sessions, and pods whose states the test sets."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from grange.api import timestamps
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    COMPONENT_LABEL,
    SESSION_LABEL,
    SessionComponent,
    SessionRetries,
    SessionTimeouts,
    TestSession,
    TestSessionSpec,
)
from grange.api.meta import Document, ObjectMeta
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child
from grange.controllers.testsession.library.controller_options import ControllerOptions
from grange.controllers.testsession.library.library_errors import SessionFailedError
from grange.controllers.testsession.library.pod_executor import PodExecutor
from grange.controllers.testsession.library.pod_watcher import Watcher
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
    return {"terminated": {"exitCode": code}}


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
            end = {"finishedAt": timestamps.rfc3339(self.clock.now()), **end}
            state = {"terminated": end}
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
        self.on_start: Callable[[], None] = lambda: None

    async def execute(self, context: ExecutionContext, session: TestSession) -> dict[str, bytes]:
        name = session.metadata.name
        self.sessions.append(session)
        self.started.append(name)
        self.running[name] = asyncio.get_running_loop().create_future()
        self.most = max(self.most, len(self.running))
        self.on_start()
        context.record(SessionEventKind.PROVISION, "100%s")
        try:
            return await self.running[name]
        finally:
            try:
                if self.cleanup_s:
                    await self.clock.sleep(self.cleanup_s)
            finally:
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


RETRY_NEVER = SessionRetries(infrastructure=0)


def cluster_session(
    name: str,
    *,
    servers: int = 1,
    clients: int = 1,
    retries: SessionRetries = RETRY_NEVER,
    timeouts: SessionTimeouts | None = None,
) -> TestSession:
    """A session for pods, without retries: servers and clients on machines of the pool workers."""
    part = SessionComponent(command=("work",), pool="workers")
    spec = TestSessionSpec(
        driver=SessionComponent(command=("bench",), pool="drivers"),
        servers=(part,) * servers,
        clients=(part,) * clients,
        retries=retries,
        timeouts=timeouts or SessionTimeouts(),
    )
    return TestSession(metadata=ObjectMeta(name=name), spec=spec)


@dataclass
class Execution:
    """A session that a PodExecutor runs.

    Attributes:
        done: how it ended, when it has.
        events: what it recorded.
    """

    world: SessionLibraryWorld
    task: Child[None] | None = None
    result: dict[str, bytes] | None = None
    error: Exception | None = None
    events: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.task is not None and self.task.done()

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def failure(self) -> SessionFailedError:
        assert isinstance(self.error, SessionFailedError), self.error
        return self.error

    async def run(
        self, executor: PodExecutor, session: TestSession, timeout_s: float | None
    ) -> None:
        context = ExecutionContext(
            lambda kind, text: self.events.append((kind.name, text)), timeout_s
        )
        try:
            self.result = dict(await executor.execute(context, session))
        except SessionFailedError as error:
            self.error = error


class ExecutorWorld(SessionLibraryWorld):
    """A server, a watcher and an executor."""

    watcher: Watcher
    executor: PodExecutor

    def execute(self, session: TestSession, timeout_s: float | None = None) -> Execution:
        """Run a session until it has ended."""
        execution = Execution(self)
        execution.task = self.nursery.start(execution.run(self.executor, session, timeout_s))
        return execution

    async def names(self) -> list[str]:
        """The pods that there are."""
        return [pod.metadata.name for pod in (await self.client.list(POD, "default")).items]

    async def ready(self, *names: str) -> None:
        """Let pods run, each with an address."""
        for name in names:
            self.addresses += 1
            await self.set_state(name, RUNNING, ip=f"10.0.0.{self.addresses}")

    addresses = 0


@asynccontextmanager
async def executor_world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[ExecutorWorld]:
    async with opened(ExecutorWorld(clock, rng, log)) as world:
        client = world.new_client()
        async with Watcher(client, clock=clock, rng=rng, log=log) as watcher:
            await watcher.start()
            world.watcher = watcher
            world.executor = PodExecutor(client, watcher, clock=clock, rng=rng, log=log)
            yield world
            world.nursery.cancel()
