"""Decisions about shared machines carried out against a real API server, one look at a time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from tests.unit.machines.disruption import pool
from tests.unit.machines.packing import LARGE, MIDDLE, SMALL

from grange.api import timestamps
from grange.api.kinds import MACHINE, NODE, POD, PODDISRUPTIONBUDGET
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePool
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.catalogue import InstanceType
from grange.machines.controller.disruption_pass import DisruptionPass, DisruptionState
from grange.machines.disruption.disruption_plan import DisruptionPlan
from grange.machines.disruption.disruption_progress import (
    DISRUPTION_ANNOTATION,
    is_disrupted,
    is_tainted,
    record_of,
)
from grange.machines.disruption.machine_disruptor import MachineDisruptor
from grange.machines.disruption.node_drain import DISRUPTED_TAINT
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool, option_labels
from grange.machines.scaling_plan import MachineStart
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, opened

TYPES = (SMALL, MIDDLE, LARGE)
TAINT = msgspec.to_builtins(DISRUPTED_TAINT)


class Cluster(ApiFixture):
    """Machines of one packed pool, and a look at them every 10 s of virtual time."""

    def __init__(self, clock: Clock, rng: Stream, log: Logger, shared: NodePool) -> None:
        super().__init__(clock, rng, log)
        self.pool = shared
        self.memory = CapacityMemory()
        self.ordered: list[MachineStart] = []
        self.pass_ = DisruptionPass(self.new_client(), clock, self.order)

    async def order(self, of: NodePool, start: MachineStart) -> None:
        """Replacements boot until ``boot`` makes them available."""
        self.ordered.append(start)
        await self.record(start.name, start.spec.instance_type)

    async def record(self, name: str, kind: str, **status: Any) -> Machine:
        spec: Document = {"pool": "shared", "provider": "simulated", "instanceType": kind}
        await self.client.create(MACHINE, {"metadata": {"name": name}, "spec": spec})
        whole = {"phase": "Creating", **status}
        return await self.client.patch(MACHINE, name, patch={"status": whole}, subresource="status")

    async def boot(self, name: str, kind: InstanceType) -> None:
        offering = next(each for each in kind.offerings if not each.spot)
        for phase in ("Created", "Available"):
            status = {
                "phase": phase,
                "instanceType": kind.name,
                "zone": offering.zone,
                "pricePerHour": f"{offering.price}",
                "availableTime": timestamps.rfc3339(self.clock.now()),
            }
            await self.client.patch(MACHINE, name, patch={"status": status}, subresource="status")
        labels = option_labels(self.pool, kind, offering)
        capacity = {**kind.capacity, "pods": "110"}
        await builders.create_node(self.client, name, labels=labels, capacity=capacity)

    async def machine(self, name: str, kind: InstanceType = SMALL) -> None:
        await self.record(name, kind.name)
        await self.boot(name, kind)

    async def pod(self, name: str, node: str, cpu: str, **labels: str) -> None:
        owner = {"apiVersion": "v1", "kind": "ReplicationController", "name": "rc", "uid": "uid-rc"}
        document = builders.pod_document(name, labels=labels, requests={"cpu": cpu}, nodeName=node)
        document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await self.client.create(POD, document, "default")
        status = {"phase": "Running"}
        await self.client.patch(
            POD, name, "default", patch={"status": status}, subresource="status"
        )

    async def look(self, after_s: float = 10.0) -> None:
        """One look, some time later."""
        await self.clock.sleep(after_s)
        machines = (await self.client.list(MACHINE)).items
        state = DisruptionState(
            [PackedPool(self.pool, TYPES, self.memory)],
            ClusterState(nodes=(await self.client.list(NODE)).items),
            machines,
            (await self.client.list(POD)).items,
            (await self.client.list(PODDISRUPTIONBUDGET)).items,
        )
        await self.pass_.run(state)

    async def looks(self, number: int) -> None:
        for _ in range(number):
            await self.look()

    async def get(self, name: str) -> Machine:
        return await self.client.get(MACHINE, name)

    async def tainted(self, name: str) -> bool:
        return is_tainted(await self.client.get(NODE, name))

    async def pod_ends(self, name: str) -> None:
        """What an agent does to a pod that is deleted."""
        await self.client.delete(POD, name, "default", grace_period_s=0)

    async def is_deleted(self, name: str) -> bool:
        try:
            found = await self.client.get(POD, name, "default")
        except NotFound:
            return True
        return found.metadata.deletion_timestamp is not None


@asynccontextmanager
async def cluster(
    clock: Clock, rng: Stream, log: Logger, **disruption: Any
) -> AsyncIterator[Cluster]:
    async with opened(Cluster(clock, rng, log, pool(**disruption))) as made:
        yield made


async def test_empty_machine_is_marked_then_ends(clock: Clock, rng: Stream, log: Logger) -> None:
    async with cluster(clock, rng, log) as world:
        await world.machine("a")
        await world.look(31.0)
        record = record_of(await world.get("a"))
        assert record is not None
        assert record.reason == "Empty"
        await world.look()
        assert await world.tainted("a")
        assert not (await world.get("a")).spec.terminate
        await world.looks(4)
        assert (await world.get("a")).spec.terminate


async def test_decision_falls_when_a_pod_comes(clock: Clock, rng: Stream, log: Logger) -> None:
    async with cluster(clock, rng, log) as world:
        await world.machine("a")
        await world.look(31.0)
        await world.look()
        await world.pod("p", "a", "2")
        await world.looks(2)
        assert record_of(await world.get("a")) is None
        await world.look()
        assert not await world.tainted("a")
        assert not (await world.get("a")).spec.terminate


async def test_replacement_is_there_before_pods_go(clock: Clock, rng: Stream, log: Logger) -> None:
    async with cluster(clock, rng, log) as world:
        await world.machine("a", LARGE)
        await world.pod("p", "a", "4")
        await world.look(31.0)
        await world.looks(3)
        (start,) = world.ordered
        assert start.spec.instance_type == "middle"
        await world.looks(3)
        assert not await world.is_deleted("p")
        await world.boot(start.name, MIDDLE)
        await world.looks(2)
        assert await world.is_deleted("p")
        assert not (await world.get("a")).spec.terminate
        await world.pod_ends("p")
        await world.pod("q", start.name, "4")
        await world.look()
        assert (await world.get("a")).spec.terminate
        assert record_of(await world.get(start.name)) is None


async def test_failed_replacement_undoes_the_decision(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with cluster(clock, rng, log) as world:
        await world.machine("a", LARGE)
        await world.pod("p", "a", "4")
        await world.look(31.0)
        await world.looks(3)
        status = {"phase": "Terminated"}
        name = world.ordered[0].name
        await world.client.patch(MACHINE, name, patch={"status": status}, subresource="status")
        await world.look()
        assert record_of(await world.get("a")) is None
        assert not await world.is_deleted("p")


async def test_pod_budget_holds_a_drain_up(clock: Clock, rng: Stream, log: Logger) -> None:
    async with cluster(clock, rng, log) as world:
        await world.machine("a", LARGE)
        await world.machine("b", MIDDLE)
        await world.pod("q", "b", "1", app="y")
        await world.pod("p", "a", "4", app="x")
        await world.look(31.0)
        await world.looks(2)
        budget: Document = {
            "metadata": {"name": "pdb", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
        }
        assert record_of(await world.get("a")) is not None
        await world.looks(1)  # it was decided again
        await world.client.create(PODDISRUPTIONBUDGET, budget, "default")
        await world.looks(4)
        assert not await world.is_deleted("p")
        assert not (await world.get("a")).spec.terminate
        await world.machine("c")
        await world.look(31.0)
        other = record_of(await world.get("c"))  # a drain that is held up holds up no other
        assert other is not None
        assert other is not None
        assert other.reason == "Empty"
        # The place that its pod will have is not given up meanwhile.
        assert record_of(await world.get("b")) is None
        await world.client.delete(PODDISRUPTIONBUDGET, "pdb", "default")
        await world.look()
        assert await world.is_deleted("p")


async def test_restart_goes_on_with_a_decision(clock: Clock, rng: Stream, log: Logger) -> None:
    """A new controller continues; no step is remembered outside of the objects."""
    async with cluster(clock, rng, log) as world:
        await world.machine("a")
        for _ in range(6):
            world.pass_ = DisruptionPass(world.new_client(), clock, world.order)
            await world.look(16.0)
        assert (await world.get("a")).spec.terminate


async def test_lost_mark_frees_the_node(clock: Clock, rng: Stream, log: Logger) -> None:
    async with cluster(clock, rng, log) as world:
        await world.machine("a", SMALL)
        await world.pod("p", "a", "2")
        node = await world.client.get(NODE, "a")
        taint = {"key": "grange.dev/disrupted", "effect": "NoSchedule"}
        taints = [*msgspec.to_builtins(node.spec.taints), taint]
        await world.client.patch(NODE, "a", patch={"spec": {"taints": taints}})
        await world.look()
        assert not await world.tainted("a")


async def test_unchanged_cluster_is_not_packed_again(
    clock: Clock, rng: Stream, log: Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time alone is no reason for another decision before a minute is over; a new pod is."""
    looks: list[float] = []
    decide = MachineDisruptor.decide

    def counted(self: MachineDisruptor, *args: Any, **options: Any) -> DisruptionPlan:
        looks.append(clock.monotonic())
        return decide(self, *args, **options)

    monkeypatch.setattr(MachineDisruptor, "decide", counted)
    async with cluster(clock, rng, log) as world:
        await world.machine("a", SMALL)
        await world.pod("p", "a", "1")
        await world.look(31.0)
        await world.looks(5)
        assert len(looks) == 1
        await world.look()
        assert len(looks) == 2
        await world.pod("q", "a", "1")
        await world.look()
        assert len(looks) == 3


