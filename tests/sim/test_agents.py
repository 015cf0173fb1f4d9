"""Agents under faults: what is bound to a node runs there, once, and nothing else does."""

from grange.api.kinds import NODE, POD
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim import builders, simulated_nodes
from grange.sim.chaos import Chaos
from grange.sim.faults import NetworkFaults
from grange.sim.pytest_plugin import EPOCH
from grange.sim.skewed_clock import SkewedClock
from grange.sim.world import World, simulated

BAD_NETWORK = NetworkFaults(
    latency_s=0.05, lose_request=0.03, lose_answer=0.03, cut_stream=0.05, repeat_chunk=0.03
)


async def bind(world: World, name: str, node: str, program: str, *, cpu: str = "0") -> None:
    document = builders.pod_document(name, requests={"cpu": cpu}, nodeName=node)
    document["spec"]["containers"][0]["command"] = [program]
    await world.client.create(POD, document, "default")


async def test_pod_that_is_bound_runs_and_ends(log: Logger) -> None:
    clock = LoopClock(EPOCH)
    async with simulated(clock=clock, rng=Stream(1), log=log) as world:
        machine = simulated_nodes.add_node(world, "n1")
        await simulated_nodes.registered(world, 1, limit_s=30)
        await bind(world, "web", "n1", "serve")

        async def runs() -> bool:
            return (await world.client.get(POD, "web", "default")).status.phase == "Running"

        async def gone() -> bool:
            return not (await world.client.list(POD)).items

        await world.until(runs, limit_s=30)
        assert len(simulated_nodes.running(machine)) == 1
        assert await world.fixed_point(120) == []
        await world.client.delete(POD, "web", "default")
        await world.until(gone, limit_s=60)
        assert machine.pods == {}


async def test_pod_that_does_not_fit_and_is_deleted_already_goes_away(log: Logger) -> None:
    """The agent refuses it, and must confirm its deletion all the same."""
    clock = LoopClock(EPOCH)
    async with simulated(clock=clock, rng=Stream(1), log=log) as world:
        simulated_nodes.add_node(world, "n1")
        await simulated_nodes.registered(world, 1, limit_s=30)
        await bind(world, "big", "n1", "serve", cpu="2")
        await clock.sleep(5)
        world.crash("agent-n1")
        (node,) = (await world.client.list(NODE)).items
        allocatable = dict(node.status.allocatable, cpu="8")  # as if it had been larger
        patch = {"status": {"allocatable": allocatable}}
        await world.client.patch(NODE, "n1", patch=patch, subresource="status")
        await bind(world, "other", "n1", "serve", cpu="3")
        await world.client.delete(POD, "other", "default")
        world.restart("agent-n1")

        async def only_big() -> bool:
            return [pod.metadata.name for pod in (await world.client.list(POD)).items] == ["big"]

        await world.until(only_big, limit_s=60)


async def test_what_is_bound_runs_once_whatever_happens(seed: int, log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        machines = {}
        for number in range(3):
            skewed = SkewedClock(clock, offset_s=rng.uniform(-60, 60), drift=1e-3 * (number - 1))
            machines[f"n{number}"] = simulated_nodes.add_node(world, f"n{number}", clock=skewed)
        await simulated_nodes.registered(world, 3, limit_s=120)
        for number in range(9):
            program = ("serve", "stubborn", "crash")[number // 3]
            await bind(world, f"p{number}", f"n{number % 3}", program)
        chaos = Chaos(world, machines, rng=rng.fork("chaos"))
        await chaos.run(180)
        await chaos.restore()

        async def settled() -> bool:
            try:
                pods = (await world.client.list(POD)).items
            except ApiError:
                return False
            steady = [p for p in pods if p.spec.containers[0].command[0] != "crash"]
            ready = all(
                any(c.type == "Ready" and c.status == "True" for c in p.status.conditions)
                for p in steady
            )
            there = {uid for machine in machines.values() for uid in machine.pods}
            return (
                ready
                and there == {p.metadata.uid for p in pods}
                and not any(p.metadata.deletion_timestamp for p in pods)
            )

        await world.until(settled, limit_s=600)
        await clock.sleep(60)  # news that is on its way may unsettle it once more
        await world.until(settled, limit_s=600)
        for name, machine in machines.items():
            for uid, pod in machine.pods.items():
                assert pod.setup.node_name == name
                assert sum(live.run.running for live in pod.runs.values()) <= 1, uid
