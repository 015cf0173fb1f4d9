"""Jobs on clusters whose gangs are placed by another scheduler, or by none that is installed."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.job_world import JobWorld, RefusingAdapter, job_world

from grange.api import conditions
from grange.api.http import Request
from grange.api.job_status import QUEUED
from grange.api.kinds import BUILT_IN, GANGJOB, PODDISRUPTIONBUDGET, PODGROUP
from grange.api.kinds.volcano import VOLCANO_PODGROUP, VolcanoPodGroup
from grange.api.meta import Condition, Document
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, Forbidden
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.controllers.gangjob.gang_control import RETRY_S


@pytest.fixture
def kinds(request: pytest.FixtureRequest) -> tuple[AnyKind, ...]:
    return getattr(request, "param", (*BUILT_IN, VOLCANO_PODGROUP))


@pytest.fixture
async def world(
    clock: Clock, rng: Stream, log: Logger, kinds: tuple[AnyKind, ...], monkeypatch: Any
) -> AsyncIterator[JobWorld]:
    monkeypatch.setattr(JobWorld, "kinds", kinds)
    async with job_world(clock, rng, log) as made:
        made.nursery.start(made.deps.informers.run())
        made.start(JobService(made.deps, GANGJOB_ADAPTER))
        yield made


async def add(world: JobWorld, backend: str, **policy: Any) -> None:
    policy = {"schedulingPolicy": {"backend": backend, **policy}}
    await world.add_job(replicas=2, runPolicy=policy)


async def queued(world: JobWorld) -> Condition:
    found = conditions.find((await world.status()).conditions, QUEUED)
    assert found is not None
    return found


async def volcano_group(world: JobWorld) -> VolcanoPodGroup:
    [found] = (await world.client.list(VOLCANO_PODGROUP, "default")).items
    return found


async def set_phase(world: JobWorld, phase: str, **condition: str) -> None:
    name = (await volcano_group(world)).metadata.name
    status = {"phase": phase, "conditions": [condition] if condition else []}
    patch = {"status": status}
    await world.client.patch(VOLCANO_PODGROUP, name, "default", patch=patch, subresource="status")


async def test_volcano_job_follows_the_phase_of_its_group(world: JobWorld) -> None:
    await add(world, "Volcano", queue="a")
    await world.reaches("Queued")
    await world.settle()
    assert (await volcano_group(world)).spec.queue == "a"
    full = {"status": "True", "reason": "NotEnoughResources", "message": "queue a is full"}
    await set_phase(world, "Pending", type="Unschedulable", **full)
    await world.settle()
    assert (await queued(world)).message == "queue a is full"
    assert await world.pods() == {}
    await set_phase(world, "Inqueue")
    assert await world.reaches("Running") < 2.0, "the group is watched"
    assert (await queued(world)).status == "False"


async def test_volcano_groups_are_watched_not_read(world: JobWorld) -> None:
    await add(world, "Volcano")
    await world.reaches("Queued")
    await world.settle()
    await set_phase(world, "Running")
    await world.reaches("Running")
    reads = []

    def gate(request: Request) -> ApiError | None:
        if request.method == "GET" and "volcano" in request.path:
            reads.append(request.path)
        return None

    world.gate = gate
    for name in [*await world.pods()]:
        await world.finish(name, exit_code=130)
        await world.settle()
    assert reads == []


@pytest.mark.parametrize("kinds", [BUILT_IN], indirect=True)
async def test_missing_volcano_is_a_condition_of_the_job(world: JobWorld) -> None:
    await add(world, "Volcano")
    await world.reaches("Queued")
    await world.settle()
    found = await queued(world)
    assert (found.status, found.reason) == ("True", "FailedCreatePodGroup")
    assert found.message == (
        "podgroups.scheduling.volcano.sh was not created: the server does not serve the kind; "
        "install it, or name another backend in schedulingPolicy"
    )
    world.requests.clear()
    await world.settle(10 * RETRY_S)
    tries = [path for _, path in world.requests if "volcano" in path]
    assert 8 <= len(tries) <= 12, "it is tried again now and then"
    assert await world.pods() == {}
    assert len(await world.events("FailedCreatePodGroup")) == 1
    await world.change(runPolicy={"suspend": True})
    await world.reaches("Suspended")


@pytest.mark.parametrize(
    "kinds", [tuple(kind for kind in BUILT_IN if kind is not PODGROUP)], indirect=True
)
@pytest.mark.parametrize("backend", ["Grange", "SchedulerPlugins"])
async def test_missing_groups_are_a_condition_of_the_job(world: JobWorld, backend: str) -> None:
    await add(world, backend)
    await world.reaches("Queued")
    await world.settle()
    found = await queued(world)
    assert found.reason == "FailedCreatePodGroup"
    assert "podgroups.scheduling.x-k8s.io" in found.message
    assert await world.pods() == {}


async def test_refused_group_is_created_once_it_is_allowed(world: JobWorld) -> None:
    allowed = False

    def gate(request: Request) -> ApiError | None:
        if "volcano" in request.path and not allowed:
            return Forbidden("queue a is closed", kind="podgroups", name="")
        return None

    world.gate = gate
    await add(world, "Volcano", queue="a")
    await world.reaches("Queued")
    await world.settle()
    assert (await queued(world)).message.endswith("was not created: queue a is closed")
    allowed = True
    await world.settle(2 * RETRY_S)
    await set_phase(world, "Inqueue")
    await world.reaches("Running", limit_s=300.0)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        ("Volcano", VOLCANO_PODGROUP),
        ("SchedulerPlugins", PODGROUP),
        ("PodDisruptionBudget", PODDISRUPTIONBUDGET),
    ],
)
async def test_group_goes_once_the_spec_is_refused(
    clock: Clock,
    rng: Stream,
    log: Logger,
    monkeypatch: Any,
    *,
    backend: str,
    kind: AnyKind,
    restarted: bool,
) -> None:
    monkeypatch.setattr(JobWorld, "kinds", (*BUILT_IN, VOLCANO_PODGROUP))
    async with job_world(clock, rng, log) as world:
        adapter = RefusingAdapter()
        world.nursery.start(world.deps.informers.run())
        [service] = world.start(JobService(world.deps, adapter))
        await add(world, backend)
        await world.settle()
        if backend == "Volcano":
            await set_phase(world, "Inqueue")
        await world.reaches("Running")
        await world.settle()
        assert (await world.client.list(kind, "default")).items
        adapter.refuses = True
        if restarted:  # a controller that watches no groups of Volcano
            service.cancel()
            deps = world.new_deps()
            world.nursery.start(deps.informers.run())
            world.start(JobService(deps, adapter))
        patch = {"metadata": {"labels": {"touched": "yes"}}}
        await world.client.patch(GANGJOB, "train", "default", patch=patch)
        await world.settle()
        assert await world.phase() == "Failed"
        assert await world.pods() == {}
        assert (await world.client.list(kind, "default")).items == []


@pytest.mark.parametrize("point", range(1, 9))
@pytest.mark.parametrize("counted", [True, False])
async def test_crash_at_a_refused_spec_leaves_no_group(
    clock: Clock, rng: Stream, log: Logger, monkeypatch: Any, *, counted: bool, point: int
) -> None:
    """The controller dies at one of its writes, with the group in the status or not yet."""
    monkeypatch.setattr(JobWorld, "kinds", (*BUILT_IN, VOLCANO_PODGROUP))
    async with job_world(clock, rng, log) as world:
        world.paused = True
        adapter = RefusingAdapter()
        world.nursery.start(world.deps.informers.run())
        [service] = world.start(JobService(world.deps, adapter))
        await add(world, "Volcano")
        await world.settle()
        adapter.refuses = True
        if not counted:  # it died before it wrote the status
            service.cancel()
            patch: Document = {"status": {"podGroup": None}}
            await world.client.patch(GANGJOB, "train", "default", patch=patch, subresource="status")
            service = restart(world, adapter)
        assert (await world.client.list(VOLCANO_PODGROUP, "default")).items
        patch = {"metadata": {"labels": {"touched": "yes"}}}
        await world.client.patch(GANGJOB, "train", "default", patch=patch)
        await crash(world, service, adapter, point)
        assert await world.phase() == "Failed"
        assert (await world.client.list(VOLCANO_PODGROUP, "default")).items == []


async def crash(world: JobWorld, service: Any, adapter: RefusingAdapter, point: int) -> None:
    """The controller dies at one of its writes, and another one takes over."""
    writes = 0

    def gate(request: Request) -> ApiError | None:
        nonlocal writes
        writes += request.method != "GET"
        if writes < point or request.method == "GET":
            return None
        service.cancel()
        return Forbidden("the controller is dead", kind="", name="")

    world.gate = gate
    await world.settle()
    world.gate = lambda _: None
    restart(world, adapter)
    await world.settle()


def restart(world: JobWorld, adapter: RefusingAdapter) -> Any:
    """A controller that watches no groups of Volcano yet."""
    deps = world.new_deps()
    world.nursery.start(deps.informers.run())
    [service] = world.start(JobService(deps, adapter))
    return service


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("Grange", "PodDisruptionBudget", PODGROUP),
        ("Grange", "None", PODGROUP),
        ("PodDisruptionBudget", "SchedulerPlugins", PODDISRUPTIONBUDGET),
        ("Volcano", "Grange", VOLCANO_PODGROUP),
    ],
)
@pytest.mark.parametrize("resumed", [False, True])
async def test_group_of_the_former_backend_goes(
    clock: Clock,
    rng: Stream,
    log: Logger,
    monkeypatch: Any,
    *,
    before: str,
    after: str,
    kind: AnyKind,
    resumed: bool,
) -> None:
    monkeypatch.setattr(JobWorld, "kinds", (*BUILT_IN, VOLCANO_PODGROUP))
    async with job_world(clock, rng, log) as world:
        world.paused = True
        world.nursery.start(world.deps.informers.run())
        [service] = world.start(JobService(world.deps, GANGJOB_ADAPTER))
        await add(world, before)
        await world.settle()
        assert (await world.client.list(kind, "default")).items
        service.cancel()  # the changes come between two of its reconciles
        await world.change(runPolicy={"suspend": True})
        await world.change(runPolicy={"schedulingPolicy": {"backend": after}})
        if resumed:
            await world.change(runPolicy={"suspend": False})
        world.start(JobService(world.deps, GANGJOB_ADAPTER))
        await world.settle()
        assert (await world.client.list(kind, "default")).items == []
        assert await world.phase() != "Failed"


@pytest.mark.parametrize("point", range(1, 5))
@pytest.mark.parametrize("after", ["Grange", "None"])
async def test_crash_at_a_changed_backend_leaves_no_group(
    clock: Clock, rng: Stream, log: Logger, monkeypatch: Any, *, after: str, point: int
) -> None:
    """A controller that watches no groups of Volcano dies at one of its writes."""
    monkeypatch.setattr(JobWorld, "kinds", (*BUILT_IN, VOLCANO_PODGROUP))
    async with job_world(clock, rng, log) as world:
        world.paused = True
        adapter = RefusingAdapter()
        world.nursery.start(world.deps.informers.run())
        [service] = world.start(JobService(world.deps, adapter))
        await add(world, "Volcano")
        await world.settle()
        service.cancel()
        await world.change(runPolicy={"suspend": True})
        await world.change(runPolicy={"schedulingPolicy": {"backend": after}})
        service = restart(world, adapter)
        await crash(world, service, adapter, point)
        assert (await world.client.list(VOLCANO_PODGROUP, "default")).items == []


async def test_refused_deletion_of_the_former_group_is_repeated(
    clock: Clock, rng: Stream, log: Logger, monkeypatch: Any
) -> None:
    monkeypatch.setattr(JobWorld, "kinds", (*BUILT_IN, VOLCANO_PODGROUP))
    async with job_world(clock, rng, log) as world:
        world.paused = True
        world.nursery.start(world.deps.informers.run())
        [service] = world.start(JobService(world.deps, GANGJOB_ADAPTER))
        await add(world, "Volcano")
        await world.settle()
        service.cancel()
        await world.change(runPolicy={"suspend": True})
        await world.change(runPolicy={"schedulingPolicy": {"backend": "Grange"}})
        refused = True

        def refuse(request: Request) -> ApiError | None:
            if request.method != "DELETE" or "/podgroups/" not in request.path or not refused:
                return None
            return Forbidden("not now", kind="podgroups", name="train")

        world.gate = refuse
        deps = world.new_deps()  # a controller that watches no groups of Volcano
        world.nursery.start(deps.informers.run())
        world.start(JobService(deps, GANGJOB_ADAPTER))
        await world.settle()
        assert await world.phase() == "Suspended"
        assert (await world.status()).pod_group, (
            "by it a controller that starts now looks for the group"
        )
        refused = False
        await world.settle(60)
        assert (await world.client.list(VOLCANO_PODGROUP, "default")).items == []
        assert not (await world.status()).pod_group
