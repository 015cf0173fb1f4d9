"""A real API server in memory with schedulers on it, over transports that a test can disturb."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from grange.api import bindings, codec
from grange.api.http import Request, Response
from grange.api.kinds import EVENT, POD, PRIORITYCLASS
from grange.api.kinds.pod import Pod, condition
from grange.api.status import AlreadyExists
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import supervise
from grange.scheduler.framework import Profiles
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, opened


class World(ApiFixture):
    """Handles to everything in one test."""

    def writes(self, ending: str) -> int:
        """How often the schedulers wrote a path with this ending."""
        return sum(1 for _, path in self.requests if path.endswith(ending))

    async def start_scheduler(
        self,
        config: SchedulerConfig | None = None,
        *,
        profile: Profiles | None = None,
        supervised: bool = False,
    ) -> Scheduler:
        """One more scheduler, with its own informers; supervised, it survives its crashes."""
        deps = self.new_deps(self.rng.fork(f"scheduler{len(self.nursery)}"))
        scheduler = Scheduler(deps, config, profile=profile)
        self.nursery.start(deps.informers.run())
        if supervised:
            run = supervise("scheduler", scheduler.run, clock=self.clock, log=self.log)
            self.nursery.start(run)
        else:
            self.nursery.start(scheduler.run())
        await deps.informers.wait_synced()
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
        """The message of PodScheduled=False of the pod; empty when it does not."""
        found = condition(await self.pod(name), "PodScheduled")
        return found.message if found is not None and found.status == "False" else ""

    async def events(self) -> list[tuple[str, str]]:
        """Reason and name of the object of every event."""
        found = await self.client.list(EVENT, "default")
        return [(event.reason, event.involved_object.name) for event in found.items]


def binding_answers(request: Request, response: Response) -> list[tuple[str, int]]:
    """The pods that a request binds, each with the code of its answer; empty for other requests."""
    if request.path.endswith("/binding"):
        return [(request.path.split("/")[-2], response.status)]
    if request.path != bindings.PATH:
        return []
    asked = [item["metadata"]["name"] for item in codec.decode_document(request.body)["items"]]
    codes = [item["code"] for item in codec.decode_document(response.body)["items"]]
    return list(zip(asked, codes, strict=True))


def refusal(code: int, reason: str) -> Response:
    """An answer that is a failure."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return Response(code, codec.encode({**body, "code": code, "reason": reason, "message": reason}))


@asynccontextmanager
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    """A world with its namespaces; everything in it ends with the block."""
    async with opened(World(clock, rng, log)) as made:
        yield made
