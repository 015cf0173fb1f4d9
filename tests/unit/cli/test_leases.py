"""``grange lease``: leases that wait, are held and are lost; marks of nodes; the policy."""

from collections.abc import AsyncGenerator
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import session

from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, NODEPOOL, POD
from grange.api.kinds.leasepolicy import POLICY_NAME, LeasePolicySpec
from grange.api.kinds.machine import DISRUPTED_TAINT_KEY
from grange.api.kinds.machinelease import (
    DIRTY,
    EXPIRED,
    GRANTED,
    HOLDER_ANNOTATION,
    LEASED,
    MACHINE_LEASE,
    QUEUED,
    REJECTED,
    STATE_ANNOTATION,
    MachineLease,
    PoolRequest,
)
from grange.api.meta import Document
from grange.api.status import Conflict, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.cli.machineleases import lease_requests, pool_counts
from grange.cli.machineleases.held_lease import HeldLease, LeaseLost
from grange.cli.machineleases.lease_requests import LeaseOptions
from grange.cli.verbs.lease import acquire, change, policy, show


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log) as made:
        yield made


async def created(there: World, **more: Any) -> HeldLease:
    request = LeaseOptions((PoolRequest(pool="workers", count=2),), "mine", holder="ann", **more)
    found = await acquire.create(session(there), request)
    return HeldLease(session(there), lease_requests.view(found))


async def set_status(there: World, phase: str, **status: Any) -> None:
    machines = [{"pool": "workers", "node": name} for name in ("n1", "n2")]
    if phase == GRANTED:
        status = {"machines": machines, **status}
    patch = {"status": {"phase": phase, **status}}
    await there.client.patch(MACHINELEASE, "mine", "default", patch=patch, subresource="status")


async def lease(there: World) -> MachineLease:
    return await there.client.get(MACHINELEASE, "mine", "default")


@pytest.mark.parametrize(
    ("words", "count", "expected"),
    [
        (["drivers=1", "workers=3"], None, [("drivers", 1), ("workers", 3)]),
        (["workers"], 4, [("workers", 4)]),
        (["drivers", "workers=3"], None, [("drivers", 1), ("workers", 3)]),
        (["drivers", "workers=3"], 2, [("drivers", 2), ("workers", 3)]),
    ],
)
def test_pools_have_numbers(
    words: list[str], count: int | None, expected: list[tuple[str, int]]
) -> None:
    found = lease_requests.pool_requests(words, count)
    assert [(item.pool, item.count) for item in found] == expected


