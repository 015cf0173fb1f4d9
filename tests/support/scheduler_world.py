"""A real API server in memory with schedulers on it, over transports that a test can disturb."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from grange.api import bindings, codec
from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import BUILT_IN, EVENT, POD, PRIORITYCLASS
from grange.api.kinds.pod import Pod, condition
from grange.api.scheme import Scheme
from grange.api.status import AlreadyExists
from grange.apiserver.application import Application
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.scheduler.framework import Profiles
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.store.memory import MemoryStore

Handler = Callable[[Request], Awaitable[Response]]
Gate = Callable[[Request, Handler], Awaitable[Response]]


class World:
    """Handles to everything in one test.

    ``gate`` stands between the schedulers and the server; ``requests`` counts their writes.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        self.clock, self.rng, self.log = clock, rng, log
        self.application = Application(
            MemoryStore(), Scheme(BUILT_IN), clock=clock, rng=rng, log=log
        )
        self.client = Client(InProcess(self.application.handle, ADMIN), clock=clock)
        self.gate: Gate | None = None
        self.requests: list[tuple[str, str]] = []
        self.nursery = Nursery("world")

    async def _handle(self, request: Request) -> Response:
        if request.method != "GET":
            self.requests.append((request.method, request.path))
        if self.gate is not None:
            return await self.gate(request, self.application.handle)
        return await self.application.handle(request)

    def writes(self, ending: str) -> int:
        """How often the schedulers wrote a path with this ending."""
        return sum(1 for _, path in self.requests if path.endswith(ending))

    async def start(
        self,
        config: SchedulerConfig | None = None,
        *,
        profile: Profiles | None = None,
        supervised: bool = False,
    ) -> Scheduler:
        """One more scheduler, with informers of its own; supervised, it survives its crashes."""
        client = Client(InProcess(self._handle, ADMIN), clock=self.clock)
        rng = self.rng.fork(f"scheduler{len(self.nursery)}")
        informers = InformerFactory(client, clock=self.clock, rng=rng, log=self.log)
        deps = Deps(client, informers, self.clock, rng, self.log, registry())
        scheduler = Scheduler(deps, config, profile=profile)
        self.nursery.start(informers.run())
        if supervised:
            run = supervise("scheduler", scheduler.run, clock=self.clock, log=self.log)
            self.nursery.start(run)
        else:
            self.nursery.start(scheduler.run())
        await informers.wait_synced()
        return scheduler

    async def add_nodes(self, *names: str, **options: Any) -> None:
        for name in names:
            await builders.create_node(self.client, name, **options)

    async def add_pods(self, *names: str, priority: int = 0, **options: Any) -> None:
        """Pods; one with a priority gets a class for it."""
        if priority:
            options["priorityClassName"] = f"priority-{priority}"
            with suppress(AlreadyExists):
                document = {"metadata": {"name": f"priority-{priority}"}, "value": priority}
                await self.client.create(PRIORITYCLASS, document)
        for name in names:
            await self.client.create(POD, builders.pod_document(name, **options), "default")

    async def pod(self, name: str) -> Pod:
        return await self.client.get(POD, name, "default")

    async def pods(self) -> dict[str, str]:
        """Where each pod is."""
        found = await self.client.list(POD, "default")
        return {pod.metadata.name: pod.spec.node_name for pod in found.items}

    async def delete(self, name: str) -> None:
        """At once, as a node's agent does in the end."""
        await self.client.delete(POD, name, "default", grace_period_s=0)

    async def message(self, name: str) -> str:
        """What PodScheduled=False says about the pod; empty when it does not."""
        found = condition(await self.pod(name), "PodScheduled")
        return found.message if found is not None and found.status == "False" else ""

    async def events(self) -> list[tuple[str, str]]:
        """Reason and name of the object of every event."""
        found = await self.client.list(EVENT, "default")
        return [(event.reason, event.involved_object.name) for event in found.items]

    async def settle(self, seconds: float = 3.0) -> None:
        """Let virtual time pass."""
        await self.clock.sleep(seconds)

    async def until(self, wanted: Callable[[], Awaitable[bool]], limit_s: float = 60.0) -> None:
        async with self.clock.timeout(limit_s):
            while not await wanted():
                await self.clock.sleep(0.05)


def binding_answers(request: Request, response: Response) -> list[tuple[str, int]]:
    """The pods that a request binds, each with the code of its answer; empty for other requests."""
    if request.path.endswith("/binding"):
        return [(request.path.split("/")[-2], response.status)]
    if request.path != bindings.PATH:
        return []
    asked = [item["metadata"]["name"] for item in codec.decode_document(request.body)["items"]]
    told = [item["code"] for item in codec.decode_document(response.body)["items"]]
    return list(zip(asked, told, strict=True))


def refusal(code: int, reason: str) -> Response:
    """An answer that is a failure."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return Response(code, codec.encode({**body, "code": code, "reason": reason, "message": reason}))


@asynccontextmanager
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    """A world with its namespaces; everything in it ends with the block."""
    made = World(clock, rng, log)
    await made.application.bootstrap()
    async with made.nursery:
        try:
            yield made
        finally:
            made.nursery.cancel()
