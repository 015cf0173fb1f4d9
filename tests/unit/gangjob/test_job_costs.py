"""What a reconcile costs: one status write at most, and no work for pods that did not change."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.support.job_world import JobWorld, job_world

from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob import job_reconciler
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.controllers.gangjob.job_pods import job_pod
from grange.controllers.gangjob.job_reconciler import JobReconciler
from grange.controllers.gangjob.model import JobPod
from grange.reconcile.controller import Result

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


async def test_job_at_rest_costs_nothing(world: JobWorld, costs: Costs) -> None:
    costs.status_writes.clear()
    costs.versions.clear()
    await world.settle(600)
    assert costs.status_writes == []
    assert not costs.versions
