"""Machine leases against a real API server in memory: granted, held, released, rejected, expired."""

import pytest
from tests.support.lease_world import lease_world

from grange.api import conditions, timestamps
from grange.api.http import Request
from grange.api.kinds import MACHINELEASE, NODE, NODEPOOL, POD
from grange.api.kinds.machinelease import (
    HOLDER_ANNOTATION,
    MACHINE_LEASE,
    MACHINES_REQUESTED,
    RELEASE_FINALIZER,
    STATE_ANNOTATION,
)
from grange.api.meta import Document
from grange.api.status import ApiError, Conflict, InternalError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.machinelease.controller import MachineLeaseController


async def test_a_lease_is_granted_and_its_nodes_are_marked(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2", "n3")
        await there.add_nodes("d1", pool="d")
        holder = {"kind": "TestSession", "name": "qps"}
        lease = await there.add_lease("a", {"w": 2, "d": 1}, holder=holder)
        assert await there.reaches("a", "Granted") < 1.0
        found = await there.lease("a")
        assert await there.machines("a") == ["n1", "n2", "d1"]
        assert found.status.granted_time
        assert found.metadata.finalizers == (RELEASE_FINALIZER,)
        uid = lease.metadata.uid
        assert await there.marks() == dict.fromkeys(("n1", "n2", "d1"), (uid, "Leased"))
        annotations = (await there.node("n1")).metadata.annotations
        assert annotations[HOLDER_ANNOTATION] == "TestSession default/qps"
        assert await there.condition("a", "Granted") == ("True", "MachinesClaimed")
        await there.settle()
        assert await there.condition("a", "MachinesReady") == ("True", "MachinesReady")
        assert await there.events("MachinesGranted") == ["n1, n2, d1"]


async def test_a_lease_waits_until_machines_are_free(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.add_lease("a", 2, expectedSeconds=60, holder={"kind": "User", "name": "kim"})
        await there.reaches("a", "Granted")
        await there.add_lease("b", 1)
        await there.settle(4.0)
        status = await there.status("b")
        assert (status.phase, status.position, status.reason) == ("Queued", 1, "PoolAvailability")
        assert status.message == (
            "pool w has 0 of 2 machines free and 1 is requested; held by User default/kim (2)"
        )
        granted = timestamps.parse((await there.status("a")).granted_time or "")
        assert timestamps.parse(status.expected_start or "").timestamp() == pytest.approx(
            granted.timestamp() + 60, abs=1.0
        )
        assert await there.condition("b", "Granted") == ("False", "PoolAvailability")
        await there.delete("a")
        assert await there.reaches("b", "Granted") < 1.0
        assert await there.events("MachinesReleased") == ["Its machines are free"]


async def test_machines_are_not_granted_while_pods_are_left(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        uid = (await there.add_lease("a", 2)).metadata.uid
        await there.reaches("a", "Granted")
        await there.add_pod("p", "n1", uid)
        await there.settle()
        await there.delete("a")
        await there.add_lease("b", 1)
        await there.reaches("b", "Granted")
        assert await there.machines("b") == ["n2"], "machines become free one by one"
        assert (await there.status("a")).phase == "Releasing"
        assert (await there.marks())["n1"] == (uid, "Dirty")
        await there.client.delete(POD, "p", "default")
        await there.settle(5.0)
        assert (await there.marks())["n1"][0] == uid, "it is still ending"
        await there.remove_pod("p")
        assert await there.gone("a") < 1.0
        assert "n1" not in await there.marks()


async def test_release_writes_each_machine_once(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2", "n3")
        await there.add_lease("a", 3)
        await there.reaches("a", "Granted")
        await there.settle()
        there.requests.clear()
        await there.delete("a")
        await there.gone("a")
        await there.settle()
        written = [path.rpartition("/")[2] for _, path in there.requests]
        assert sorted(written) == ["a", "events", "n1", "n2", "n3"]
        assert await there.marks() == {}


@pytest.mark.parametrize("cleaning", ["Automatic", "Manual"])
async def test_release_does_not_wait_for_a_silent_watch(
    clock: Clock, rng: Stream, log: Logger, cleaning: str
) -> None:
    """Seed 10068 of the sessions: each try failed at the version of the cache, the last for minutes."""
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.add_lease("a", 2, cleaning=cleaning)
        await there.reaches("a", "Granted")
        await there.settle()
        there.held_watches.add("/api/v1/nodes")
        await there.client.patch(NODE, "n1", patch={"metadata": {"labels": {"x": "y"}}})
        await there.delete("a")
        if cleaning == "Automatic":
            assert await there.gone("a") < 1.0
            assert await there.marks() == {}
        else:
            await there.settle()
            assert [state for _, state in (await there.marks()).values()] == ["Dirty", "Dirty"]
        there.held_watches.clear()


async def test_machines_that_are_cleaned_by_hand_stay_dirty(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        uid = (await there.add_lease("a", 1, cleaning="Manual")).metadata.uid
        await there.reaches("a", "Granted")
        await there.delete("a")
        await there.settle(5.0)
        assert await there.marks() == {"n1": (uid, "Dirty")}
        clean: Document = {"metadata": {"annotations": {STATE_ANNOTATION: None}}}
        await there.client.patch(NODE, "n1", patch=clean)
        assert await there.gone("a") < 1.0
        assert await there.marks() == {}


# --- machines that cannot be had -----------------------------------------------------------------


async def test_capacity_follows_the_nodes(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2", "n3")
        await there.set_ready("n1", "Unknown")
        await there.cordon("n2")
        await there.add_lease("a", 2)
        await there.settle(4.0)
        status = await there.status("a")
        assert (status.phase, status.reason) == ("Queued", "PoolCapacity")
        assert status.message.startswith("pool w has 1 usable machine (3 in all) and 2 are")
        await there.cordon("n2", on=False)
        await there.reaches("a", "Granted")
        assert await there.machines("a") == ["n2", "n3"]


async def test_a_node_with_pods_of_others_is_not_granted(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.add_pod("other", "n1")
        await there.add_lease("a", 1)
        await there.reaches("a", "Granted")
        assert await there.machines("a") == ["n2"]
        await there.add_lease("b", 1)
        await there.settle(4.0)
        status = await there.status("b")
        assert (status.reason, status.message) == (
            "PoolAvailability",
            "pool w has 0 of 2 machines free and 1 is requested; "
            "held by MachineLease default/a (1); used by pods default/other: "
            "delete or move them (grange rc drain-node NAME NODE), or wait",
        )
        await there.remove_pod("other")
        await there.reaches("b", "Granted")


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_finished_pods_of_others_hold_no_machine(
    clock: Clock, rng: Stream, log: Logger, phase: str
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        await there.add_pod("other", "n1")
        await there.add_lease("a", 1)
        await there.settle(4.0)
        assert (await there.status("a")).reason == "PoolAvailability"
        ended = {"status": {"phase": phase}}
        await there.client.patch(POD, "other", "default", patch=ended, subresource="status")
        await there.reaches("a", "Granted")
        assert await there.machines("a") == ["n1"]


async def test_a_pod_that_the_cache_does_not_show_is_found(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.settle()
        there.held_watches.add("/api/v1/pods")
        await there.add_pod("other", "n1")
        await there.add_lease("a", 1)
        await there.reaches("a", "Granted", limit_s=30.0)
        assert await there.machines("a") == ["n2"]
        assert [*await there.marks()] == ["n2"]


@pytest.mark.parametrize(
    ("need", "reason", "text"),
    [
        ({"z": 1}, "PoolUnknown", 'no machine has the label pool="z"; label nodes or'),
        ({"w": 2}, "PoolCapacity", "pool w has 1 machine and 2 are requested; add machines or"),
    ],
)
async def test_impossible_leases_are_rejected(
    clock: Clock, rng: Stream, log: Logger, need: dict[str, int], reason: str, text: str
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        await there.settle()
        await there.add_lease("a", need)
        await there.add_lease("b", 1)
        assert await there.reaches("a", "Rejected") < 0.5
        status = await there.status("a")
        assert (status.reason, status.position) == (reason, 0)
        assert status.message.startswith(text)
        await there.reaches("b", "Granted")
        assert (await there.events("LeaseRejected"))[0].startswith(text)
        await there.delete("a")
        await there.gone("a")


async def test_pools_without_machines_grow_for_a_lease(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_node_pool("p", machines=2)
        await there.add_lease("a", 2)
        await there.settle(3.0)
        assert (await there.status("a")).message == (
            "pool w has 0 of 0 machines free and 2 are requested; it can grow: NodePool p allows 2"
        )
        assert await there.condition("a", MACHINES_REQUESTED) == ("True", "NextToStart")
        await there.add_lease("b", 1)
        await there.settle(3.0)
        assert await there.condition("b", MACHINES_REQUESTED) == ("", ""), "it is not its turn"
        await there.add_nodes("n1", "n2", node_pool="p")
        await there.reaches("a", "Granted")
        assert await there.condition("a", MACHINES_REQUESTED) == ("False", "Granted")


async def test_boots_are_part_of_the_expected_start(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_node_pool("p", machines=2)
        await there.add_lease("a", 2)
        await there.settle(3.0)
        assert (await there.status("a")).expected_start is None, "no machine has booted yet"
        status = {"status": {"bootSeconds": 40}}
        await there.client.patch(NODEPOOL, "p", patch=status, subresource="status")
        requested = conditions.find((await there.status("a")).conditions, MACHINES_REQUESTED)
        assert requested is not None
        expected = timestamps.shift(timestamps.parse(requested.last_transition_time or ""), 40)
        for _ in range(3):
            await there.settle(10.0)
            found = (await there.status("a")).expected_start
            assert found == timestamps.rfc3339(expected), "it does not move while machines boot"
        await there.settle(60.0)
        await there.add_lease("b", 1)
        await there.settle(3.0)
        later = timestamps.parse((await there.status("a")).expected_start or "")
        assert later > timestamps.shift(expected, 50), "they take longer than expected"
        await there.add_nodes("n1", "n2", node_pool="p")
        await there.reaches("a", "Granted")


async def test_a_more_important_lease_takes_the_growth(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_node_pool("p", machines=1)
        await there.add_lease("a", 1)
        await there.settle(3.0)
        await there.add_lease("b", 1, priority=5)
        await there.settle(3.0)
        assert await there.condition("a", MACHINES_REQUESTED) == ("False", "NotNext")
        assert await there.condition("b", MACHINES_REQUESTED) == ("True", "NextToStart")


async def test_more_than_a_node_pool_allows_is_rejected_at_once(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The limit is named, and nothing is waited for though there is no node at all."""
    async with lease_world(clock, rng, log) as there:
        await there.add_node_pool("p", machines=2)
        await there.settle(1.0)
        await there.add_lease("a", 3)
        assert await there.reaches("a", "Rejected") < 0.5
        status = await there.status("a")
        assert status.reason == "PoolCapacity"
        assert status.message == (
            "pool w can have 2 machines at most (NodePool p allows 2) and 3 are requested; "
            "raise the limits or request fewer"
        )


async def test_a_dedicated_node_pool_is_no_pool_of_leases(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", pool="other")
        await there.add_node_pool("p", mode="Dedicated")
        await there.settle(1.0)
        await there.add_lease("a", 1)
        await there.reaches("a", "Rejected")
        status = await there.status("a")
        assert status.reason == "PoolUnknown"
        assert "NodePool p" in status.message
        assert "mode Dedicated" in status.message


async def test_a_raised_limit_lets_a_pool_grow(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_node_pool("p", machines=1)
        await there.add_nodes("n1", node_pool="p")
        await there.add_lease("a", 1)
        await there.reaches("a", "Granted")
        await there.add_lease("b", 1)
        await there.settle(3.0)
        assert await there.condition("b", MACHINES_REQUESTED) == ("", "")
        await there.client.patch(NODEPOOL, "p", patch={"spec": {"limits": {"machines": 2}}})
        await there.settle(3.0)
        assert await there.condition("b", MACHINES_REQUESTED) == ("True", "NextToStart")


async def test_pools_that_are_just_appearing_are_waited_for(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_lease("a", 2)
        await there.settle(0.2)
        await there.add_nodes("n1")
        await there.settle(0.3)
        await there.add_nodes("n2")
        await there.reaches("a", "Granted")


async def test_machines_that_register_late_are_waited_for(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """As after the start of a control plane on a busy machine, whose nodes come later."""
    async with lease_world(clock, rng, log) as there:
        await there.add_lease("a", 2)
        await there.settle(20.0)
        assert (await there.status("a")).phase == "Queued"
        await there.add_nodes("n1")
        await there.settle(0.4)
        await there.add_nodes("n2")
        await there.reaches("a", "Granted")


async def test_cluster_without_machines_rejects_in_the_end(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_lease("a", 1)
        assert 59.0 < await there.reaches("a", "Rejected", limit_s=70.0) < 62.0


async def test_the_policy_is_followed_when_it_changes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.set_policy(paused=True)
        await there.add_nodes("n1")
        await there.add_lease("a", 1)
        await there.settle(4.0)
        assert (await there.status("a")).reason == "Paused"
        await there.set_policy(paused=False)
        assert await there.reaches("a", "Granted") < 0.5


# --- leases that change --------------------------------------------------------------------------


async def test_a_machine_that_is_lost_is_reported(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.add_lease("a", 2)
        await there.reaches("a", "Granted")
        await there.set_ready("n1", "Unknown")
        await there.settle()
        assert await there.condition("a", "MachinesReady") == ("False", "MachineNotReady")
        await there.client.delete(NODE, "n2")
        await there.settle()
        assert await there.condition("a", "MachinesReady") == ("False", "MachineLost")
        assert await there.events("MachineLost") == ["Machines are lost: n2"]
        assert (await there.status("a")).phase == "Granted", "its holder decides"
        await there.delete("a")
        await there.gone("a")
        assert await there.marks() == {}


async def test_a_lease_that_is_not_renewed_ends(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        uid = (await there.add_lease("a", 1, ttlSeconds=10)).metadata.uid
        await there.reaches("a", "Granted")
        await there.add_pod("p", "n1", uid)
        await there.settle(8.0)
        beat: Document = {"spec": {"renewTime": timestamps.rfc3339_micro(clock.now())}}
        await there.client.patch(MACHINELEASE, "a", "default", patch=beat)
        await there.settle(8.0)
        assert (await there.status("a")).phase == "Granted"
        assert 1.0 < await there.reaches("a", "Expired") < 3.0
        assert (await there.status("a")).message == "not renewed for 10 s"
        await there.settle()
        pod = await there.client.get(POD, "p", "default")
        assert pod.metadata.deletion_timestamp, "pods of the lease are deleted"
        assert (await there.marks())["n1"][0] == uid
        await there.remove_pod("p")
        await there.settle()
        assert await there.marks() == {}
        assert len(await there.events("LeaseExpired")) == 1


async def test_a_waiting_lease_ends_with_its_heartbeats(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        await there.add_lease("held", 1)
        await there.add_lease("silent", 1, ttlSeconds=5)
        now = timestamps.rfc3339_micro(clock.now())
        await there.add_lease("beat", 1, ttlSeconds=5, renewTime=now)
        await there.reaches("beat", "Expired")
        assert (await there.status("silent")).phase == "Queued"


async def test_a_deleted_lease_leaves_the_queue(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        await there.add_lease("a", 1)
        await there.add_lease("b", 1)
        await there.add_lease("c", 1)
        await there.settle(4.0)
        await there.delete("b")
        await there.gone("b")
        await there.settle(4.0)
        assert (await there.status("c")).position == 1


# --- what others do meanwhile --------------------------------------------------------------------


async def test_a_claim_survives_writes_of_others(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        await there.settle()
        there.held_watches.add("/api/v1/nodes")
        await there.client.patch(NODE, "n1", patch={"metadata": {"labels": {"x": "y"}}})
        await there.add_lease("a", 1)
        await there.reaches("a", "Granted")
        assert (await there.node("n1")).metadata.labels["x"] == "y"


async def test_a_node_that_another_lease_took_is_not_taken(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The cache shows it free; the write at its version fails, and the server shows whose it is."""
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        held = await there.add_lease("held", 1)
        await there.reaches("held", "Granted")
        await there.settle()
        there.held_watches.add("/api/v1/nodes")
        marks: Document = {
            "metadata": {"labels": {MACHINE_LEASE: held.metadata.uid}},
            "spec": {
                "taints": [
                    {"key": MACHINE_LEASE, "value": held.metadata.uid, "effect": "NoSchedule"}
                ]
            },
        }
        await there.client.patch(NODE, "n2", patch=marks)
        await there.add_lease("a", 1)
        await there.settle(8.0)
        assert (await there.status("a")).phase == "Queued"
        there.held_watches.clear()
        await there.reaches("a", "Granted", limit_s=30.0)
        assert await there.machines("a") == ["n2"], "what was not granted was taken back"


async def test_marks_that_only_the_cache_has_are_set_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A claim was begun, and a mark of it was taken off by a write whose answer was lost."""
    async with lease_world(clock, rng, log) as there:

        def no_grant(request: Request) -> ApiError | None:
            return InternalError("no") if request.path.endswith("/a/status") else None

        there.gate = no_grant
        await there.add_nodes("n1", "n2")
        lease = await there.add_lease("a", 2)
        await there.settle()
        assert [*await there.marks()] == ["n1", "n2"]
        there.held_watches.add("/api/v1/nodes")
        off: Document = {"metadata": {"labels": {MACHINE_LEASE: None}}, "spec": {"taints": []}}
        await there.client.patch(NODE, "n2", patch=off)
        there.gate = lambda _: None
        await there.reaches("a", "Granted", limit_s=30.0)
        uids = [uid for uid, _ in (await there.marks()).values()]
        assert uids == [lease.metadata.uid] * 2
        there.held_watches.clear()


async def test_marks_of_a_lease_that_is_gone_are_removed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        marks: Document = {
            "metadata": {"labels": {MACHINE_LEASE: "gone"}, "annotations": {"x": "y"}},
            "spec": {"taints": [{"key": MACHINE_LEASE, "value": "gone", "effect": "NoSchedule"}]},
        }
        await there.add_pod("p", "n1", "gone")
        await there.client.patch(NODE, "n1", patch=marks)
        await there.settle(5.0)
        assert [*await there.marks()] == ["n1"], "a pod of it is left"
        await there.remove_pod("p")
        await there.settle()
        assert await there.marks() == {}
        assert (await there.node("n1")).metadata.annotations == {"x": "y"}


@pytest.mark.parametrize("lost", [False, True])
async def test_a_successor_completes_or_undoes_a_claim(
    clock: Clock, rng: Stream, log: Logger, lost: bool
) -> None:
    """The former member ended after it had marked nodes, before the grant was written."""
    async with lease_world(clock, rng, log, runs=False) as there:

        def no_grant(request: Request) -> ApiError | None:
            return InternalError("no") if request.path.endswith("/a/status") else None

        there.gate = no_grant
        [former] = there.start(there.controller)
        await there.add_nodes("n1", "n2", "n3")
        await there.add_lease("a", 3)
        await there.settle()
        assert len(await there.marks()) == 3
        former.cancel()
        await there.settle()
        if lost:
            await there.cordon("n3")
        there.gate = lambda _: None
        await there.add_lease("b", 1)
        there.start(MachineLeaseController(there.deps))
        if lost:
            await there.reaches("b", "Granted", limit_s=20.0)
            assert (await there.status("a")).phase == "Queued"
            assert len(await there.marks()) == 1
        else:
            await there.reaches("a", "Granted", limit_s=20.0)
            assert (await there.status("b")).phase != "Granted"


async def test_a_node_whose_write_fails_does_not_stop_others(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.settle()

        def refused(request: Request) -> ApiError | None:
            refuses = request.method == "PATCH" and request.path.endswith("/nodes/n1")
            return Conflict("always") if refuses else None

        there.gate = refused
        await there.add_lease("a", 1)
        await there.reaches("a", "Granted", limit_s=20.0)
        assert await there.machines("a") == ["n2"]


async def test_writes_of_waiting_leases_are_few(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1")
        for number in range(60):
            await there.add_lease(f"l{number:02}", 1)
        await there.settle(10.0)
        there.requests.clear()
        for number in range(5):
            await there.delete(f"l{number:02}")
            await there.reaches(f"l{number + 1:02}", "Granted")
            await there.settle(10.0)
        written = [path for method, path in there.requests if path.endswith("/status")]
        assert len(written) < 5 * 58 / 2, "a place far behind is not written whenever it moves"
        there.requests.clear()
        await there.settle(60.0)
        assert there.requests == []


async def test_metrics_show_queue_and_machines(clock: Clock, rng: Stream, log: Logger) -> None:
    async with lease_world(clock, rng, log) as there:
        await there.add_nodes("n1", "n2")
        await there.cordon("n2")
        await there.add_lease("a", 1)
        await there.add_lease("b", 1)
        await there.settle()

        def value(name: str, **labels: str) -> float | None:
            return there.registry.get_sample_value(f"grange_machinelease_{name}", labels)

        assert value("waiting", pool="w") == 1
        assert value("machines", pool="w", state="leased") == 1
        assert value("machines", pool="w", state="unusable") == 1
        assert value("outcomes_total", outcome="granted") == 1
        assert value("wait_seconds_count", pool="w") == 1
