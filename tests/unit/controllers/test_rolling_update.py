"""Rollouts between two controllers. Numbers U… are those of the checks in the specification.

P2's rollout locks both controllers; here a second rollout of either is refused.
"""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_rollout_service import DeletionGate, Sick, Tools, tools, version

from grange.api.http import Request
from grange.api.kinds import AUDITRECORD, NODE, POD, REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.kinds.rollingupdate import Counts, RollingUpdate
from grange.api.status import InternalError, NotFound
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.rollingupdate import logic
from grange.controllers.rollingupdate.controller import RollingUpdateService
from grange.controllers.rollingupdate.logic import PodCounts

__all__ = ["tools"]

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def begun(there: World, old: int, *, nodes: int = 3, new: int = 0, **more: Any) -> None:
    """Controllers ``one`` and ``two``, the first with all its pods."""
    for number in range(nodes):
        await there.add_node(f"n{number}")
    await there.add_controller("one", replicas=old, placement="Packed", template=version(1))
    template = version(2, ready=more.pop("healthy", True))
    await there.add_controller("two", replicas=new, placement="Packed", template=template)
    there.start(ReplicationService(there.deps))
    if more.pop("service", True):
        there.start(RollingUpdateService(there.deps))
    await there.until(lambda: there.ready(old, "one"))


async def roll(there: World, name: str = "roll", **spec: Any) -> None:
    wanted = {"old": "one", "new": "two", "desired": 3, "minimum": 2, **spec}
    document = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }
    await there.client.create(ROLLINGUPDATE, document, "default")


async def update(there: World, name: str = "roll") -> RollingUpdate:
    return await there.client.get(ROLLINGUPDATE, name, "default")


async def phase(there: World, *phases: str, name: str = "roll") -> bool:
    return (await update(there, name)).status.phase in phases


async def change(there: World, **spec: Any) -> None:
    await there.client.patch(ROLLINGUPDATE, "roll", "default", patch={"spec": spec})


async def counts(there: World) -> tuple[int, int]:
    one, two = await there.controller("one"), await there.controller("two")
    return one.spec.replicas, two.spec.replicas


# --- U6: who counts as what -------------------------------------------------------------------


def test_check_u6_counts_of_a_controller() -> None:
    owner = builders.controller(replicas=3)
    other = builders.controller(replicas=3, template=version(9))
    up = [builders.pod(owner, node=node) for node in "abc"]
    sick = [builders.pod(owner, node=node, ready=False) for node in "abc"]
    outdated = builders.pod(other, node="c")

    def seen(*pods: Any, down: frozenset[str] = frozenset()) -> tuple[int, ...]:
        found = logic.count_pods(owner, pods, down, NOW)
        return (found.current, found.real, found.healthy, found.unhealthy, found.unknown)

    assert logic.count_pods(owner, up, frozenset(), NOW) == PodCounts(3, 3, 3, 3, 0, 0)
    assert seen(*sick) == (3, 3, 0, 3, 0)
    assert seen(*up, down=frozenset("ab")) == (3, 3, 1, 0, 2)  # stale news is no news
    assert seen(*sick, down=frozenset("ab")) == (3, 3, 0, 1, 2)
    assert seen(*up[:2], outdated) == (3, 2, 2, 0, 0)  # current, and no more than that
    assert seen(up[0]) == (1, 1, 1, 0, 2)  # wanted and not there


async def test_replicas_leave_a_controller_whose_own_rollout_went_back(tools: Tools) -> None:
    """Its pods are of the last good template: they serve, and a way out must be open."""
    async with world(*tools, kind=Sick) as there:
        await begun(there, 3)
        cautious = {"autoRollback": True, "progressDeadlineSeconds": 10}
        await there.change("one", template=version(9, ready=False), rollout=cautious)
        await there.until(lambda: within(there, "one", "RolledBack"))
        await there.until(lambda: there.ready(3, "one"))
        await roll(there)
        await there.until(lambda: phase(there, "Complete"))


async def within(there: World, name: str, wanted: str) -> bool:
    state = (await there.controller(name)).status.rollout
    return state is not None and state.phase == wanted


# --- the whole way ----------------------------------------------------------------------------


