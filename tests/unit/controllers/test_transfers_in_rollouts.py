"""Node transfers while a rollout is under way, paused, at its canaries, rolled back, or left to others.

Both move pods, and both go through the same account: no two of their steps together may take what the
minimum needs, and what moves keeps the template that its side of the rollout has.
"""

from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import session
from tests.unit.controllers.test_replication_transfer import (
    DYNAMIC,
    label,
    moved,
    nodes,
    on,
    phase,
    records,
    transfers,
)
from tests.unit.controllers.test_rollout_service import (
    DeletionGate,
    Sick,
    Tools,
    phase_is,
    tools,
    version,
    versions,
)

from grange.api import rollouts
from grange.api.kinds import POD
from grange.api.kinds.auditevents import TRANSFER_COMPLETED, TRANSFER_ROLLED_BACK, TRANSFER_STARTED
from grange.base.rng import Stream
from grange.cli.verbs.rc import objects
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.replication.node_transfer import TransferPhase
from grange.sim.simulated_pool import SimulatedPool

__all__ = ["tools"]


async def begun(
    there: World, *names: str, replicas: int, pool: SimulatedPool | None = None, **spec: Any
) -> DeletionGate:
    """A controller that is complete at version 1, and a deletion gate that begins to watch then."""
    await nodes(there, *names)
    deletion_gate = DeletionGate(there)
    await there.add_controller(replicas=replicas, **{**DYNAMIC, "template": version(1), **spec})
    there.start(ReplicationService(there.deps, pool=pool))
    await there.until(lambda: phase_is(there, "Complete"))
    await there.settle(1.0)
    deletion_gate.reset()
    return deletion_gate


async def of(there: World, node: str) -> str:
    """The version of the pod on a node."""
    (found,) = [
        pod
        for pod in await there.pods()
        if pod.spec.node_name == node and not pod.metadata.deletion_timestamp
    ]
    return found.metadata.labels["v"]


async def complete(there: World, count: int, number: int) -> bool:
    """Whether so many pods are there, all of one version, and nothing is under way."""
    done = await phase_is(there, "Complete") and not await transfers(there)
    return done and await versions(there) == [str(number)] * count and await there.ready(count)


# --- a template that changes while a pod moves ----------------------------------------------------


async def test_template_changed_during_transfer_reaches_every_pod(
    tools: Tools,
) -> None:
    """The new pod was made from the template of before, and is replaced like any other."""
    async with world(*tools) as there:
        deletion_gate = await begun(there, "a", "b", "c", "d", replicas=3)
        await there.hold_ready("d")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        await there.until(lambda: made(there, "d"))
        await there.change(template=version(2))
        await there.settle(10.0)
        await there.let_ready("d")
        await there.until(lambda: complete(there, 3, 2))
        assert await on(there) == ["b", "c", "d"]
        assert deletion_gate.least >= 2  # a quarter of three is none; without room, one at a time


async def made(there: World, node: str) -> bool:
    return node in await on(there)


async def test_bad_template_neither_delays_nor_joins_a_transfer(tools: Tools) -> None:
    """The rollout is stuck; the pod that moves stays what it is, so its service goes on."""
    async with world(*tools, kind=Sick) as there:
        deletion_gate = await begun(
            there, "a", "b", "c", "d", "e", replicas=3, rollout={"progressDeadlineSeconds": 30}
        )
        await there.change(template=version(2, ready=False))
        await there.until(lambda: phase_is(there, "Failed"))
        before = await versions(there)
        assert "2" in before
        (left, *_) = [node for node in await on(there) if await of(there, node) == "1"]
        await label(there, left, fits=False)

        async def gone() -> bool:
            return left not in await on(there) and not await transfers(there)

        await there.until(gone, limit_s=120)
        assert await versions(there) == before
        assert deletion_gate.least >= 2


async def test_running_transfer_keeps_no_other_pod_in_place(tools: Tools) -> None:
    """The pod that comes up is one too many, and yet none is in excess."""
    async with world(*tools) as there:
        await begun(there, *"abcdef", replicas=4, rollout={"maxSurge": 2})
        for name in "ef":
            await there.hold_ready(name)
        await label(there, "a", fits=False)
        await there.until(lambda: made(there, "e"))
        await label(there, "b", fits=False)
        await there.until(lambda: made(there, "f"))
        assert [item.old for item in await transfers(there)] == ["a", "b"]