@pytest.mark.parametrize(
    ("words", "count", "message"),
    [
        (["workers="], None, "--pool workers=: write POOL or POOL=N"),
        (["=3"], None, "write POOL or POOL=N"),
        (["workers=-1"], None, "write POOL or POOL=N"),
        (["workers=3"], 2, "--count 2: every pool has a number already"),
    ],
)
def test_unreadable_pools_are_rejected(words: list[str], count: int | None, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        lease_requests.pool_requests(words, count)


def test_request_names_only_what_is_asked_for() -> None:
    machines = (PoolRequest(pool="workers"),)
    plain = LeaseOptions(machines, holder="ann").manifest("now")
    assert plain["metadata"] == {"generateName": "lease-"}
    assert plain["spec"] == {
        "machines": [{"pool": "workers", "count": 1}],
        "holder": {"kind": "User", "name": "ann"},
    }
    full = LeaseOptions(
        machines, "mine", "ann", 5, ("db",), ttl_s=60, expected_s=30, cleaning="Manual"
    ).manifest("now")
    assert full["metadata"] == {"name": "mine"}
    assert (
        full["spec"].items()
        >= {
            "ttlSeconds": 60,
            "renewTime": "now",
            "priority": 5,
            "semaphores": ["db"],
            "expectedSeconds": 30,
            "cleaning": "Manual",
        }.items()
    )


async def test_acquire_prints_the_nodes(there: World, capsys: pytest.CaptureFixture[str]) -> None:
    held = await created(there)
    async with Nursery("test") as nursery:
        code = nursery.start(acquire.acquire(session(there), held))
        await there.clock.sleep(5)
        await set_status(
            there, QUEUED, position=2, reason="PoolAvailability", message="1 of 3 free"
        )
        await there.clock.sleep(5)
        await set_status(there, GRANTED)
    assert code.result() == 0
    captured = capsys.readouterr()
    assert captured.out == "n1\nn2\n"
    assert "position 2 in the queue; 1 of 3 free" in captured.err
    assert "next: grange lease release mine" in captured.err
    assert (await lease(there)).status.phase == GRANTED


async def test_lease_that_is_not_granted_in_time_leaves_the_queue(
    there: World, capsys: pytest.CaptureFixture[str]
) -> None:
    held = await created(there)
    assert await acquire.acquire(session(there), held, limit_s=30) == 1
    with pytest.raises(NotFound):
        await lease(there)
    assert "timed out after 30s: ml/mine" in capsys.readouterr().err


async def test_rejected_lease_is_reported_and_removed(
    there: World, capsys: pytest.CaptureFixture[str]
) -> None:
    held = await created(there)
    await set_status(there, REJECTED, reason="PoolUnknown", message="no machine has pool=workers")
    assert await acquire.acquire(session(there), held) == 1
    assert "failed: ml/mine: rejected: no machine has pool=workers" in capsys.readouterr().err
    with pytest.raises(NotFound):
        await lease(there)


async def test_rejection_is_reported_without_a_wait(
    there: World, capsys: pytest.CaptureFixture[str]
) -> None:
    held = await created(there)
    await set_status(there, REJECTED, reason="PoolCapacity", message="pool workers has 1 machine")
    assert await acquire.leave(session(there), held, output="") == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "failed: ml/mine: rejected: pool workers has 1 machine" in printed.err
    with pytest.raises(NotFound):
        await lease(there)


@pytest.mark.parametrize("phase", ["", QUEUED, GRANTED])
async def test_lease_that_is_not_rejected_is_left_behind(
    there: World, capsys: pytest.CaptureFixture[str], phase: str
) -> None:
    held = await created(there)
    if phase:
        await set_status(there, phase)
    assert await acquire.leave(session(there), held, output="") == 0
    assert capsys.readouterr().out == "mine\n"
    assert (await lease(there)).metadata.deletion_timestamp is None


async def test_interrupted_wait_leaves_the_queue(there: World) -> None:
    held = await created(there)
    async with Nursery("test") as nursery:
        nursery.start(acquire.acquire(session(there), held))
        await there.clock.sleep(5)
        nursery.cancel()
    with pytest.raises(NotFound):
        await lease(there)


async def test_heartbeats_while_the_lease_waits_and_is_used(there: World) -> None:
    held = await created(there, ttl_s=60)
    seen = []

    async def use(granted: MachineLease) -> int:
        for _ in range(4):
            seen.append((await lease(there)).spec.renew_time)
            await there.clock.sleep(30)
        return 7

    async with Nursery("test") as nursery:
        code = nursery.start(acquire.acquire(session(there), held, use=use))
        first = (await lease(there)).spec.renew_time
        await there.clock.sleep(45)
        assert (await lease(there)).spec.renew_time != first
        await set_status(there, GRANTED)
    assert code.result() == 7
    assert len(set(seen)) == 4
    with pytest.raises(NotFound):
        await lease(there)


@pytest.mark.parametrize("how", ["deleted", "expired"])
async def test_use_ends_when_the_lease_is_lost(there: World, how: str) -> None:
    held = await created(there, ttl_s=30)
    await set_status(there, GRANTED)
    ended = []

    async def use(granted: MachineLease) -> int:
        if how == "deleted":
            await there.client.delete(MACHINELEASE, "mine", "default")
        else:
            await set_status(there, EXPIRED, message="not renewed for 30 s")
        try:
            await there.clock.sleep(3600)
        finally:
            ended.append(there.clock.monotonic())
        return 0

    started = there.clock.monotonic()
    with pytest.RaisesGroup(pytest.RaisesExc(LeaseLost, match="ml/mine")):
        await acquire.acquire(session(there), held, use=use)
    assert ended[0] - started < 30


async def test_another_lease_of_the_name_is_not_released(there: World) -> None:
    held = await created(there)
    await there.client.delete(MACHINELEASE, "mine", "default")
    other = await created(there)
    await held.release()
    assert (await lease(there)).metadata.name == "mine"
    await other.release()
    with pytest.raises(NotFound):
        await lease(there)


async def test_renewal_needs_a_ttl_and_a_lease_that_lasts(there: World) -> None:
    await created(there)
    with pytest.raises(click.ClickException, match=r"ml/mine has no TTL .*; --ttl gives it one"):
        await change.renew_one(session(there), "mine", None)
    renewed = await change.renew_one(session(there), "mine", 90)
    assert renewed["spec"]["ttlSeconds"] == 90
    await there.clock.sleep(10)
    again = await change.renew_one(session(there), "mine", None)
    assert again["spec"]["renewTime"] > renewed["spec"]["renewTime"]
    await set_status(there, EXPIRED)
    with pytest.raises(click.ClickException, match="ml/mine is expired; acquire another one"):
        await change.renew_one(session(there), "mine", None)


async def test_lease_of_a_session_is_released_by_it(there: World) -> None:
    await created(there)
    owner = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "TestSession",
        "name": "qps",
        "uid": "u",
        "controller": True,
    }
    patch = {"metadata": {"ownerReferences": [owner]}}
    await there.client.patch(MACHINELEASE, "mine", "default", patch=patch)
    with pytest.raises(click.ClickException, match=r"TestSession/qps; grange test cancel qps"):
        await change.release_one(session(there), "mine")
    assert (await lease(there)).metadata.deletion_timestamp is None


