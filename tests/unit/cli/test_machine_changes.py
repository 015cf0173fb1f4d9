"""``grange machines cordon``, ``drain`` and ``return`` over a running node controller."""

import click
import pytest
from tests.support.machine_world import MachineWorld, machine_world
from tests.unit.cli import sessions

from grange.api.kinds import POD, PODDISRUPTIONBUDGET
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import machine_drain
from grange.cli.session import ApiSession
from grange.cli.verbs.machines import change

P = MachinePhase


def session(world: MachineWorld) -> ApiSession:
    return sessions.opened(world.client, clock=world.clock, rng=world.rng, log=world.log)


async def claimed(world: MachineWorld) -> str:
    """The machine of pod ``a`` of a dedicated pool."""
    await world.add_pool()
    await world.add_pod("a")
    await world.bound("a")
    (machine,) = await world.machines(P.CLAIMED)
    return machine.metadata.name


async def test_cordoned_machine_gets_no_pod(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        await world.add_pool(standby=[{"instanceType": "small", "count": 1}])
        await world.count(P.AVAILABLE, 1)
        (first,) = await world.machines(P.AVAILABLE)
        name = first.metadata.name
        assert await change.set_unschedulable(session(world), name, value=True)
        assert not await change.set_unschedulable(session(world), name, value=True)
        await world.count(P.AVAILABLE, 2)  # standby is filled without it
        await world.add_pod("a")
        await world.bound("a")
        assert (await world.pod("a")).spec.node_name != name
        await world.settle(60.0)
        assert (await world.machine(name)).phase is P.AVAILABLE  # kept, however long it is idle
        assert await change.set_unschedulable(session(world), name, value=False)
        await world.count(P.AVAILABLE, 1)  # standby again, and one of the two is surplus


async def test_cordon_reaches_a_node_that_the_cluster_named(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        world.cloud_names = True
        name = await claimed(world)
        assert await change.set_unschedulable(session(world), name, value=True)
        assert (await world.node(world.node_name(name))).spec.unschedulable


async def test_machine_without_node_is_not_cordoned(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log, runs=False) as world:
        await world.add_machine("m-1")
        with pytest.raises(
            click.ClickException, match=r"machine\S*/m-1: it is Creating and has no"
        ):
            await change.set_unschedulable(session(world), "m-1", value=True)
        with pytest.raises(NotFound, match="grange machines list lists the machines"):
            await change.set_unschedulable(session(world), "m-2", value=True)


async def test_return_deletes_the_pod_and_frees(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await claimed(world)
        found = await change.machine_of(session(world), name)
        assert change.claiming_pod(found) == "default/a"
        assert await change.return_one(session(world), found) == (
            "is given back: pod default/a deleted"
        )

        async def given_back() -> bool:
            await world.delete_pod("a")  # its agent has ended it
            return not await world.machines(P.CLAIMED)

        try:
            await world.until(given_back, limit_s=10.0)
        except NotFound:
            await world.count(P.CLAIMED, 0)
        assert await change.return_one(session(world), found) == (
            "is given back: pod default/a is gone"
        )


async def test_only_claimed_machines_are_given_back(clock: Clock, rng: Stream, log: Logger) -> None:
    async with machine_world(clock, rng, log, runs=False) as world:
        found = await world.add_machine("m-1", "Available")
        with pytest.raises(click.ClickException, match="it is Available; only a claimed machine"):
            change.claiming_pod(found)
        held = await world.add_machine("m-2", "Claimed", holder="TestSession/default/s")
        with pytest.raises(click.ClickException, match="TestSession/default/s has it"):
            change.claiming_pod(held)


def pod(name: str, owner: str = "", **annotations: str) -> Document:
    owners = [{"kind": owner, "name": "o", "controller": True}] if owner else []
    meta: Document = {"name": name, "namespace": "default", "ownerReferences": owners}
    return {"metadata": {**meta, "annotations": annotations}}


def test_question_names_pods_that_nothing_replaces() -> None:
    pods = [pod("a", "Job"), pod("c"), pod("b")]
    expected = "Evict 3 pods from m-1? Nothing replaces default/b, default/c."
    assert machine_drain.question("m-1", pods) == expected
    assert machine_drain.question("m-1", pods[:1]) == "Evict 1 pod from m-1?"


async def test_drain_evicts_all_but_pods_of_every_node(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await claimed(world)
        await world.add_daemon("d", name)
        assert [item["metadata"]["name"] for item in await movable(world, name)] == ["a"]
        drained = world.nursery.start(
            machine_drain.drained(session(world), await world.machine(name), 30.0)
        )
        await world.settle(2.0)
        assert (await world.pod("a")).metadata.deletion_timestamp
        await world.delete_pod("a")  # its agent has ended it
        await world.settle(3.0)
        assert drained.done()
        assert drained.result()


async def movable(world: MachineWorld, name: str) -> list[Document]:
    return await machine_drain.movable_pods(session(world), name)


async def test_drain_that_budgets_refuse_times_out(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with machine_world(clock, rng, log) as world:
        name = await claimed(world)
        budget = {
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {}},
        }
        await world.client.create(PODDISRUPTIONBUDGET, budget)
        running = {
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        }
        await world.client.patch(POD, "a", "default", patch=running, subresource="status")
        assert not await machine_drain.drained(session(world), await world.machine(name), 5.0)
        assert (await world.pod("a")).metadata.deletion_timestamp is None
        assert f"timed out after 5s: machine/{name}: 1 pod left: " in capsys.readouterr().err
