"""Metrics of machines: what is shown of a pool, its boots and its refusals, and for how long."""

from tests.support.machine_world import MachineWorld, machine_world

from grange.api.kinds import NODEPOOL
from grange.api.machine_phases import MachinePhase
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import exposition
from grange.base.rng import Stream
from grange.machines.providers.simulated.cloud_faults import CloudFault

P, F = MachinePhase, CloudFault


def value(world: MachineWorld, name: str, **labels: str) -> float | None:
    return world.registry.get_sample_value(name, labels)


def launches(world: MachineWorld, result: str) -> float | None:
    return value(world, "grange_machine_launches_total", pool="p", result=result)


async def test_metrics_show_a_boot(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool()
        await world.settle()
        await world.add_pod("a")
        await world.settle(0.5)
        assert value(world, "grange_machine_waiting_pods", pool="p") == 1
        assert value(world, "grange_machines", pool="p", phase="Created") == 1
        await world.bound("a")
        await world.settle(1.0)
        assert launches(world, "launched") == 1
        assert value(world, "grange_machine_boot_seconds_count", pool="p") == 1
        took_s = value(world, "grange_machine_boot_seconds_sum", pool="p")
        assert took_s is not None
        assert 2.0 <= took_s < 4.0  # 2 s of boot, and 1 s until its agent has joined
        assert value(world, "grange_machines", pool="p", phase="Claimed") == 1
        assert value(world, "grange_machines", pool="p", phase="Created") == 0
        assert value(world, "grange_machine_price_per_hour", pool="p") == 0.1
        assert value(world, "grange_machine_waiting_pods", pool="p") == 0
        assert value(world, "grange_machine_oldest_waiting_pod_seconds", pool="p") == 0
        passes = value(world, "grange_machine_pass_seconds_count", mode="Dedicated")
        assert passes == world.controller._passes.timer.count


async def test_metrics_show_refused_launches(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        sold_out = {("small", zone, False): 0 for zone in ("a", "b")}
        world.cloud.capacity |= sold_out
        await world.add_pool(instanceTypes=["small"])
        await world.add_pod("a")
        await world.settle(30.0)
        assert launches(world, "capacity") == 1
        for offering in sold_out:
            del world.cloud.capacity[offering]
        world.faults.add("launch", F.MISCONFIGURED, F.THROTTLE, F.FAIL)
        age_s = value(world, "grange_machine_oldest_waiting_pod_seconds", pool="p")
        assert age_s is not None
        assert age_s > 15.0
        await world.bound("a", limit_s=600.0)
        for result in ("capacity", "misconfigured", "throttled", "failed", "launched"):
            assert launches(world, result) == 1, result


async def test_metrics_show_launches_without_answer(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("launch", F.HANG_DONE)
        await world.add_pool()
        await world.add_pod("a")
        await world.bound("a", limit_s=120.0)
        assert launches(world, "launched") is None
        assert launches(world, "found") == 1


async def test_metrics_show_failed_boots(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.joins = lambda name: False
        await world.add_pool(timeouts={"bootSeconds": 10})
        await world.add_pod("a")
        await world.settle(12.0)
        name = "grange_machine_boot_failures_total"
        assert value(world, name, pool="p", reason="BootTimeout") == 1
        assert value(world, "grange_machine_boot_seconds_count", pool="p") is None
        await world.delete_pod("a")
        await world.empty()
        assert value(world, name, pool="p", reason="Terminate") is None


async def test_metrics_show_pods_of_packed_pools(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool("shared", mode="Packed")
        await world.add_unschedulable("huge", cpu="100")
        await world.settle(15.0)
        assert value(world, "grange_machine_waiting_pods", pool="*") == 1
        assert value(world, "grange_machine_waiting_pods", pool="shared") == 0
        assert value(world, "grange_machine_pass_seconds_count", mode="Packed")


async def test_metrics_show_braked_pools(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        standby = [{"instanceType": "small", "count": 3}]
        await world.add_pool(standby=standby, timeouts={"healthySeconds": 20})
        await world.count(P.AVAILABLE, 3)
        await world.settle(11.0)
        assert value(world, "grange_machine_pool_braked", pool="p") == 0
        for machine in await world.machines():
            await world.set_ready(machine.metadata.name, ready=False)
        await world.settle(45.0)
        assert value(world, "grange_machine_pool_braked", pool="p") == 1


async def test_metrics_of_deleted_pools_are_removed(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        world.faults.add("launch", F.MISCONFIGURED)
        await world.add_pool("gone")
        await world.add_pool("stays")
        await world.add_pool("shared", mode="Packed")
        await world.add_pod("a", pool="gone")
        await world.bound("a", limit_s=600.0)
        await world.settle(1.0)
        assert b'pool="gone"' in exposition(world.registry)
        await world.delete_pod("a")
        for pool in ("gone", "shared"):
            await world.client.delete(NODEPOOL, pool)
        await world.empty()
        await world.settle(20.0)
        shown = exposition(world.registry).decode()
        for name in ("gone", "shared", "*"):
            assert f'pool="{name}"' not in shown
        assert 'pool="stays"' in shown