async def test_machine_rests_after_its_last_pod_has_gone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """However long that pod ran."""
    async with cluster(clock, rng, log, consolidate_after_seconds=120) as world:
        await world.machine("a")
        await world.pod("p", "a", "1")
        await world.looks(40)
        await world.client.delete(POD, "p", "default", grace_period_s=0)
        await world.looks(12)
        assert record_of(await world.get("a")) is None
        await world.looks(6)
        assert (await world.get("a")).spec.terminate


async def test_machine_rests_after_one_of_its_pods_has_gone(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with cluster(clock, rng, log, consolidate_after_seconds=120) as world:
        await world.machine("a", LARGE)
        await world.pod("big", "a", "20")
        await world.pod("p", "a", "1")
        await world.looks(40)
        await world.client.delete(POD, "big", "default", grace_period_s=0)
        await world.looks(12)
        assert record_of(await world.get("a")) is None
        await world.looks(6)
        assert [start.spec.instance_type for start in world.ordered] == [SMALL.name]


@pytest.mark.parametrize(
    "text",
    [
        "soon",
        '{"reason": "Drifted", "message": "", "decided": "soon", "together": ["a"]}',
        '{"reason": "Drifted", "message": "", "decided": "2026-01-01T00:00:00Z", "together": ["a"], "drainStarted": "1"}',
    ],
)
async def test_malformed_disruption_is_taken_off(
    text: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    """As a user may leave it; it holds up no other machine, and its own is of use again."""
    async with cluster(clock, rng, log) as world:
        for name in ("a", "b"):
            await world.machine(name)
        await world.pod("p", "a", "1")
        noted = {"metadata": {"annotations": {DISRUPTION_ANNOTATION: text}}}
        await world.client.patch(MACHINE, "a", patch=noted)
        await world.client.patch(NODE, "a", patch={"spec": {"taints": [TAINT]}})
        await world.looks(12)
        assert not is_disrupted(await world.get("a"))
        assert not await world.tainted("a")
        assert (await world.get("b")).spec.terminate