async def marked(there: World, name: str, state: str, **labels: str) -> None:
    await there.add_node(name, labels={"pool": "workers", **labels})
    notes = {STATE_ANNOTATION: state, HOLDER_ANNOTATION: "TestSession default/qps"}
    patch: Document = {
        "metadata": {"labels": {MACHINE_LEASE: "uid"}, "annotations": notes if state else {}}
    }
    await there.client.patch(NODE, name, patch=patch)


async def test_only_dirty_machines_are_marked_clean(there: World) -> None:
    await marked(there, "n1", DIRTY)
    await marked(there, "n2", LEASED)
    _, line = await change.clean_one(session(there), "n1")
    assert line == "node/n1 marked clean"
    _, line = await change.clean_one(session(there), "n2")
    assert line == "node/n2 is not dirty; left as it is"
    assert STATE_ANNOTATION not in (await there.client.get(NODE, "n1")).metadata.annotations
    assert (await there.client.get(NODE, "n2")).metadata.annotations[STATE_ANNOTATION] == LEASED


async def test_pools_count_machines_by_state(there: World) -> None:
    await marked(there, "n1", DIRTY)
    await marked(there, "n2", LEASED)
    await there.add_node("n3", labels={"pool": "workers"})
    await there.add_node("n4", labels={"pool": "workers"}, ready=False)
    await there.add_node("n5", labels={"pool": "drivers"})
    await there.add_node("n6")
    await there.add_node("n7", labels={"pool": "workers"})
    goes = {"spec": {"taints": [{"key": DISRUPTED_TAINT_KEY, "effect": "NoSchedule"}]}}
    await there.client.patch(NODE, "n7", patch=goes)
    found = {item.name: item for item in pool_counts.counts((await there.client.list(NODE)).items)}
    assert sorted(found) == ["drivers", "workers"]
    workers = found["workers"]
    numbers = (workers.nodes, workers.free, workers.leased, workers.dirty, workers.unusable)
    assert numbers == (5, 1, 1, 1, 2)
    assert workers.holders == {"TestSession default/qps": 1}
    spec = (await there.client.create(LEASEPOLICY, policy_document(paused=True))).spec
    document = show.pools_document([workers], spec)
    assert document["paused"] is True
    assert document["pools"][0]["free"] == 1


async def add_pod(there: World, name: str, node: str, *, owner: str = "") -> None:
    meta: Document = {"name": name}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": owner, "name": "one", "uid": "u"}
        meta["ownerReferences"] = [{**reference, "controller": True}]
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "x"}]}
    await there.client.create(POD, {"metadata": meta, "spec": spec}, "default")


async def test_machines_with_pods_of_others_are_not_free(there: World) -> None:
    for name in ("n1", "n2", "n3"):
        await there.add_node(name, labels={"pool": "workers"})
    await add_pod(there, "shop", "n1")
    await add_pod(there, "every", "n2", owner="DaemonSet")
    await add_pod(there, "done", "n3")
    over = {"status": {"phase": "Succeeded"}}
    await there.client.patch(POD, "done", "default", patch=over, subresource="status")
    nodes = (await there.client.list(NODE)).items
    pods = await pool_counts.keepers(session(there), nodes)
    assert pods == {"n1": "default/shop"}
    [workers] = pool_counts.counts(nodes, (), pods)
    assert (workers.nodes, workers.free, workers.busy) == (3, 2, 1)
    assert pool_counts.busy_text(workers).startswith("1 busy with pods default/shop; delete")
    document = show.pools_document([workers], LeasePolicySpec())
    assert document["pools"][0]["pods"] == ["default/shop"]


async def test_pods_of_machines_are_read_page_by_page_as_needed(there: World) -> None:
    for name in ("n1", "n2"):
        await there.add_node(name, labels={"pool": "workers"})
    for number in range(3):
        await add_pod(there, f"elsewhere-{number}", "n9")
    await add_pod(there, "last", "n2")
    nodes = (await there.client.list(NODE)).items
    assert await pool_counts.keepers(session(there), nodes, page=2) == {"n2": "default/last"}
    await add_pod(there, "another", "n1")
    await add_pod(there, "first", "n2")
    found = await pool_counts.keepers(session(there), nodes, page=5)
    assert found == {"n1": "default/another", "n2": "default/first"}


