"""The session controller against a real API server in memory."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime

import pytest
from tests.support.session_world import SessionWorld, session_world

from grange.api.http import Request, Response
from grange.api.kinds import CONFIGMAP, NODE, POD, TESTSESSION
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import SessionEvidenceStatus, SessionMetricResult, TestSession
from grange.api.status import ApiError, Forbidden, Invalid
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.controller import SessionService
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.sim.api_fixture import Handler


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[SessionWorld]:
    async with session_world(clock, rng, log) as made:
        yield made


COMPONENTS = ("server", "client", "driver")


def events(session: TestSession) -> list[str]:
    return [item.type for item in session.status.events]


async def test_session_runs_passes_and_leaves_nothing(world: SessionWorld) -> None:
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    assert sorted(await world.pods()) == ["qps-client", "qps-driver", "qps-server"]
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    assert await world.pods() == {}
    assert (
        await world.client.list(CONFIGMAP, "default", labels="grange.dev/test-session")
    ).items == []
    session = await world.session()
    assert events(session) == ["QUEUE", "ACCEPT", "PROVISION", "RUN", "DONE"]
    assert [item.health for item in session.status.components] == ["Ready", "Ready", "Succeeded"]
    assert await world.recorded("Passed")


async def test_leased_session_runs_on_its_machines(world: SessionWorld) -> None:
    await world.use_pools()
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    nodes = {name: pod.spec.node_name for name, pod in (await world.pods()).items()}
    assert nodes == {"qps-server": "w1", "qps-client": "w2", "qps-driver": "d1"}
    env = {
        item.name: item.value for item in (await world.pods())["qps-driver"].spec.containers[0].env
    }
    addresses = {item.name: item.address for item in (await world.status()).components}
    assert env["QPS_WORKERS"] == f"{addresses['server']},{addresses['client']}"
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    assert await world.leases() == {}


async def test_sessions_take_turns_where_machines_are_few(world: SessionWorld) -> None:
    await world.use_pools()
    world.serve()
    await world.add_session("a")
    await world.reaches("Running", "a")
    await world.add_session("b")
    await world.settle()
    assert (await world.status("b")).phase == "Queued"
    await world.finish("a-driver")
    await world.reaches("Succeeded", "a")
    await world.reaches("Running", "b")


async def test_impossible_session_ends_at_once(world: SessionWorld) -> None:
    await world.use_pools()
    world.held = True
    world.serve()
    await world.add_session()
    await world.reaches("Queued")
    await world.settle(0.5)
    why = "pool workers has 2 machines and 3 are requested"
    status = {"phase": "Rejected", "reason": "PoolCapacity", "message": why}
    await world.lease_status("qps-0", status)
    assert await world.reaches("Errored") < 2.0
    found = await world.status()
    assert (found.verdict, found.reason, found.message) == ("Error", "PoolCapacity", why)
    assert await world.leases() == {}


async def test_status_writes_are_bounded(world: SessionWorld) -> None:
    await world.use_pools()
    world.serve()
    await world.add_session(servers=[{"command": ["work"], "count": 1}])
    await world.reaches("Running")
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    await world.settle(30)
    writes = [path for method, path in world.requests if path.endswith("testsessions/qps/status")]
    # queued; accepted; driver seen; running; verdict; ended
    assert len(writes) == 6
    assert all(method != "PUT" for method, _ in world.requests)
    others = [request for request in world.requests if "testsession" not in request[1]]
    made = [path.rpartition("/")[2] for method, path in others if method == "POST"]
    assert sorted(item for item in made if item != "events") == sorted(
        [*["pods"] * 3, *["configmaps"] * 2, "machineleases"]
    )


async def test_nothing_is_written_at_rest(world: SessionWorld) -> None:
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    await world.settle(5)
    before = len(world.requests)
    await world.settle(300)
    assert world.requests[before:] == []


@pytest.mark.parametrize(
    "phase", ["Queued", "Accepted", "Provisioning", "Running", "Collecting", "Cleaning"]
)
async def test_controller_that_restarts_finishes_the_session(
    phase: str, world: SessionWorld
) -> None:
    await world.use_pools()
    world.held, world.paused = phase == "Queued", phase == "Provisioning"
    collector = Collector(world.clock, takes_s=20.0)
    informers = world.nursery.start(world.deps.informers.run())
    [first] = world.start(SessionService(world.deps, collector=collector))
    if phase == "Accepted":
        await world.add_foreign_pod("qps-server")
    if phase == "Cleaning":
        world.silent = {"qps-server"}
    await world.add_session()
    is_over = phase in {"Collecting", "Cleaning"}
    if is_over:
        await world.reaches("Running")
        await world.finish("qps-driver")
    await world.reaches(phase)
    await world.settle(1)
    first.cancel()
    informers.cancel()
    before = {name: pod.metadata.uid for name, pod in (await world.pods()).items()}
    world.deps = world.new_deps()
    world.serve(collector)
    await world.settle(3)
    assert (await world.status()).phase == phase
    assert {name: pod.metadata.uid for name, pod in (await world.pods()).items()} == before
    world.held = world.paused = False
    world.silent = set()
    if phase == "Accepted":
        await world.client.delete(POD, "qps-server", "default")
    if not is_over:
        await world.reaches("Running")
        await world.finish("qps-driver")
    await world.reaches("Succeeded")
    assert (await world.status()).attempt == 0
    assert (await world.pods(), await world.leases()) == ({}, {})
    assert collector.collected == ["Passed"] * (2 if phase == "Collecting" else 1)


async def test_lost_pod_leads_to_another_attempt(world: SessionWorld) -> None:
    await world.use_pools()
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    first = {pod.metadata.uid for pod in (await world.pods()).values()}
    await world.client.delete(POD, "qps-client", "default")

    async def again() -> bool:
        status = await world.status()
        return status.phase == "Running" and status.attempt == 1

    await world.until(again)
    assert not first & {pod.metadata.uid for pod in (await world.pods()).values()}
    assert [*await world.leases()] == ["qps-1"]
    assert events(await world.session())[-4:] == ["RETRY", "ACCEPT", "PROVISION", "RUN"]


async def test_lost_machine_leads_to_another_attempt(world: SessionWorld) -> None:
    await world.use_pools()
    world.pools["workers"].append("w3")
    await world.client.create(NODE, {"metadata": {"name": "w3"}})
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    world.pools["workers"].remove("w1")
    await world.client.delete(NODE, "w1")

    async def again() -> bool:
        return (await world.status()).attempt == 1

    assert await world.until(again) < 5.0
    await world.reaches("Running")
    retry = next(item for item in (await world.status()).events if item.type == "RETRY")
    assert retry.reason == "MachineLost"
    assert "w1" in retry.message


async def test_pods_that_do_not_end_are_deleted_without_grace(world: SessionWorld) -> None:
    world.silent = {"qps-server"}
    world.serve()
    await world.add_session(timeouts={"cleanupSeconds": 20})
    await world.reaches("Running")
    await world.finish("qps-driver")
    took = await world.reaches("Succeeded")
    assert 20 <= took < 25
    assert await world.pods() == {}
    assert events(await world.session())[-2:] == ["INTERNAL_ERROR", "DONE"]


@pytest.mark.parametrize(("slow", "ready"), [("server", "client"), ("driver", "server")])
async def test_provisioning_timeout_is_retried_and_then_final(
    slow: str, ready: str, world: SessionWorld
) -> None:
    """Of a driver, too, that exists and never starts: no pods and no leases are left."""
    await world.use_pools()
    world.slow = {f"qps-{slow}"}
    world.serve()
    await world.add_session(timeouts={"provisionSeconds": 10})
    took = await world.reaches("Errored")
    assert 20 <= took < 25
    status = await world.status()
    assert (status.reason, status.attempt) == ("ProvisionTimeout", 1)
    assert slow in status.message
    assert ready not in status.message
    assert (await world.pods(), await world.leases()) == ({}, {})


@pytest.mark.parametrize("wish", ["Collect", "Now"])
@pytest.mark.parametrize("phase", ["Queued", "Provisioning", "Running"])
async def test_cancelled_session_frees_everything(
    phase: str, wish: str, world: SessionWorld
) -> None:
    await world.use_pools()
    world.held, world.paused = phase == "Queued", phase == "Provisioning"
    world.serve()
    await world.add_session()
    await world.reaches(phase)
    await world.change(cancel=wish)
    assert await world.reaches("Cancelled") < 3.0
    assert (await world.pods(), await world.leases()) == ({}, {})
    assert events(await world.session())[-1] == "CANCELLED"


async def test_newer_session_of_a_group_supersedes_older_ones(world: SessionWorld) -> None:
    world.serve()
    group = {"group": "main"}
    await world.add_session("a", concurrency=group)
    await world.reaches("Running", "a")
    await world.settle(2)
    await world.add_session("b", concurrency=group)
    await world.reaches("Cancelled", "a")
    assert (await world.status("a")).reason == "Superseded"
    await world.reaches("Running", "b")


@pytest.mark.parametrize("policy", ["Supersede", "Queue"])
async def test_sessions_of_one_second_run_one_by_one(world: SessionWorld, policy: str) -> None:
    """Their creation times do not show which is newer, so that none is cancelled."""
    world.serve()
    group = {"group": "main", "policy": policy}
    names = {"a", "b", "c"}
    for name in names:
        await world.add_session(name, concurrency=group)
        await world.settle(0.3)
    created = {(await world.session(name)).metadata.creation_timestamp for name in names}
    assert len(created) == 1
    while names:
        await world.settle(20)
        running = {name for name in names if (await world.status(name)).phase == "Running"}
        assert len(running) == 1
        assert set(await world.pods()) == {f"{n}-{c}" for n in running for c in COMPONENTS}
        [name] = running
        await world.finish(f"{name}-driver")
        await world.reaches("Succeeded", name)
        names.remove(name)


async def test_sessions_of_a_queueing_group_run_one_by_one(world: SessionWorld) -> None:
    world.serve()
    group = {"group": "main", "policy": "Queue"}
    for name in ("a", "b", "c"):
        await world.add_session(name, concurrency=group)
        await world.settle(1.5)
    for name, after in (("a", "b"), ("b", "c"), ("c", "")):
        await world.reaches("Running", name)
        if after:
            assert (await world.status(after)).reason == "Concurrency"
        await world.finish(f"{name}-driver")
        await world.reaches("Succeeded", name)


async def test_finished_session_is_deleted_after_its_time(world: SessionWorld) -> None:
    world.serve()
    await world.add_session(ttlSecondsAfterFinished=30)
    await world.reaches("Running")
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    await world.settle(28)
    assert not await world.is_gone()
    await world.settle(4)
    assert await world.is_gone()


async def test_refused_pod_ends_the_session(world: SessionWorld) -> None:
    def gate(request: Request) -> ApiError | None:
        if request.method == "POST" and request.path.endswith("/pods"):
            return Invalid("spec.containers[0].image: 100%s is refused")
        return None

    world.gate = gate
    world.serve()
    await world.add_session()
    await world.reaches("Errored")
    status = await world.status()
    assert status.reason == "InvalidPod"
    assert "100%s is refused" in status.message


async def test_quota_is_waited_for(world: SessionWorld) -> None:
    refusing = True

    def gate(request: Request) -> ApiError | None:
        if refusing and request.method == "POST" and request.path.endswith("/pods"):
            return Forbidden("exceeded quota")
        return None

    world.gate = gate
    world.serve()
    await world.add_session()
    await world.settle(5)
    assert (await world.status()).phase == "Provisioning"
    assert await world.recorded("FailedCreatePod")
    refusing = False
    await world.reaches("Running")


async def test_name_of_a_pod_that_another_has_is_waited_for(world: SessionWorld) -> None:
    await world.add_foreign_pod("qps-server")
    world.serve()
    await world.add_session()
    await world.reaches("Accepted")
    assert "qps-server of no owner" in (await world.status()).message
    await world.client.delete(POD, "qps-server", "default")
    await world.reaches("Running")


async def test_pod_of_an_earlier_attempt_never_starts(world: SessionWorld) -> None:
    """A creation that is held up arrives when the attempt is over: its file is gone."""
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    [late] = [pod for name, pod in (await world.pods()).items() if name == "qps-driver"]
    env = {item.name: item for item in late.spec.containers[0].env}
    source = env["GRANGE_SESSION_ATTEMPT"].value_from
    assert source is not None
    assert source.config_map_key_ref is not None
    files = source.config_map_key_ref["name"]
    await world.client.get(CONFIGMAP, files, "default")
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    with pytest.raises(ApiError):
        await world.client.get(CONFIGMAP, files, "default")


class Collector:
    """Keeps what it is asked for.

    Attributes:
        takes_s: how long it collects.
        failure: raised instead.
    """

    def __init__(self, clock: Clock, takes_s: float = 1.0) -> None:
        self.clock, self.takes_s = clock, takes_s
        self.failure: Exception | None = None
        self.followed: list[str] = []
        self.collected: list[str] = []
        self.forgotten: list[str] = []

    def environment(self, session: TestSession) -> Mapping[str, str]:
        return {"GRANGE_SESSION_URL": f"http://service/{session.metadata.name}"}

    def start(self, session: TestSession, pod: Pod) -> None:
        self.followed.append(pod.metadata.name)

    async def collect(self, session: TestSession, deadline: datetime) -> CollectedEvidence:
        self.collected.append(session.status.verdict)
        await self.clock.sleep(self.takes_s)
        if self.failure is not None:
            raise self.failure
        metric = SessionMetricResult(name="p99", value=1.5, unit="ms")
        return CollectedEvidence(SessionEvidenceStatus(url="http://e", complete=True), (metric,))

    def forget(self, session: TestSession) -> None:
        self.forgotten.append(session.metadata.name)


async def test_evidence_is_collected_once_and_shown(world: SessionWorld) -> None:
    collector = Collector(world.clock)
    world.serve(collector)
    await world.add_session()
    await world.reaches("Running")
    pod = (await world.pods())["qps-server"]
    env = {item.name: item.value for item in pod.spec.containers[0].env}
    assert env["GRANGE_SESSION_URL"] == "http://service/qps"
    await world.finish("qps-driver")
    await world.reaches("Collecting")
    assert len(await world.pods()) == 3
    await world.reaches("Succeeded")
    status = await world.status()
    assert status.evidence.complete
    assert status.metrics[0].value == 1.5
    assert collector.collected == ["Passed"]
    assert sorted(collector.followed) == ["qps-client", "qps-driver", "qps-server"]
    await world.client.delete(TESTSESSION, "qps", "default")
    await world.settle()
    assert collector.forgotten == ["qps"]


@pytest.mark.parametrize("failure", [GrangeError("the disk is full"), RuntimeError("broken")])
async def test_failing_collector_costs_no_verdict(failure: Exception, world: SessionWorld) -> None:
    collector = Collector(world.clock)
    collector.failure = failure
    world.serve(collector)
    await world.add_session()
    await world.reaches("Running")
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    session = await world.session()
    assert str(failure) in session.status.evidence.message
    assert events(session)[-2:] == ["INTERNAL_ERROR", "DONE"]


async def test_evidence_of_an_attempt_replaces_the_last_ones(world: SessionWorld) -> None:
    collector = Collector(world.clock)
    world.serve(collector)
    await world.add_session(retries={"failure": 1})
    await world.reaches("Running")
    await world.finish("qps-driver", 1)
    await world.reaches("Provisioning")
    assert (await world.status()).evidence.complete
    collector.failure = GrangeError("the disk is full")
    await world.reaches("Running")
    await world.finish("qps-driver")
    await world.reaches("Succeeded")
    failed = "evidence was not collected: the disk is full"
    assert (await world.status()).evidence == SessionEvidenceStatus(message=failed)


async def test_discarded_attempt_has_no_complete_evidence(world: SessionWorld) -> None:
    world.serve(Collector(world.clock))
    await world.add_session(retries={"failure": 1})
    await world.reaches("Running")
    await world.finish("qps-driver", 1)
    await world.reaches("Provisioning")
    await world.reaches("Running")
    await world.client.patch(TESTSESSION, "qps", "default", patch={"spec": {"cancel": "Now"}})
    await world.reaches("Cancelled")
    status, why = await world.status(), "none was collected of attempt 1"
    assert status.evidence == SessionEvidenceStatus(url="http://e", message=why)
    assert status.metrics == ()


async def test_slow_collector_is_given_up(world: SessionWorld) -> None:
    collector = Collector(world.clock, takes_s=1e6)
    world.serve(collector)
    await world.add_session(timeouts={"collectSeconds": 10})
    await world.reaches("Running")
    await world.finish("qps-driver")
    took = await world.reaches("Succeeded")
    assert 10 <= took < 12


async def test_deleted_session_asks_for_nothing_more(world: SessionWorld) -> None:
    await world.use_pools()
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    await world.client.delete(TESTSESSION, "qps", "default", propagation="Background")
    await world.settle(1)
    before = len(world.requests)
    await world.settle(60)
    created = [path for method, path in world.requests[before:] if method == "POST"]
    assert created == []


async def test_lease_has_the_time_of_earlier_runs(world: SessionWorld) -> None:
    await world.use_pools()
    world.serve()
    for name, expected in (("a", {None}), ("b", {*range(38, 46)})):
        await world.add_session(name, testName="bench")
        await world.reaches("Running", name)
        lease = (await world.leases())[f"{name}-0"]
        assert lease.spec.expected_seconds in expected
        assert lease.spec.holder.name == name
        await world.settle(40)
        await world.finish(f"{name}-driver")
        await world.reaches("Succeeded", name)


async def test_driver_that_is_lost_unseen_is_not_run_again(world: SessionWorld) -> None:
    """It was created and is gone before the cache shows it: that attempt is over."""
    cut = False

    async def chunks(given: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(given):
            async for chunk in given:
                if cut:
                    return
                yield chunk

    async def intercept(request: Request, handle: Handler) -> Response:
        nonlocal cut
        if request.path == "/api/v1/pods" and request.method == "GET":
            cut = False
            response = await handle(request)
            if not isinstance(response.chunks, AsyncGenerator):
                return response
            return replace(response, chunks=chunks(response.chunks))
        if request.method != "POST" or b'"qps-driver"' not in (request.body or b""):
            return await handle(request)
        if not request.path.endswith("/pods"):
            return await handle(request)
        world.intercept, cut = None, True
        response = await handle(request)
        await world.client.delete(POD, "qps-driver", "default", grace_period_s=0)
        await world.store.compact(world.store.revision)
        return response

    world.intercept = intercept
    world.serve()
    await world.add_session(retries={"infrastructure": 0})
    await world.reaches("Errored")
    session = await world.session()
    assert (session.status.reason, session.status.attempt) == ("PodLost", 0)
    created = [path for method, path in world.requests if method == "POST"]
    assert len([path for path in created if path.endswith("/default/pods")]) == 3
