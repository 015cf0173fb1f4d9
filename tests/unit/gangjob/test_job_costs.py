"""What a reconcile costs: one status write at most, and conversion of changed pods only.

Planning looks at all pods of the job.
"""

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.support.job_world import JobWorld, job_world

from grange.api.http import Request, Response
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey
from grange.api.status import ApiError, Forbidden
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob import job_reconciler
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.config import GangJobConfig
from grange.controllers.gangjob.controller import JobService
from grange.controllers.gangjob.job_pace import JobPace
from grange.controllers.gangjob.job_pods import job_pod
from grange.controllers.gangjob.job_reconciler import JobReconciler
from grange.controllers.gangjob.model import JobPod
from grange.reconcile.controller import Result
from grange.sim.api_fixture import Handler

REPLICAS = 40
STATUS = ("PATCH", "/apis/grange.dev/v1alpha1/namespaces/default/gangjobs/train/status")


class Costs:
    """Counts conversions of pods, and status writes of each reconcile."""

    def __init__(self, world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        self.versions: Counter[tuple[str, str]] = Counter()
        self.status_writes: list[int] = []
        inner = JobReconciler.reconcile

        def convert(pod: Pod, labels: JobLabels) -> JobPod:
            self.versions[pod.metadata.uid, pod.metadata.resource_version] += 1
            return job_pod(pod, labels)

        async def reconcile(reconciler: JobReconciler[Pod], key: ObjectKey) -> Result:
            before = world.requests.count(STATUS)
            try:
                return await inner(reconciler, key)
            finally:
                self.status_writes.append(world.requests.count(STATUS) - before)

        monkeypatch.setattr(job_reconciler, "job_pod", convert)
        monkeypatch.setattr(JobReconciler, "reconcile", reconcile)


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        yield made


@pytest.fixture
async def costs(world: JobWorld, monkeypatch: pytest.MonkeyPatch) -> Costs:
    counted = Costs(world, monkeypatch)
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER))
    await world.add_job(
        roles={"worker": {"replicas": REPLICAS, "restartPolicy": "ExitCode"}},
        runPolicy={"schedulingPolicy": {"backend": "None"}},
    )
    await world.reaches("Running")
    await world.settle()
    return counted


async def test_reconcile_writes_the_status_once_at_most(world: JobWorld, costs: Costs) -> None:
    for index in (1, 5, 7):
        await world.finish(f"train-worker-{index}", 130)
    await world.settle(5)
    for name in await world.pods():
        await world.finish(name)
    await world.reaches("Succeeded")
    await world.settle(5)
    assert max(costs.status_writes) == 1
    assert (await world.status()).restarts == 3


async def test_only_pods_that_changed_are_converted(world: JobWorld, costs: Costs) -> None:
    costs.versions.clear()
    await world.finish("train-worker-7")
    await world.settle(5)
    assert {uid for uid, _ in costs.versions} == {
        (await world.pods())["train-worker-7"].metadata.uid
    }
    assert set(costs.versions.values()) == {1}


async def test_job_that_takes_long_to_plan_waits_for_events(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of one wait are planned for at once, so a large job is not planned for each of its pods."""
    costs = Costs(world, monkeypatch)
    world.nursery.start(world.deps.informers.run())
    service = JobService(world.deps, GANGJOB_ADAPTER)
    world.start(service)
    await world.add_job(replicas=8, runPolicy={"schedulingPolicy": {"backend": "None"}})
    await world.reaches("Running")
    await world.settle()
    key = ObjectKey("default", "train")
    costs.status_writes.clear()
    service.pace.planned(key, 0.02)
    for number in range(7):
        await world.finish(f"train-worker-{number}")
        await world.settle(0.04)
    assert costs.status_writes == []
    await world.settle(1)
    assert costs.status_writes.count(1) == 1
    assert (await world.status()).replica_statuses["worker"].succeeded == 7


def plan_slowly(monkeypatch: pytest.MonkeyPatch) -> list[ObjectKey]:
    """Let each plan take 60 ms more for the pace; returns the jobs that were planned."""
    planned = JobPace.planned
    plans: list[ObjectKey] = []

    def slowly(pace: JobPace, key: ObjectKey, took_s: float, *, left_of: str = "") -> None:
        plans.append(key)
        planned(pace, key, took_s + 0.06, left_of=left_of)

    monkeypatch.setattr(JobPace, "planned", slowly)
    return plans


async def test_job_of_many_bursts_does_not_pause_between_them(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long planning takes: what is left goes on when the cache shows what was created."""
    plan_slowly(monkeypatch)
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER, GangJobConfig(burst=5)))
    await world.add_job(replicas=40, runPolicy={"schedulingPolicy": {"backend": "None"}})
    await world.settle(1)
    assert len(await world.pods()) == 40