async def test_pools_that_node_pools_make_are_shown_without_machines(there: World) -> None:
    for name, mode in (("burst", "Packed"), ("alone", "Dedicated")):
        spec = {"provider": "local", "mode": mode, "template": {"labels": {"pool": name}}}
        await there.client.create(NODEPOOL, {"metadata": {"name": name}, "spec": spec})
    await there.add_node("n1", labels={"pool": "workers"})
    nodes, pools = await there.client.list(NODE), await there.client.list(NODEPOOL)
    found = [(item.name, item.nodes) for item in pool_counts.counts(nodes.items, pools.items)]
    assert found == [("burst", 0), ("workers", 1)]


def policy_document(**spec: Any) -> Document:
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "LeasePolicy",
        "metadata": {"name": POLICY_NAME},
        "spec": spec,
    }


async def test_policy_is_created_and_changed(there: World) -> None:
    opened = session(there)
    await policy.change(opened, lambda _: {"paused": True})
    changed = await policy.change(opened, lambda spec: policy.drained(spec, ("b", "a")))
    assert changed["spec"]["paused"] is True
    assert changed["spec"]["drainingPools"] == ["a", "b"]
    changed = await policy.change(opened, lambda spec: policy.undrained(spec, ("a",)))
    assert changed["spec"]["drainingPools"] == ["b"]
    with pytest.raises(click.ClickException, match="pool a is not drained; drained pools: b"):
        await policy.change(opened, lambda spec: policy.undrained(spec, ("a",)))


async def test_policy_keeps_what_others_write_meanwhile(there: World) -> None:
    """A change is made from the spec that the write is fenced by."""
    opened = session(there)
    await policy.change(opened, lambda _: {"drainingPools": ["a"]})
    others = ["b", "c"]
    interrupted = policy.drained
    seen = []

    async def other(name: str) -> None:
        found = await there.client.get(LEASEPOLICY, POLICY_NAME)
        patch = {"spec": interrupted(found.spec, (name,))}
        await there.client.patch(LEASEPOLICY, POLICY_NAME, patch=patch)

    class Racing:
        """Writes as another user between read and write."""

        def __init__(self) -> None:
            self.client = self
            self.env = opened.env

        async def get(self, *words: Any) -> Any:
            found = await there.client.get(*words)
            if others:
                await other(others.pop())
            return found

        async def patch(self, *words: Any, **more: Any) -> Any:
            seen.append(more)
            return await there.client.patch(*words, **more)

        async def document(self, *words: Any) -> Document:
            return await opened.document(*words)

    racing: Any = Racing()
    changed = await policy.change(racing, lambda spec: interrupted(spec, ("d",)))
    assert changed["spec"]["drainingPools"] == ["a", "b", "c", "d"]
    assert len(seen) == 3
    with pytest.raises(Conflict):
        await there.client.patch(LEASEPOLICY, POLICY_NAME, patch=seen[0]["patch"])


def test_rows_show_what_a_lease_has_or_waits_for() -> None:
    waiting = lease_requests.view(
        {
            "metadata": {"name": "b", "creationTimestamp": "2030-01-01T00:00:00Z"},
            "spec": {
                "machines": [{"pool": "workers", "count": 2}],
                "holder": {"kind": "User", "name": "ann"},
            },
            "status": {"phase": QUEUED, "position": 1, "reason": "PoolAvailability"},
        }
    )
    assert show.row(waiting, 1893456060.0) == [
        "b",
        "workers=2",
        "Queued",
        "1",
        "User/ann",
        "",
        "60s",
        "PoolAvailability",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["acquire"], "Missing option '--pool'"),
        (["acquire", "--pool", "w", "--no-wait", "--hold"], "--no-wait: a lease is held"),
        (["acquire", "--pool", "w", "--ttl", "0s"], "--ttl 0s: give more than 0s"),
        (["acquire", "--pool", "w", "--count", "0"], "--count"),
        (["release"], "Missing argument"),
        (["drain-pool"], "Missing argument"),
    ],
)
def test_bad_words_are_usage_errors(words: list[str], message: str) -> None:
    from grange.cli.verbs.lease.group import command as group

    outcome = CliRunner().invoke(group, words, obj=None)
    assert outcome.exit_code == 2  # which the program turns into its own code of usage errors
    assert message in outcome.output
