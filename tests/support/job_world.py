"""A small world for tests of the job controller: a real API server in memory, and pods by hand.

Pods are bound and run as soon as they are there, unless ``paused``; a test ends them with ``finish``.
A pod that is being deleted ends at once, unless its node is ``silent``.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from grange.api import timestamps
from grange.api.http import User
from grange.api.job_status import JobStatus
from grange.api.kinds import EVENT, GANGJOB, NODE, POD, SERVICE
from grange.api.kinds.event import Event
from grange.api.kinds.gangjob import GangJob
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GangJobAdapter
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.model import JobModel
from grange.sim.api_fixture import ApiFixture, opened

MANAGER = User("grange:admin", ("system:masters", "system:authenticated"))
CONTAINER: Document = {"name": "main", "command": ["work"]}


def template(**spec: Any) -> Document:
    """A pod template of one container."""
    return {"metadata": {"labels": {}}, "spec": {"containers": [CONTAINER], **spec}}


class RefusingAdapter(GangJobAdapter):
    """Refuses specs once ``refuses`` is set, as a server without admission would let them through."""

    refuses = False

    def model(self, job: GangJob) -> JobModel:
        if self.refuses:
            raise InvalidJob("spec.framework: is not known; name another")
        return super().model(job)


class JobWorld(ApiFixture):
    """Handles to everything in one test.

    Attributes:
        deps: of the controller under test.
        paused: whether pods stay Pending.
        binds: whether pods are bound by hand; else a scheduler has to do it.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log, user=MANAGER)
        self.deps = self.new_deps()
        self.paused = False
        self.binds = True

    async def add_job(
        self,
        name: str = "train",
        *,
        roles: Mapping[str, Document] | None = None,
        replicas: int = 2,
        **spec: Any,
    ) -> None:
        """A GangJob, by default with one role ``worker``."""
        given = roles or {"worker": {"replicas": replicas}}
        await self.client.create(
            GANGJOB,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "replicaSpecs": {
                        role: {"template": template(), **value} for role, value in given.items()
                    },
                    **spec,
                },
            },
            "default",
        )

    async def change(self, name: str = "train", **spec: Any) -> None:
        """Patch a job's spec."""
        await self.client.patch(GANGJOB, name, "default", patch={"spec": spec})

    async def job(self, name: str = "train") -> GangJob:
        return await self.client.get(GANGJOB, name, "default")

    async def status(self, name: str = "train") -> JobStatus:
        return (await self.job(name)).status

    async def phase(self, name: str = "train") -> str:
        return (await self.status(name)).phase

    async def reaches(self, phase: str, name: str = "train", *, limit_s: float = 60.0) -> float:
        """Wait for a phase; the virtual seconds that it took."""

        async def reached() -> bool:
            return await self.phase(name) == phase

        return await self.until(reached, limit_s=limit_s)

    async def pods(self) -> dict[str, Pod]:
        """All pods by name."""
        return {pod.metadata.name: pod for pod in (await self.client.list(POD)).items}

    async def services(self) -> list[str]:
        """Names of the Services of the namespace."""
        items = (await self.client.list(SERVICE, "default")).items
        return sorted(item.metadata.name for item in items if item.metadata.name != "kubernetes")

    async def events(self, reason: str) -> list[Event]:
        """Events of a reason."""
        return [item for item in (await self.client.list(EVENT)).items if item.reason == reason]

    async def finish(self, name: str, exit_code: int = 0, reason: str = "") -> None:
        """End a pod's container."""
        phase = "Failed" if exit_code else "Succeeded"
        ended = {
            "exitCode": exit_code,
            "reason": reason or ("Error" if exit_code else "Completed"),
            "finishedAt": timestamps.rfc3339(self.clock.now()),
        }
        status = {
            "phase": phase,
            "containerStatuses": [
                {
                    "name": "main",
                    "image": "",
                    "imageID": "",
                    "ready": False,
                    "restartCount": 0,
                    "state": {"terminated": ended},
                }
            ],
            "conditions": [{"type": "Ready", "status": "False"}],
        }
        await self._patch_status(name, status)

    async def hands(self) -> None:
        """Bind and start pods, confirm deletions, ten times a second."""
        await self.client.create(NODE, {"metadata": {"name": "n1"}})
        seen = -1
        while True:
            if self.store.revision != seen and not self.paused:
                seen = self.store.revision
                for name, pod in (await self.pods()).items():
                    with suppress(NotFound, Conflict):
                        await self._move(name, pod)
            await self.clock.sleep(0.1)

    async def _move(self, name: str, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp:
            if pod.status.phase in {"Pending", "Running"} and pod.metadata.finalizers:
                await self._patch_status(name, {"phase": "Failed"})
            await self.client.delete(POD, name, meta.namespace, uid=meta.uid, grace_period_s=0)
        elif not pod.spec.node_name:
            if not self.binds:
                return
            target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
            await self.client.post(POD, name, meta.namespace, "binding", {"target": target})
        elif pod.status.phase in {"", "Pending"}:
            ready = {"type": "Ready", "status": "True"}
            await self._patch_status(name, {"phase": "Running", "conditions": [ready]})

    async def _patch_status(self, name: str, status: Document) -> None:
        await self.client.patch(
            POD, name, "default", patch={"status": status}, subresource="status"
        )


@asynccontextmanager
async def job_world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    """A world whose hands are at work."""
    async with opened(JobWorld(clock, rng, log)) as world:
        world.nursery.start(world.hands())
        yield world