async def test_excess_pod_is_removed_not_moved_in_a_rollout(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, *"abcdef", replicas=4, rollout={"canary": 1})
        await there.change(template=version(2))
        await there.until(lambda: phase_is(there, "Waiting"))
        await there.change(replicas=3)
        await there.settle(5.0)
        assert len(await on(there)) == 3
        assert sorted(await versions(there)) == ["1", "1", "2"]
        assert await records(there, TRANSFER_STARTED) == []


async def test_pods_moved_during_a_rollback_go_back_too(tools: Tools) -> None:
    """``spec.template`` still is what was refused: nothing may be made from it."""
    async with world(*tools, kind=Sick) as there:
        deletion_gate = await begun(
            there,
            *"abcde",
            replicas=3,
            rollout={"progressDeadlineSeconds": 30, "autoRollback": True},
        )
        await there.change(template=version(2, ready=False))
        await there.until(lambda: phase_is(there, "RollingBack", "RolledBack"))
        left = (await on(there))[0]
        await label(there, left, fits=False)
        await there.until(lambda: phase_is(there, "RolledBack"))
        await there.settle(60.0)
        assert await phase_is(there, "RolledBack")
        assert await versions(there) == ["1"] * 3
        assert left not in await on(there)
        last = (await on(there))[0]
        await label(there, last, fits=False)
        await there.settle(30.0)
        assert last not in await on(there)
        assert await versions(there) == ["1"] * 3
        assert deletion_gate.least >= 2