async def test_check_u8_three_replicas_move_with_two_available(tools: Tools) -> None:
    async with world(*tools) as there:
        deletion_gate = DeletionGate(there)
        await begun(there, 3)
        deletion_gate.reset()
        seen: list[tuple[int, int]] = []
        await roll(there, leaveOld=True)
        while not await phase(there, "Complete"):
            here = await counts(there)
            if not seen or seen[-1] != here:
                seen.append(here)
            await there.settle(0.05)
        seen.append(await counts(there))
        assert deletion_gate.least >= 2
        assert {pair for pair in seen if sum(pair) == 3} == {(3, 0), (2, 1), (1, 2), (0, 3)}
        assert max(map(sum, seen)) <= 4  # for a moment one too many, never one too few
        assert min(map(sum, seen)) >= 3
        await there.until(lambda: there.ready(3, "two"))
        assert (await update(there)).status.replicas == Counts(0, 3)
        assert [event.count for event in await there.events("RolloutComplete")] == [1]


async def test_w14_stalled_watch_takes_no_replica_for_dead_pods(tools: Tools) -> None:
    """What was available when it was last heard of is asked about before the other side shrinks."""
    async with world(*tools) as there:
        await begun(there, 3)
        await there.change("two", rollout={"minReadySeconds": 15})
        await roll(there)
        await there.until(lambda: there.ready(1, "two"))
        before = await counts(there)
        there.held_watches.add(POD.path())
        for pod in await there.pods():
            if pod.metadata.name.startswith("two"):
                await there.set_phase(pod, "Failed")
        await there.settle(40.0)
        assert await counts(there) == before == (2, 1)
        there.held_watches.clear()
        await there.until(lambda: phase(there, "Complete"), limit_s=300.0)


@pytest.mark.parametrize("cordoned", [False, True])
async def test_pods_taken_for_unused_are_unused(tools: Tools, *, cordoned: bool) -> None:
    """And it is taken once, also while it is still there.

    Pods on nodes that are not eligible go first elsewhere; here the minimum counts on their staying.
    """
    async with world(*tools, kind=Sick) as there:
        deletion_gate = DeletionGate(there)
        await begun(there, 8, healthy=False)
        await there.client.patch(NODE, "n0", patch={"spec": {"unschedulable": cordoned}})
        sick = next(pod for pod in await there.pods() if pod.spec.node_name == "n1")
        bad = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        await there.client.patch(
            POD,
            sick.metadata.name,
            "default",
            patch={"status": {"conditions": [bad]}},
            subresource="status",
        )
        await there.settle(1.0)
        deletion_gate.reset()
        await roll(there, desired=8, minimum=7)
        await there.settle(20.0)
        assert deletion_gate.least >= 7
        assert await counts(there) == (7, 1)
        assert sick.metadata.name not in await there.names()
        if cordoned:
            await there.change("one", replicas=6)
            await there.settle(5.0)
            left = [pod.spec.node_name for pod in await there.pods()]
            assert left.count("n0") == 2, "scaling it has the usual order"


async def test_check_u10_rollout_from_nothing_leaves_old_at_zero(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 0)
        await roll(there, leaveOld=True)
        await there.until(lambda: phase(there, "Complete"))
        assert await counts(there) == (0, 3)


async def test_a_rollout_without_an_old_controller_grows_the_new_one(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 0)
        await roll(there, old=None)
        await there.until(lambda: phase(there, "Complete"))
        assert await counts(there) == (0, 3)


async def test_check_u11_unhealthy_rollout_stalls_fails_and_is_undone(
    tools: Tools,
) -> None:
    async with world(*tools, kind=Sick) as there:
        deletion_gate = DeletionGate(there)
        await begun(there, 3, healthy=False)
        deletion_gate.reset()
        await roll(there, progressDeadlineSeconds=30)
        await there.until(lambda: phase(there, "Failed"))
        assert await counts(there) == (2, 1)
        await change(there, undo=True)
        await there.until(lambda: phase(there, "RolledBack"))
        assert await counts(there) == (3, 0)
        assert deletion_gate.least >= 2


