"""A small operator for tests of the library of operators: RenderJobs have frames and one index."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import msgspec

from grange.api import schema_builder
from grange.api.kinds import BUILT_IN, EVENT, POD, SERVICE
from grange.api.kinds.event import Event
from grange.api.meta import Condition, Document, Resource, View
from grange.api.scheme import KindInfo
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.controller_interface import (
    ControllerInterface,
    JobControllerConfiguration,
)
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.gangjob.job_controller import JobController
from grange.reconcile.control import create_owned
from grange.reconcile.controller import Done, Result
from grange.reconcile.deps import Deps
from grange.sim.api_fixture import ApiFixture, opened

R = TypeVar("R", bound=Resource)


class RenderSpec(View, frozen=True):
    frames: int = 1
    servers: int = 0


class RenderStatus(View, frozen=True):
    conditions: tuple[Condition, ...] = ()
    succeeded: int = 0


class RenderJob(Resource, frozen=True):
    spec: RenderSpec = msgspec.field(default_factory=RenderSpec)
    status: RenderStatus = msgspec.field(default_factory=RenderStatus)


RENDERJOB = KindInfo(
    group="example.com",
    version="v1",
    kind="RenderJob",
    plural="renderjobs",
    view=RenderJob,
    schema="com.example.v1.RenderJob",
    definitions=schema_builder.definitions(
        "com.example.v1.RenderJob",
        "example.com",
        "v1",
        "Frames to render.",
        spec={"frames": schema_builder.whole("How many."), "servers": schema_builder.whole("…")},
        status={
            "succeeded": schema_builder.whole("How many are done."),
            "conditions": schema_builder.conditions(),
        },
    ),
)
LABELS = JobLabels(
    operator=("example.com/operator", "render"),
    job="example.com/job",
    role="example.com/role",
    index="example.com/index",
)
TEMPLATE: Document = {
    "metadata": {
        "labels": {"team": "film", "example.com/role": "theirs"},
        "annotations": {"a": "b"},
    },
    "spec": {"containers": [{"name": "main", "command": ["true"]}], "restartPolicy": "Never"},
}
PORTS = ({"name": "render", "port": 2222},)


class Render(ControllerInterface[RenderJob]):
    """Keeps a pod and a Service for each frame and each server."""

    controller_name = "render"
    kind = RENDERJOB
    labels = LABELS

    def __init__(self, deps: Deps, config: JobControllerConfiguration | None = None) -> None:
        self.jobs = JobController(self, deps, config)
        self.passes: list[str] = []

    async def reconcile_job(self, job: RenderJob) -> Result:
        self.passes.append(job.metadata.name)
        if job.spec.frames < 0:
            raise InvalidJob("spec.frames: -1 is less than 0; give a number of frames")
        pods = await self.jobs.get_pods_for_job(job)
        services = await self.jobs.get_services_for_job(job)
        for role, count in (("Frame", job.spec.frames), ("Server", job.spec.servers)):
            await self.jobs.reconcile_services(
                job, services, role, count, partial(self._service, job, role)
            )
            await self.jobs.reconcile_pods(job, pods, role, count, partial(self._pod, job, role))
        return Done()

    def _pod(self, job: RenderJob, role: str, index: int) -> Document:
        return self.jobs.new_pod(job, role, index, TEMPLATE)

    def _service(self, job: RenderJob, role: str, index: int) -> Document:
        return self.jobs.new_service(job, role, index, PORTS)


class RenderWorld(ApiFixture):
    """A server that knows RenderJobs, and the operator that uses it.

    Attributes:
        operator: under test.
        jobs: its controller.
    """

    kinds = (*BUILT_IN, RENDERJOB)

    def __init__(
        self,
        clock: Clock,
        rng: Stream,
        log: Logger,
        config: JobControllerConfiguration | None = None,
    ) -> None:
        super().__init__(clock, rng, log)
        self.deps = self.new_deps()
        self.operator = Render(self.deps, config)
        self.jobs = self.operator.jobs

    async def add_job(self, name: str = "film", *, frames: int = 1, servers: int = 0) -> RenderJob:
        """A job."""
        document = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"frames": frames, "servers": servers},
        }
        return await self.client.create(RENDERJOB, document)

    async def add(
        self,
        kind: KindInfo[R],
        name: str,
        owner: RenderJob | None = None,
        *,
        index: str = "0",
        finalizers: Sequence[str] = (),
        **labels: str,
    ) -> R:
        """A pod or Service with the labels of a frame of the job ``film``.

        Args:
            kind: which of the two.
            name: its name.
            owner: the job that controls it; None: an orphan.
            index: of the frame.
            finalizers: that hold it.
            labels: in the place of the job's, by the last part of their keys.
        """
        texts = {"operator": "render", "job": "film", "role": "frame", "index": index, **labels}
        meta: Document = {
            "name": name,
            "namespace": "default",
            "labels": {f"example.com/{key}": value for key, value in texts.items() if value},
            "finalizers": [*finalizers],
        }
        spec = TEMPLATE["spec"] if kind.kind == "Pod" else {"clusterIP": "None", "ports": [*PORTS]}
        document = {"metadata": meta, "spec": spec}
        if owner is None:
            return await self.client.create(kind, document)
        return await create_owned(self.client, kind, document, self.jobs.gen_owner_reference(owner))

    async def pods(self) -> list[str]:
        """Names of the pods."""
        return [pod.metadata.name for pod in (await self.client.list(POD)).items]

    async def services(self) -> list[str]:
        """Names of the Services in the namespace of the jobs but the server's own."""
        found = (await self.client.list(SERVICE, "default")).items
        return [one.metadata.name for one in found if one.metadata.name != "kubernetes"]

    async def events(self, reason: str) -> list[Event]:
        """Events of a reason."""
        return [event for event in (await self.client.list(EVENT)).items if event.reason == reason]

    def creations(self, plural: str) -> int:
        """How many requests tried to create such objects."""
        return sum(method == "POST" and path.endswith(plural) for method, path in self.requests)


@asynccontextmanager
async def render_world(
    clock: Clock,
    rng: Stream,
    log: Logger,
    config: JobControllerConfiguration | None = None,
    *,
    run: bool = True,
) -> AsyncIterator[RenderWorld]:
    """A world whose informers, and operator, run until the block ends."""
    async with opened(RenderWorld(clock, rng, log, config)) as world:
        world.nursery.start(world.deps.informers.run())
        if run:
            world.start(world.jobs)
        await world.settle(0.1)
        yield world
