"""The job controller against a real API server in memory."""

from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.support.job_world import JobWorld, RefusingAdapter, job_world, template

from grange.api.http import Request
from grange.api.kinds import BUILT_IN, GANGJOB, NODE, POD, PODDISRUPTIONBUDGET, PODGROUP
from grange.api.meta import Document
from grange.api.scheme import KindInfo
from grange.api.status import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    ServiceUnavailable,
)
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.controller import JobService
from grange.sim.api_fixture import opened


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with job_world(clock, rng, log) as made:
        service = JobService(made.deps, GANGJOB_ADAPTER)
        made.nursery.start(made.deps.informers.run())
        made.start(service)
        yield made


async def test_job_runs_and_succeeds(world: JobWorld) -> None:
    await world.add_job(replicas=3)
    await world.reaches("Running")
    pods = await world.pods()
    assert sorted(pods) == ["train-worker-0", "train-worker-1", "train-worker-2"]
    assert await world.services() == ["train"]
    for name in pods:
        await world.finish(name)
    await world.reaches("Succeeded")
    status = await world.status()
    assert status.completion_time
    assert status.replica_statuses["worker"].succeeded == 3
    assert status.restarts == 0


async def test_check_70_events_wait_for_the_status_write(world: JobWorld) -> None:
    await world.add_job(replicas=1)
    await world.reaches("Running")
    await world.settle()

    def gate(request: Request) -> ApiError | None:
        if request.method == "PATCH" and request.path.endswith("/gangjobs/train/status"):
            return Conflict("the object has been modified", kind="gangjobs", name="train")
        return None

    world.gate = gate
    await world.finish("train-worker-0")
    await world.settle(5)
    assert await world.events("GangJobSucceeded") == []
    world.gate = lambda request: None
    await world.reaches("Succeeded")
    await world.settle()
    assert [event.count for event in await world.events("GangJobSucceeded")] == [1]


async def test_failed_pod_is_replaced_and_charged_once(world: JobWorld) -> None:
    await world.add_job(
        roles={"worker": {"replicas": 2, "restartPolicy": "ExitCode"}},
        runPolicy={"backoffLimit": 3},
    )
    await world.reaches("Running")
    first = (await world.pods())["train-worker-1"].metadata.uid
    await world.finish("train-worker-1", 130)

    async def replaced() -> bool:
        pod = (await world.pods()).get("train-worker-1")
        return pod is not None and pod.metadata.uid != first and pod.status.phase == "Running"

    await world.until(replaced)
    await world.reaches("Running")
    assert (await world.status()).restarts == 1


async def test_status_is_written_though_creates_fail(world: JobWorld) -> None:
    await world.add_job(roles={"worker": {"replicas": 2, "restartPolicy": "ExitCode"}})
    await world.reaches("Running")

    def gate(request: Request) -> ApiError | None:
        if request.method == "POST" and request.path.endswith("/pods"):
            return Forbidden("exceeded quota: pods", kind="pods", name="train-worker-1")
        return None

    world.gate = gate
    await world.finish("train-worker-1", 130)
    await world.settle(5)
    status = await world.status()
    assert (status.phase, status.restarts) == ("Restarting", 1)
    assert status.replica_statuses["worker"].active == 1
    assert "exceeded quota" in (await world.events("FailedCreatePod"))[0].message
    world.gate = lambda request: None
    await world.reaches("Running", limit_s=120.0)
    assert (await world.status()).restarts == 1


async def test_orphan_with_labels_of_the_job_is_adopted(world: JobWorld) -> None:
    await world.add_job(replicas=2)
    await world.reaches("Running")
    pod = (await world.pods())["train-worker-1"]
    patch: Document = {"metadata": {"ownerReferences": None}}
    await world.client.patch(POD, "train-worker-1", "default", patch=patch)
    await world.settle()
    found = (await world.pods())["train-worker-1"]
    assert found.metadata.uid == pod.metadata.uid
    assert found.metadata.owner_references == pod.metadata.owner_references
    assert (await world.status()).restarts == 0