async def test_w19_a_rollout_that_gets_no_further_goes_back_by_policy(tools: Tools) -> None:
    async with world(*tools, kind=Sick) as there:
        await begun(there, 3, healthy=False)
        await roll(there, progressDeadlineSeconds=30, autoRollback=True)
        await there.until(lambda: phase(there, "RolledBack"))
        assert await counts(there) == (3, 0)
        await there.until(lambda: there.ready(3, "one"))


async def test_rollback_by_policy_happens_after_a_pause_as_well(tools: Tools) -> None:
    """Else it would go on with what has just failed, until the deadline passes once more."""
    async with world(*tools, kind=Sick) as there:
        await begun(there, 3, healthy=False)
        await roll(there, progressDeadlineSeconds=30, autoRollback=True)
        await there.settle(10.0)
        assert await counts(there) == (2, 1)

        def gate(request: Request) -> InternalError | None:
            path = REPLICATIONCONTROLLER.path("default", "two")
            return (
                InternalError("no") if (request.method, request.path) == ("PATCH", path) else None
            )

        there.gate = gate
        await there.until(lambda: phase(there, "RollingBack"))
        await change(there, paused=True)
        await there.until(lambda: phase(there, "Paused"))
        there.gate = lambda request: None
        await change(there, paused=False)
        await there.until(lambda: phase(there, "RolledBack"), limit_s=25.0)
        assert await counts(there) == (3, 0)


async def test_what_becomes_of_a_rollout_is_reported_and_counted(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, paused=True, leaveOld=True)
        await there.until(lambda: phase(there, "Paused"))
        await change(there, paused=False)
        await there.until(lambda: phase(there, "Complete"))
        await there.settle(5.0)  # events come later
        numbers = there.deps.metrics
        for event in ("RolloutStarted", "RolloutPaused", "RolloutResumed", "RolloutComplete"):
            sent = [item.involved_object.kind for item in await there.events(event)]
            assert "RollingUpdate" in sent
            assert numbers.get_sample_value("grange_replication_rollouts_total", {"event": event})
        steps = numbers.get_sample_value("grange_replication_rollout_steps_total")
        assert steps is not None
        assert steps >= 3


