"""The executor of the library: E1-E6, and that nothing is left of a session however it ends."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.session_library_world import (
    ExecutorWorld,
    cluster_session,
    ended,
    executor_world,
)

from grange.api.http import Request, Response
from grange.api.kinds import CONFIGMAP, POD
from grange.api.kinds.testsession import SessionRetries, SessionTimeouts
from grange.api.status import Invalid, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.testsession.library.pod_executor import AGAIN_S

WORKERS = ("a-server", "a-client")


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[ExecutorWorld]:
    async with executor_world(clock, rng, log) as world:
        yield world


async def provisioned(world: ExecutorWorld) -> None:
    """Let the components of a session become ready."""
    await world.settle()
    await world.ready(*WORKERS)
    await world.settle()
    await world.ready("a-driver")
    await world.settle()


async def is_clean(world: ExecutorWorld) -> bool:
    files = (await world.client.list(CONFIGMAP, "default", labels="grange.dev/test-session")).items
    return not files and await world.names() == []


async def test_e1_components_are_provisioned(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await world.settle()
    assert await world.names() == ["a-client", "a-server"]  # at once; the driver needs addresses
    await world.ready("a-server", "a-client")
    await world.settle()
    assert await world.names() == ["a-client", "a-driver", "a-server"]
    await world.ready("a-driver")
    await world.settle()
    assert execution.kinds == ["PROVISION", "RUN"]


async def test_e2_driver_that_fails_at_the_start(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await world.settle()
    await world.ready(*WORKERS)
    await world.settle()
    await world.set_state("a-driver", ended(7))
    await world.settle()
    assert str(execution.failure()) == "driver failed: container main: exit code 7"
    assert not execution.failure().is_infrastructure
    assert await is_clean(world)


async def test_e3_provisioning_that_takes_too_long(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"), timeout_s=10.0)
    await world.settle()
    await world.ready("a-server")
    await world.settle(9.0)
    assert execution.is_done
    message = str(execution.failure())
    assert "Provisioning for 10 s: not ready: client (NotReady: " in message
    assert "driver (not created)" in message
    assert "server" not in message
    assert execution.failure().is_infrastructure
    assert execution.kinds[0] == "PROVISION"
    assert "RUN" not in execution.kinds
    assert await is_clean(world)


async def test_e3_late_success_does_not_rescue(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a", servers=0, clients=0), timeout_s=10.0)
    await world.settle()
    await world.client.patch(
        POD, "a-driver", "default", patch={"metadata": {"finalizers": ["example.com/hold"]}}
    )
    await world.settle(10.0)
    await world.set_state("a-driver", ended(0))
    await world.settle()
    patch = {"metadata": {"finalizers": None}}
    await world.client.patch(POD, "a-driver", "default", patch=patch)
    await world.settle()
    assert "Provisioning for 10 s" in str(execution.failure())


async def test_e4_driver_that_succeeds(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    await world.set_state("a-driver", ended(0))
    await world.settle()
    assert execution.is_done
    assert execution.error is None
    assert await is_clean(world)


async def test_e5_worker_that_fails(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    await world.set_state("a-server", ended(3))
    await world.settle()
    assert str(execution.failure()) == "server failed: container main: exit code 3"
    assert await is_clean(world)


async def test_e6_run_that_takes_too_long(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"), timeout_s=60.0)
    await provisioned(world)
    await world.settle(60.0)
    message = str(execution.failure())
    assert message == "the session was Running for 56 s and the driver has not ended"
    assert await is_clean(world)


async def answer_logs(world: ExecutorWorld) -> None:
    """Answer requests for logs with the pods' names, 100 bytes each; let all be ready."""

    async def answer(
        request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if not request.path.endswith("/log"):
            return await handle(request)
        name = request.path.split("/")[-2]
        if name == "a-client":
            return Response(500, b"")
        return Response(200, f"{name:>100}".encode(), "text/plain")

    world.intercept = answer
    await provisioned(world)


async def test_logs_of_the_driver_are_returned(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await answer_logs(world)
    await world.set_state("a-driver", ended(0))
    await world.settle()
    assert execution.result == {"driver": f"{'a-driver':>100}".encode()}
    assert execution.kinds == ["PROVISION", "RUN"]


async def test_logs_of_a_failed_session_are_kept(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await answer_logs(world)
    await world.set_state("a-server", ended(3))
    await world.settle()
    logs = execution.failure().logs
    assert {name: text.strip() for name, text in logs.items()} == {
        "driver": b"a-driver",
        "server": b"a-server",
    }
    kind, message = execution.events[-1]
    assert (kind, message.partition(":")[0]) == ("INTERNAL_ERROR", "log of a-client")


# --- what upstream does not test ------------------------------------------------------------------


async def test_ready_of_one_worker_is_not_that_of_another(world: ExecutorWorld) -> None:
    world.execute(cluster_session("a", servers=2))
    await world.settle()
    for _ in range(3):
        await world.set_state("a-server-0", {"running": {}}, ip="10.0.0.9")
        await world.settle()
    await world.ready("a-client")
    await world.settle()
    assert "a-driver" not in await world.names()


async def test_addresses_are_in_the_order_of_the_session(world: ExecutorWorld) -> None:
    world.execute(cluster_session("a", servers=2, clients=2))
    await world.settle()
    await world.ready("a-client-1", "a-server-1", "a-client-0", "a-server-0")
    await world.settle()
    driver = await world.client.get(POD, "a-driver", "default")
    values = {item.name: item.value for item in driver.spec.containers[0].env}
    expected = "10.0.0.4:10000,10.0.0.2:10000,10.0.0.3:10000,10.0.0.1:10000"
    assert values["QPS_WORKERS"] == expected


async def test_worker_without_address_is_awaited(world: ExecutorWorld) -> None:
    world.execute(cluster_session("a", servers=0))
    await world.settle()
    await world.set_state("a-client", {"running": {}}, ip="")
    await world.settle()
    assert await world.names() == ["a-client"]


async def test_quick_driver_passes(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await world.settle()
    await world.ready(*WORKERS)
    await world.settle()
    await world.set_state("a-driver", ended(0))
    await world.settle()
    assert execution.kinds == ["PROVISION", "RUN", *execution.kinds[2:]]
    assert execution.error is None
    assert execution.is_done


async def test_worker_that_is_done_does_not_end_the_run(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    await world.set_state("a-client", ended(0))
    await world.settle(100.0)
    assert not execution.is_done


async def test_deleted_worker_is_an_infrastructure_error(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    await world.remove("a-client")
    await world.settle()
    assert execution.failure().is_infrastructure
    assert "client" in str(execution.failure())


async def test_pod_that_was_gone_at_once_is_not_created_again(world: ExecutorWorld) -> None:
    world.held_watches.add("/api/v1/namespaces/default/pods")
    execution = world.execute(cluster_session("a"))
    await world.settle()
    await world.remove("a-server")
    world.held_watches.clear()
    await world.settle()
    assert execution.failure().is_infrastructure
    assert "server was lost" in str(execution.failure())


async def test_infrastructure_error_is_retried(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a", retries=SessionRetries(infrastructure=1)))
    await provisioned(world)
    await world.remove("a-client")
    await world.settle()
    await provisioned(world)
    await world.set_state("a-driver", ended(0))
    await world.settle()
    kinds = [kind for kind in execution.kinds if kind != "INTERNAL_ERROR"]
    assert kinds == ["PROVISION", "RUN", "RETRY", "PROVISION", "RUN"]
    assert (execution.is_done, execution.error) == (True, None)


async def test_driver_that_was_deleted_after_its_end_passes(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    world.held_watches.add("/api/v1/namespaces/default/pods")
    await world.set_state("a-driver", ended(0))
    await world.remove("a-driver")
    world.held_watches.clear()
    await world.settle()
    assert (execution.is_done, execution.error) == (True, None)


async def test_pods_are_placed_one_on_a_machine(world: ExecutorWorld) -> None:
    world.execute(cluster_session("a"))
    await world.settle()
    pod = await world.client.get(POD, "a-server", "default")
    assert pod.spec.node_selector == {"pool": "workers"}
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.pod_anti_affinity is not None
    against = pod.spec.affinity.pod_anti_affinity
    (term,) = against.required_during_scheduling_ignored_during_execution
    assert term.topology_key == "kubernetes.io/hostname"
    assert pod.metadata.owner_references == ()


async def test_refused_pod_ends_the_session(world: ExecutorWorld) -> None:
    world.gate = lambda request: (
        Invalid("server is no good, 100%s")
        if request.method == "POST" and b'"a-server"' in request.body
        else None
    )
    execution = world.execute(cluster_session("a"))
    await world.settle()
    assert "server was refused: server is no good, 100%s" in str(execution.failure())
    assert await is_clean(world)


async def test_foreign_pod_of_the_name_is_left_alone(world: ExecutorWorld) -> None:
    await world.add_pod("other", "driver")
    foreign = await world.client.get(POD, "other-driver", "default")
    execution = world.execute(cluster_session("other", servers=0, clients=0), timeout_s=5.0)
    await world.settle(10.0)
    assert "driver (not created)" in str(execution.failure())
    found = await world.client.get(POD, "other-driver", "default")
    assert found.metadata.uid == foreign.metadata.uid


@pytest.mark.parametrize("answered", [False, True])
async def test_failing_requests_are_repeated(world: ExecutorWorld, answered: bool) -> None:
    left = [3]

    def gate(request: object) -> ServiceUnavailable | None:
        if getattr(request, "method", "") == "GET" or left[0] == 0:
            return None
        left[0] -= 1
        return ServiceUnavailable("no")

    setattr(world, "answer_gate" if answered else "gate", gate)
    execution = world.execute(cluster_session("a"))
    await world.settle(4 * AGAIN_S)
    assert await world.names() == ["a-client", "a-server"]
    await provisioned(world)
    left[0] = 3
    await world.set_state("a-driver", ended(0))
    await world.settle(5 * AGAIN_S)
    assert (execution.is_done, execution.error) == (True, None)
    assert await is_clean(world)


@pytest.mark.parametrize("phase", ["provisioning", "running"])
async def test_cancelled_session_is_cleaned_up(world: ExecutorWorld, phase: str) -> None:
    execution = world.execute(cluster_session("a"))
    await world.settle()
    if phase == "running":
        await provisioned(world)
    assert execution.task is not None
    execution.task.cancel()
    await world.settle()
    assert execution.task.cancelled()
    assert await is_clean(world)


async def test_session_lasts_until_its_pods_are_gone(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.client.patch(POD, "a-server", "default", patch=hold)
    await world.set_state("a-driver", ended(0))
    await world.settle(30.0)
    assert not execution.is_done
    patch = {"metadata": {"finalizers": None}}
    await world.client.patch(POD, "a-server", "default", patch=patch)
    await world.settle()
    assert (execution.is_done, execution.error) == (True, None)


async def test_pods_that_stay_do_not_hold_the_machines_forever(world: ExecutorWorld) -> None:
    timeouts = SessionTimeouts(cleanup_seconds=10)
    execution = world.execute(cluster_session("a", timeouts=timeouts))
    await provisioned(world)
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    await world.client.patch(POD, "a-server", "default", patch=hold)
    await world.set_state("a-driver", ended(0))
    await world.settle(90.0)
    assert (execution.is_done, execution.error) == (True, None)
    kind, message = execution.events[-1]
    assert (kind, message) == (
        "INTERNAL_ERROR",
        "pods are not gone after 70 s: a-server; delete them",
    )


async def test_name_can_be_used_again(world: ExecutorWorld) -> None:
    for _ in range(2):
        execution = world.execute(cluster_session("a"))
        await provisioned(world)
        await world.set_state("a-driver", ended(0))
        await world.settle()
        assert (execution.is_done, execution.error) == (True, None)


async def test_watch_that_breaks_hides_no_end(world: ExecutorWorld) -> None:
    execution = world.execute(cluster_session("a"))
    await provisioned(world)
    world.gate = lambda request: ServiceUnavailable("no") if "watch" in request.query else None
    world.cut_watches()
    await world.set_state("a-driver", ended(0))
    await world.settle(5.0)
    assert not execution.is_done
    world.gate = lambda request: None
    await world.settle(30.0)
    assert (execution.is_done, execution.error) == (True, None)