async def fail_all(world: JobWorld, uids: set[str]) -> None:
    """End every pod with exit code 7 as soon as it runs; note its UID."""
    while True:
        for name, pod in (await world.pods()).items():
            if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp:
                uids.add(pod.metadata.uid)
                with suppress(NotFound):
                    await world.finish(name, 7)
        await world.clock.sleep(0.1)


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize(
    "action",
    ["Ignore", "RestartPod", "RestartRole", "RestartJob", "RestartJobAndIgnoreMaxRestarts"],
)
async def test_every_immediate_failure_backs_off(
    world: JobWorld, action: str, replicas: int
) -> None:
    """At once, then after 1, 2, 4, 8 and 16 seconds, whether the restart is charged or not."""
    uids: set[str] = set()
    world.nursery.start(fail_all(world, uids))
    rule = {"action": action, "onExitCodes": {"operator": "In", "values": [7]}}
    await world.add_job(replicas=replicas, failurePolicy={"rules": [rule]})
    await world.settle(30)
    assert 4 * replicas <= len(uids) <= 8 * replicas


async def test_server_that_ends_at_once_backs_off(world: JobWorld) -> None:
    server = {"restartPolicy": "Always", "completes": False}
    uids: set[str] = set()

    async def end_servers() -> None:
        while True:
            for name, pod in (await world.pods()).items():
                if pod.status.phase == "Running" and "server" in name:
                    uids.add(pod.metadata.uid)
                    await world.finish(name)
            await world.clock.sleep(0.1)

    world.nursery.start(end_servers())
    await world.add_job(roles={"server": server, "worker": {}})
    await world.settle(30)
    assert 4 <= len(uids) <= 8
    assert (await world.status()).restarts == 0


async def test_evicted_pod_is_replaced_at_once(world: JobWorld) -> None:
    await world.add_job(replicas=1)
    await world.reaches("Running")
    uids = set()
    for _ in range(8):
        pod = (await world.pods())["train-worker-0"]
        uids.add(pod.metadata.uid)
        await world.client.evict("train-worker-0", "default")
        await world.settle(1.5)
        await world.reaches("Running")
    assert len(uids) == 8


@pytest.mark.parametrize("plural", ["pods", "services"])
async def test_name_that_was_taken_and_is_free_is_used(world: JobWorld, plural: str) -> None:
    """The object of an earlier job of the name goes between the refused create and the read of it."""
    free_at = world.clock.monotonic() + 1.0  # when events of what was created no longer help

    def refuse(request: Request) -> ApiError | None:
        fits = request.method == "POST" and request.path.endswith(f"/{plural}")
        return AlreadyExists("taken") if fits and world.clock.monotonic() < free_at else None

    world.gate = refuse
    await world.add_job(replicas=1)
    await world.settle(5)
    assert await world.phase() == "Running"
    assert await world.services() == ["train"]


async def test_permanent_exit_code_fails_the_job(world: JobWorld) -> None:
    await world.add_job(roles={"worker": {"replicas": 2, "restartPolicy": "ExitCode"}})
    await world.reaches("Running")
    await world.finish("train-worker-0", 1)
    await world.reaches("Failed")

    async def cleaned() -> bool:
        return set(await world.pods()) == {"train-worker-0"}

    await world.until(cleaned)


async def test_suspend_and_resume(world: JobWorld) -> None:
    await world.add_job(replicas=2)
    await world.reaches("Running")
    await world.change(runPolicy={"suspend": True})
    await world.reaches("Suspended")

    async def gone() -> bool:
        return not await world.pods() and not await world.services()

    await world.until(gone)
    await world.change(runPolicy={"suspend": False})
    await world.reaches("Running")


async def test_finished_job_is_deleted_after_its_ttl(world: JobWorld) -> None:
    await world.add_job(replicas=1, runPolicy={"ttlSecondsAfterFinished": 30})
    await world.reaches("Running")
    await world.finish("train-worker-0")
    await world.reaches("Succeeded")
    await world.settle(29)
    await world.job()
    await world.settle(3)


async def test_pods_of_a_deleted_job_are_released(world: JobWorld) -> None:
    await world.add_job(replicas=2)
    await world.reaches("Running")
    job = await world.job()
    await world.client.delete(GANGJOB, "train", "default", uid=job.metadata.uid)
    for name in await world.pods():
        await world.client.delete(POD, name, "default")

    async def gone() -> bool:
        return not await world.pods()

    await world.until(gone)


async def test_status_has_the_selector_of_each_role(world: JobWorld) -> None:
    await world.add_job(replicas=2)
    await world.reaches("Running")
    selector = (await world.status()).replica_statuses["worker"].selector
    found = await world.client.list(POD, "default", labels=selector)
    assert [pod.metadata.name for pod in found.items] == ["train-worker-0", "train-worker-1"]