async def test_refused_pods_are_not_tried_again_with_each_event(
    world: JobWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = plan_slowly(monkeypatch)

    def refuse(request: Request) -> ApiError | None:
        creates = request.method == "POST" and request.path.endswith("/pods")
        return Forbidden("exceeded quota") if creates and len(plans) > 1 else None

    world.gate = refuse
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER, GangJobConfig(burst=5)))
    await world.add_job(replicas=40, runPolicy={"schedulingPolicy": {"backend": "None"}})
    await world.settle(10)
    assert len(await world.pods()) == 5
    plans.clear()
    for number in range(100):
        patch = {"metadata": {"annotations": {"number": str(number)}}}
        await world.client.patch(POD, "train-worker-0", "default", patch=patch)
        await world.settle(0.1)
    assert 5 <= len(plans) <= 20


async def test_job_at_rest_costs_nothing(world: JobWorld, costs: Costs) -> None:
    costs.status_writes.clear()
    costs.versions.clear()
    await world.settle(600)
    assert costs.status_writes == []
    assert not costs.versions


@pytest.fixture
async def small(world: JobWorld) -> JobWorld:
    """A job of eight pods that all run; the requests so far are forgotten."""
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER))
    await world.add_job(
        replicas=8, runPolicy={"cleanPodPolicy": "All", "schedulingPolicy": {"backend": "None"}}
    )
    await world.reaches("Running")
    await world.settle()
    world.requests.clear()
    return world


async def cleaned(world: JobWorld) -> Counter[str]:
    """End all pods, and count the controller's writes until they are gone, but those of Events."""
    for name in await world.pods():
        await world.finish(name)

    async def gone() -> bool:
        return not await world.pods() and not await world.services()

    await world.until(gone)
    return Counter(
        f"{method} {path.split('/')[-2]}" for method, path in world.requests if "event" not in path
    )


async def test_clean_up_writes_once_per_pod_and_service(small: JobWorld) -> None:
    writes = await cleaned(small)
    assert writes.pop("PATCH train") >= 1  # the status
    assert writes == {"DELETE pods": 8, "DELETE services": 1}


async def test_clean_up_where_deletes_remove_no_finalizer(small: JobWorld) -> None:
    """As Kubernetes does it: the pods are marked, and released afterwards."""

    async def ignore(request: Request, handler: Handler) -> Response:
        return await handler(replace(request, query={}) if request.method == "DELETE" else request)

    small.intercept = ignore
    writes = await cleaned(small)
    assert (writes["DELETE pods"], writes["PATCH pods"]) == (8, 8)


async def test_restart_writes_twice_for_each_pod(world: JobWorld) -> None:
    """A pod is deleted and let go of in one write, its node confirms, and the next one is created."""
    world.nursery.start(world.deps.informers.run())
    world.start(JobService(world.deps, GANGJOB_ADAPTER))
    rule = {"action": "RestartJob", "onExitCodes": {"operator": "In", "values": [42]}}
    await world.add_job(
        roles={"worker": {"replicas": 8, "restartPolicy": "Never"}},
        runPolicy={"schedulingPolicy": {"backend": "None"}},
        failurePolicy={"maxRestarts": 3, "rules": [rule]},
    )
    await world.reaches("Running")
    await world.settle()
    old = {pod.metadata.uid for pod in (await world.pods()).values()}
    world.requests.clear()
    await world.finish("train-worker-3", 42)

    async def restarted() -> bool:
        pods = (await world.pods()).values()
        return len(pods) == 8 and not old & {pod.metadata.uid for pod in pods}

    await world.until(restarted)
    await world.reaches("Running")
    writes = Counter(
        (method, path.partition("/pods")[2]) for method, path in world.requests if "/pods" in path
    )
    pods = [f"/train-worker-{index}" for index in range(8)]
    assert writes == {("POST", ""): 8, **{("DELETE", name): 1 for name in pods}}


async def test_pods_that_are_kept_are_released_at_once(world: JobWorld, costs: Costs) -> None:
    await world.finish("train-worker-7")
    await world.settle()
    assert not (await world.pods())["train-worker-7"].metadata.finalizers