async def test_a_canary_waits_and_goes_on(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        await there.settle(30.0)
        assert await counts(there) == (2, 1)
        await change(there, canary=None)
        await there.until(lambda: phase(there, "Complete"))
        assert (await there.controller("two")).spec.replicas == 3


async def test_pausing_stops_where_it_is(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, paused=True)
        await there.settle(20.0)
        assert await phase(there, "Paused")
        assert await counts(there) == (3, 0)
        await change(there, paused=False)
        await there.until(lambda: phase(there, "Complete"))


async def test_w19_a_rollout_that_shrinks_ends(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 6)
        await roll(there, desired=2, minimum=1)
        await there.until(lambda: phase(there, "Complete"))
        assert (await there.controller("two")).spec.replicas == 2


async def test_one_replica_is_made_before_the_other_is_broken(tools: Tools) -> None:
    async with world(*tools) as there:
        deletion_gate = DeletionGate(there)
        await begun(there, 1)
        deletion_gate.reset()
        await roll(there, desired=1, minimum=1, maxSurge=1)
        await there.until(lambda: phase(there, "Complete"))
        assert deletion_gate.least == 1


async def test_check_u12_old_controller_goes_only_when_empty(
    tools: Tools,
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        path = REPLICATIONCONTROLLER.path("default", "one")
        there.gate = lambda request: (
            InternalError("not now")
            if request.method == "DELETE" and request.path == path
            else None
        )
        await roll(there)
        await there.settle(30.0)
        assert await counts(there) == (0, 3)
        assert not await phase(there, "Complete")  # it is not over before that is done
        there.gate = lambda request: None
        await there.until(lambda: phase(there, "Complete"))
        with pytest.raises(NotFound):
            await there.controller("one")


# --- refusals and crashes ---------------------------------------------------------------------


async def test_the_old_controller_goes_when_its_last_pods_are_recorded(tools: Tools) -> None:
    """Its outbox would go with it."""
    async with world(*tools) as there:
        await begun(there, 3)

        def gate(request: Request) -> InternalError | None:
            if request.method != "POST" or not request.path.endswith("/auditrecords"):
                return None
            sent = msgspec.json.decode(request.body)["spec"]
            last = sent["controller"] == "one" and not sent.get("replicas")
            return InternalError("not now") if last else None

        there.gate = gate
        await roll(there)
        await there.settle(30.0)
        assert await counts(there) == (0, 3)
        there.gate = lambda request: None
        await there.until(lambda: phase(there, "Complete"))
        records = (await there.client.list(AUDITRECORD, "default")).items
        removed = [item.pod for one in records for item in one.spec.removed]
        assert sorted(removed) == ["one-0", "one-1", "one-2"]


async def test_check_u15_second_rollout_of_a_controller_is_refused(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, paused=True)
        await there.until(lambda: phase(there, "Paused"))
        await there.add_controller("three", replicas=0, template=version(3))
        await roll(there, "second", new="three")
        await there.until(lambda: phase(there, "Refused", name="second"))
        shown = (await update(there, "second")).status.conditions[0].message
        assert shown == "roll already moves replicas of one"
        assert await counts(there) == (3, 0)
        assert (await there.controller("three")).spec.replicas == 0


async def test_wrong_starting_counts_are_refused_and_nothing_is_moved(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, startingReplicas={"old": 2, "new": 0})
        await there.until(lambda: phase(there, "Refused"))
        shown = (await update(there)).status.conditions[0].message
        assert "expected 2 and 0, found 3 and 0" in shown
        assert await counts(there) == (3, 0)


async def test_a_rollout_waits_for_its_controllers(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, new="later")
        await there.until(lambda: phase(there, "Pending"))
        assert "later, which is not there" in (await update(there)).status.conditions[0].message
        await there.add_controller("later", replicas=0, template=version(3))
        await there.until(lambda: phase(there, "Complete"))


async def test_rollout_whose_new_controller_is_gone_fails_in_time(tools: Tools) -> None:
    """Else it reported progress forever, without an alert."""
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1, progressDeadlineSeconds=30)
        await there.until(lambda: phase(there, "Waiting"))
        await change(there, canary=None, paused=True)
        await there.until(lambda: phase(there, "Paused"))
        await there.client.delete(REPLICATIONCONTROLLER, "two", "default")
        await there.settle(2.0)
        await change(there, paused=False)
        await there.settle(20.0)
        assert not await phase(there, "Failed")
        await there.until(lambda: phase(there, "Failed"), limit_s=20.0)
        shown = {item.type: item for item in (await update(there)).status.conditions}
        assert shown["RolloutFailed"].status == "True"
        assert shown["RolloutFailed"].message == "controller two is gone: nothing is moved"
        await there.settle(5.0)
        assert [item.count for item in await there.events("RolloutFailed")] == [1]
        assert (await there.controller("one")).spec.replicas == 2


async def test_counts_survive_a_crash_between_the_two_writes(tools: Tools) -> None:
    """The new controller has been given its replica when every further write fails."""
    async with world(*tools) as there:
        await begun(there, 3)
        path = REPLICATIONCONTROLLER.path("default", "one")

        def gate(request: Request) -> InternalError | None:
            taking = request.method == "PATCH" and request.path == path
            return InternalError("crash") if taking and b"replicas" in request.body else None

        there.gate = gate
        await roll(there)
        await there.settle(10.0)
        assert await counts(there) == (3, 1)
        there.gate = lambda request: None
        await there.until(lambda: phase(there, "Complete"))
        assert (await there.controller("two")).spec.replicas == 3


async def test_a_rollout_that_is_deleted_leaves_every_replica_wanted(tools: Tools) -> None:
    """Cancelling: in P2 the old controller stayed disabled."""
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        await there.client.delete(ROLLINGUPDATE, "roll", "default")
        await there.settle(20.0)
        assert await counts(there) == (2, 1)
        await roll(there, "again")
        await there.until(lambda: phase(there, "Complete", name="again"))


async def test_scaling_on_the_way_is_counted_again(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        await there.change("one", replicas=5)
        await there.until(lambda: phase(there, "Waiting"))
        await there.settle(10.0)
        assert await counts(there) == (2, 1)