async def test_undo_during_transfer_settles_at_the_old_template(
    tools: Tools,
) -> None:
    async with world(*tools) as there:
        deletion_gate = await begun(there, *"abcde", replicas=3)
        await there.change(template=version(2))
        await there.until(lambda: phase_is(there, "Complete"))
        left = (await on(there))[0]
        for node in sorted({*"abcde"} - {*await on(there)}):
            await there.hold_ready(node)
        await label(there, left, fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        seen = await there.controller()
        assert seen.status.rollout is not None
        revision = rollouts.revision_to_undo(seen.status.history, seen.status.rollout.spec_hash, 0)
        await objects.set_template(session(there), seen, revision.template)
        await there.settle(5.0)
        for node in "abcde":
            await there.let_ready(node)
        await there.until(lambda: complete(there, 3, 1))
        assert left not in await on(there)
        assert deletion_gate.least >= 2


# --- paused, and at the canaries --------------------------------------------------------------------


@pytest.mark.parametrize("held", [{"paused": True}, {"canary": 1}])
async def test_pods_that_move_while_a_rollout_waits_keep_their_version(
    held: dict[str, Any], tools: Tools
) -> None:
    """No more canaries than were asked for, and no fewer, whichever pods move."""
    async with world(*tools) as there:
        deletion_gate = await begun(there, *"abcdef", replicas=3, rollout={"canary": 1})
        await there.change(template=version(2))
        await there.until(lambda: phase_is(there, "Waiting"))
        if "paused" in held:
            await there.change(rollout={"canary": None, "paused": True})
            await there.until(lambda: phase_is(there, "Paused"))
        for wanted in ("1", "2"):
            (left, *_) = [node for node in await on(there) if await of(there, node) == wanted]
            await label(there, left, fits=False)

            async def gone(left: str = left) -> bool:
                return left not in await on(there) and not await transfers(there)

            await there.until(gone)
            await there.settle(5.0)
            assert await versions(there) == ["1", "1", "2"]
        assert len(await records(there, TRANSFER_COMPLETED)) == 2
        await there.change(rollout={"canary": None, "paused": False})
        await there.until(lambda: complete(there, 3, 2))
        assert deletion_gate.least >= 2


async def test_a_paused_controller_moves_pods_and_keeps_their_template(tools: Tools) -> None:
    """Pausing stops no transfer; it does stop the template that came with it."""
    async with world(*tools) as there:
        await begun(there, "a", "b", "c", replicas=2)
        await there.change(paused=True, template=version(2))
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b", "c"))
        assert await versions(there) == ["1", "1"]
        await there.change(paused=False)
        await there.until(lambda: complete(there, 2, 2))


# --- OnDelete -----------------------------------------------------------------------------------


async def test_on_delete_moved_pod_is_made_from_present_template(tools: Tools) -> None:
    """Moving it makes it again, as deleting it would; the others stay as they are."""
    async with world(*tools) as there:
        deletion_gate = await begun(there, "a", "b", "c", replicas=2, rollout={"type": "OnDelete"})
        await there.change(template=version(2))
        await there.settle(10.0)
        assert await versions(there) == ["1", "1"]
        await label(there, "a", fits=False)
        await there.until(lambda: moved(there, "b", "c"))
        assert (await of(there, "b"), await of(there, "c")) == ("1", "2")
        assert deletion_gate.least >= 2
        await there.client.delete(POD, "web-b", "default")
        await there.until(lambda: complete(there, 2, 2))


async def test_on_delete_a_bad_template_keeps_pods_where_they_are(tools: Tools) -> None:
    """The new pod comes first, so one that never gets well costs nothing but the attempt."""
    async with world(*tools, kind=Sick) as there:
        rollout = {"type": "OnDelete", "progressDeadlineSeconds": 30}
        deletion_gate = await begun(there, "a", "b", "c", replicas=2, rollout=rollout)
        await there.change(template=version(2, ready=False))
        await label(there, "a", fits=False)
        await there.settle(35.0)
        await there.until(lambda: moved(there, "a", "b"))
        assert len(await records(there, TRANSFER_ROLLED_BACK)) == 1
        assert await versions(there) == ["1", "1"]
        assert deletion_gate.least >= 2


# --- machines of the pool --------------------------------------------------------------------------


async def test_a_rollout_in_the_middle_of_a_transfer_loses_no_machine(tools: Tools) -> None:
    async with world(*tools) as there:
        pool = SimulatedPool(["b"])
        await begun(there, "a", "b", replicas=1, pool=pool)
        await there.hold_ready("b")
        await label(there, "a", fits=False)
        await there.until(lambda: phase(there, TransferPhase.STARTING))
        await there.change(template=version(2))
        await there.settle(5.0)
        await there.let_ready("b")
        await there.until(lambda: complete(there, 1, 2))
        assert await on(there) == ["b"]
        uid = (await there.controller()).metadata.uid
        assert await pool.holders() == {"b": uid}


# --- anything, in any order -----------------------------------------------------------------------


@pytest.mark.parametrize("placement", ["OnePerNode", "Packed"])
@pytest.mark.parametrize("number", range(5))
async def test_transfers_in_rollouts_keep_the_minimum_and_settle(
    number: int, placement: str, tools: Tools
) -> None:
    """Templates, pauses, canaries, policies and nodes that come and go, in any order."""
    draw = Stream(number).fork(placement)
    names = list("abcdefgh")
    async with world(*tools, kind=Sick) as there:
        replicas = draw.integer(2, 4)
        spec: dict[str, Any] = {
            "placement": placement,
            "rollout": {"maxUnavailable": 1, "maxSurge": 1},
        }
        deletion_gate = await begun(there, *names, replicas=replicas, **spec)
        latest = 1
        for _ in range(14):
            match draw.choice(
                ["template", "sick", "hold", "canary", "type", "node", "node", "node"]
            ):
                case "template" | "sick" as what:
                    latest += 1
                    await there.change(template=version(latest, ready=what != "sick"))
                case "hold":
                    await there.change(rollout={"paused": draw.choice([True, False])})
                case "canary":
                    await there.change(rollout={"canary": draw.choice([None, 1])})
                case "type":
                    await there.change(rollout={"type": draw.choice(["RollingUpdate", "OnDelete"])})
                case _:
                    name = draw.choice(names[:4])
                    await label(there, name, fits=draw.choice([True, False]))
            await there.settle(draw.uniform(0.0, 12.0))
            assert deletion_gate.least >= replicas - 1
        for name in names:
            await label(there, name, fits=True)
        latest += 1
        await there.change(
            template=version(latest),
            rollout={"paused": False, "canary": None, "type": "RollingUpdate"},
        )
        await there.until(lambda: complete(there, replicas, latest), limit_s=900)
        assert deletion_gate.least >= replicas - 1
        assert deletion_gate.most <= replicas + 3  # a surge, and transfers of which each has one