@pytest.mark.parametrize(
    ("backend", "kind"), [("Grange", PODGROUP), ("PodDisruptionBudget", PODDISRUPTIONBUDGET)]
)
async def test_deleted_object_of_the_gang_is_created_again(
    world: JobWorld, backend: str, kind: KindInfo[Any]
) -> None:
    await world.add_job(replicas=2, runPolicy={"schedulingPolicy": {"backend": backend}})
    await world.reaches("Running")
    [first] = (await world.client.list(kind, "default")).items
    await world.client.delete(kind, first.metadata.name, "default")

    async def created_again() -> bool:
        found = (await world.client.list(kind, "default")).items
        return [item.metadata.uid for item in found] not in ([], [first.metadata.uid])

    await world.until(created_again)


class SchemaWorld(JobWorld):
    """A world whose server knows the schema of GangJob alone, as a cluster in which it is installed."""

    kinds = tuple(
        replace(kind, validate=lambda document, old: []) if kind is GANGJOB else kind
        for kind in BUILT_IN
    )


@pytest.fixture
async def cluster(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[JobWorld]:
    async with opened(SchemaWorld(clock, rng, log)) as made:
        made.nursery.start(made.hands())
        made.nursery.start(made.deps.informers.run())
        made.start(JobService(made.deps, GANGJOB_ADAPTER))
        yield made


OTHER: Document = {"replicaSpecs": {"worker": {"template": template(hostNetwork=True)}}}


async def test_spec_changed_while_running_fails_the_job(cluster: JobWorld) -> None:
    await cluster.add_job(failurePolicy={"maxRestarts": 1})
    await cluster.reaches("Running")
    await cluster.change(**OTHER, failurePolicy={"maxRestarts": 2})
    await cluster.reaches("Failed")
    await cluster.settle(2)
    status = await cluster.status()
    [failed] = [item for item in status.conditions if item.type == "Failed"]
    assert (failed.reason, failed.message) == (
        "InvalidJobSpec",
        "spec.failurePolicy, spec.replicaSpecs[worker]: may not change while the job runs; "
        "create another job",
    )
    assert await cluster.pods() == {}


async def test_what_may_change_while_running_keeps_the_job(cluster: JobWorld) -> None:
    await cluster.add_job(roles={"worker": {"replicas": 2, "minReplicas": 1, "maxReplicas": 4}})
    await cluster.reaches("Running")
    roles = {"worker": {"replicas": 3}}
    policy = {"ttlSecondsAfterFinished": 60, "activeDeadlineSeconds": 600}
    await cluster.change(replicaSpecs=roles, runPolicy=policy)
    await cluster.settle(5)
    assert (await cluster.phase(), len(await cluster.pods())) == ("Running", 3)


async def test_spec_changed_while_suspended_is_acted_on(cluster: JobWorld) -> None:
    await cluster.add_job()
    await cluster.reaches("Running")
    await cluster.change(runPolicy={"suspend": True})
    await cluster.reaches("Suspended")
    await cluster.settle(2)
    await cluster.change(**OTHER, runPolicy={"suspend": False})
    await cluster.reaches("Running")
    pods = await cluster.pods()
    assert [pod.spec.host_network for pod in pods.values()] == [True, True]


async def test_spec_changed_before_a_pod_runs_is_acted_on(cluster: JobWorld) -> None:
    cluster.paused = True
    await cluster.add_job()

    async def created() -> bool:
        return len(await cluster.pods()) == 2

    await cluster.until(created)
    await cluster.change(**OTHER)
    cluster.paused = False
    await cluster.reaches("Running")
    await cluster.settle(2)
    pods = await cluster.pods()
    assert [pod.spec.host_network for pod in pods.values()] == [True, True]
    status = await cluster.status()
    assert (status.restarts, status.uncharged_restarts) == (0, 1)


@pytest.mark.parametrize(("ended", "phase"), [(False, "Failed"), (True, "Succeeded")])
async def test_refused_spec_fails_a_job_that_has_not_ended(
    clock: Clock, rng: Stream, log: Logger, *, ended: bool, phase: str
) -> None:
    async with job_world(clock, rng, log) as world:
        adapter = RefusingAdapter()
        world.nursery.start(world.deps.informers.run())
        world.start(JobService(world.deps, adapter))
        await world.add_job(replicas=1)
        await world.reaches("Running")
        if ended:
            await world.finish("train-worker-0")
            await world.reaches("Succeeded")
            await world.settle(2)
        adapter.refuses = True
        patch = {"metadata": {"labels": {"touched": "yes"}}}
        await world.client.patch(GANGJOB, "train", "default", patch=patch)
        await world.settle(2)
        status = await world.status()
        assert status.phase == phase
        true = {item.type for item in status.conditions if item.status == "True"}
        assert true == {"Created", phase}


async def test_refused_spec_stops_the_pods_of_the_job(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with job_world(clock, rng, log) as world:
        adapter = RefusingAdapter()
        world.nursery.start(world.deps.informers.run())
        world.start(JobService(world.deps, adapter))
        await world.add_job(replicas=3, successPolicy={"count": 3})
        await world.reaches("Running")
        await world.finish("train-worker-0")
        await world.settle(2)
        adapter.refuses = True
        patch = {"metadata": {"labels": {"touched": "yes"}}}
        await world.client.patch(GANGJOB, "train", "default", patch=patch)
        await world.settle(2)
        [role] = (await world.status()).replica_statuses.values()
        assert (role.active, role.ready, role.succeeded) == (0, 0, 1)
        assert {name: pod.metadata.finalizers for name, pod in (await world.pods()).items()} == {
            "train-worker-0": ()
        }
        assert (await world.client.list(PODGROUP, "default")).items == []
        await world.client.delete(GANGJOB, "train", "default")
        await world.settle(2)


async def test_members_of_several_machines_have_one_event(world: JobWorld) -> None:
    world.binds = False
    for name, address in (("a", "10.0.0.1"), ("b", "10.0.0.2")):
        status = {"addresses": [{"type": "InternalIP", "address": address}]}
        document = {"metadata": {"name": name}, "spec": {"podCIDR": "127.5.0.0/17"}}
        await world.client.create(NODE, document)
        await world.client.patch(NODE, name, patch={"status": status}, subresource="status")
    await world.add_job(replicas=2)

    async def created() -> bool:
        return len(await world.pods()) == 2

    await world.until(created)
    for index, name in enumerate("ab"):
        target = {"target": {"apiVersion": "v1", "kind": "Node", "name": name}}
        await world.client.post(POD, f"train-worker-{index}", "default", "binding", target)
    await world.reaches("Running")
    await world.settle(5)
    [event] = await world.events("PeersUnreachable")
    assert event.message.startswith("pods on a, b do not reach each other")
    assert event.count == 1


async def test_check_65_job_of_another_manager_is_not_written(cluster: JobWorld) -> None:
    """Whatever its spec is: another controller may know more than ours."""
    policy = {"managedBy": "kueue.x-k8s.io/multikueue"}
    await cluster.add_job("theirs", framework="TheirOwn", runPolicy=policy)
    await cluster.add_job("valid", runPolicy=policy)
    await cluster.settle(5)
    assert await cluster.pods() == {}
    assert [(await cluster.job(name)).status.conditions for name in ("theirs", "valid")] == [(), ()]
    await cluster.change("valid", runPolicy={"suspend": True})
    await cluster.change("valid", runPolicy={"suspend": False})
    await cluster.settle(5)
    assert (await cluster.job("valid")).status.conditions == ()


async def test_failure_counted_by_another_member_is_charged_once(world: JobWorld) -> None:
    """After a take-over the cache may show a pod that was counted, deleted and forgotten (seed 4189)."""

    def refuse(request: Request) -> ApiError | None:
        return ServiceUnavailable("down") if request.path.endswith("train/status") else None

    await world.add_job(roles={"worker": {"replicas": 1, "restartPolicy": "ExitCode"}})
    await world.reaches("Running")
    await world.settle(2)
    first = (await world.pods())["train-worker-0"]
    world.gate = refuse
    await world.finish("train-worker-0", 130)
    await world.settle(1)
    world.held_watches.add("/api/v1/pods")
    counted = {"restarts": 1, "replicaStatuses": {"worker": {"indexRestarts": {"0": 1}}}}
    await world.client.patch(
        GANGJOB, "train", "default", patch={"status": counted}, subresource="status"
    )
    patch = {"metadata": {"finalizers": None}}
    await world.client.patch(POD, "train-worker-0", "default", patch=patch)
    await world.client.delete(POD, "train-worker-0", "default", grace_period_s=0)
    world.gate = lambda request: None
    await world.settle(10)
    assert (await world.status()).restarts == 1
    world.held_watches.clear()

    async def replaced() -> bool:
        pod = (await world.pods()).get("train-worker-0")
        return pod is not None and pod.metadata.uid != first.metadata.uid

    await world.until(replaced)
    await world.settle(2)
    assert (await world.status()).restarts == 1
