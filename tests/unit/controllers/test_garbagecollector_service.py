"""Garbage collection against a real API server in memory."""

from typing import Any

import pytest
from tests.support.controller_world import World, world

from grange.api.kinds import CONFIGMAP, NODE, POD, REPLICATIONCONTROLLER, SECRET
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.garbagecollector.controller import GarbageCollector
from grange.controllers.replication.controller import ReplicationService


async def config(
    there: World, name: str, *owners: Document, namespace: str = "default", **meta: Any
) -> Document:
    """A ConfigMap with owners; returns the reference by which it owns others."""
    document = {"metadata": {"name": name, "ownerReferences": list(owners), **meta}}
    made = await there.client.create(CONFIGMAP, document, namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made.metadata.uid}


async def left(there: World, namespace: str = "default") -> list[str]:
    return [item.metadata.name for item in (await there.client.list(CONFIGMAP, namespace)).items]


async def delete(there: World, name: str, propagation: str = "") -> None:
    await there.client.delete(CONFIGMAP, name, "default", propagation=propagation)


async def test_dependents_go_with_their_last_owner(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        one, two = await config(there, "one"), await config(there, "two")
        await config(there, "both", one, two)
        child = await config(there, "child", one)
        await config(there, "grandchild", child)
        await there.settle()
        await delete(there, "one")
        await there.settle()
        assert await left(there) == ["both", "two"]
        both = await there.client.get(CONFIGMAP, "both", "default")
        assert [owner.name for owner in both.metadata.owner_references] == ["two"]
        await delete(there, "two")
        await there.settle()
        assert await left(there) == []


async def test_what_dangled_before_the_start_is_collected(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        owner = await config(there, "owner")
        await config(there, "child", owner)
        await delete(there, "owner")
        there.start(GarbageCollector(there.deps))
        await there.settle()
        assert await left(there) == []


async def test_an_object_with_the_owners_name_keeps_no_dependent(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        owner = await config(there, "owner")
        await config(there, "child", owner)
        await delete(there, "owner")
        await config(there, "owner")
        there.start(GarbageCollector(there.deps))
        await there.settle()
        assert await left(there) == ["owner"]


async def test_orphaned_dependents_stay_and_are_free(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        owner = await config(there, "owner")
        await config(there, "child", owner)
        await there.settle()
        await delete(there, "owner", "Orphan")
        await there.settle()
        assert await left(there) == ["child"]
        child = await there.client.get(CONFIGMAP, "child", "default")
        assert not child.metadata.owner_references


async def test_dependents_not_yet_cached_are_orphaned_too(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        owner = await config(there, "owner")
        await there.settle()
        there.held_watches.add("/api/v1/secrets")
        await there.client.create(
            SECRET, {"metadata": {"name": "new", "ownerReferences": [owner]}}, "default"
        )
        await delete(there, "owner", "Orphan")
        await there.settle()
        there.held_watches.clear()
        await there.settle()
        new = await there.client.get(SECRET, "new", "default")
        assert not new.metadata.owner_references


async def test_foreground_deletion_waits_for_dependents_that_block(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        owner = await config(there, "owner")
        await config(there, "loose", owner)
        await config(
            there, "held", {**owner, "blockOwnerDeletion": True}, finalizers=["example.com/hold"]
        )
        await there.settle()
        await delete(there, "owner", "Foreground")
        await there.settle()
        assert "owner" in await left(there)
        held = await there.client.get(CONFIGMAP, "held", "default")
        assert held.metadata.deletion_timestamp
        await there.client.patch(
            CONFIGMAP, "held", "default", patch={"metadata": {"finalizers": None}}
        )
        await there.settle()
        assert await left(there) == []


async def own(there: World, dependent: str, *owners: Document) -> None:
    """Add owners that block to a ConfigMap."""
    references = [{**owner, "blockOwnerDeletion": True} for owner in owners]
    patch = {"metadata": {"ownerReferences": references}}
    await there.client.patch(CONFIGMAP, dependent, "default", patch=patch)


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_foreground_deletion_of_a_cycle_ends(
    clock: Clock, rng: Stream, log: Logger, size: int
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        collector = GarbageCollector(there.deps)
        there.start(collector)
        made = [await config(there, f"c{number}") for number in range(size)]
        for number in range(size):
            await own(there, f"c{number}", made[(number + 1) % size])
        await config(there, "kept")
        await there.settle()
        await delete(there, "c0", "Foreground")
        await there.settle(30.0)
        assert await left(there) == ["kept"]
        counts = collector.loop.statistics()
        assert counts.done + counts.requeued + counts.failed <= 6 * size + 2
        assert counts.failed <= size, "lost races alone"


async def test_cycle_waits_for_blockers_outside_of_it(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        collector = GarbageCollector(there.deps)
        there.start(collector)
        one, two = await config(there, "one"), await config(there, "two")
        await own(there, "one", two, one)
        await own(there, "two", one)
        await config(
            there, "held", {**one, "blockOwnerDeletion": True}, finalizers=["example.com/hold"]
        )
        await there.settle()
        await delete(there, "one", "Foreground")
        await there.settle(30.0)
        assert await left(there) == ["held", "one"]
        before = collector.loop.statistics().done
        await there.settle(600.0)
        assert collector.loop.statistics().done - before <= 1, "it waits without turning"
        patch = {"metadata": {"finalizers": None}}
        await there.client.patch(CONFIGMAP, "held", "default", patch=patch)
        await there.settle()
        assert await left(there) == []


async def test_cycle_found_at_the_start_is_collected(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        one, two = await config(there, "one"), await config(there, "two")
        await own(there, "one", two)
        await own(there, "two", one)
        await delete(there, "one", "Foreground")
        await delete(there, "two", "Foreground")
        assert await left(there) == ["one", "two"]
        there.start(GarbageCollector(there.deps))
        await there.settle(30.0)
        assert await left(there) == []


async def test_an_owner_in_another_namespace_never_condemns(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The reference names a uid that lives, elsewhere: a mistake, and no reason to delete."""
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        elsewhere = await config(there, "owner", namespace="kube-system")
        await there.settle()
        await config(there, "child", elsewhere)
        await there.settle()
        assert await left(there) == ["child"]
        assert len(await there.events("OwnerRefInvalid")) == 1


async def test_an_owner_of_an_unknown_kind_never_condemns(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        unknown = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "w"}
        await config(there, "child", unknown)
        await there.settle()
        assert await left(there) == ["child"]


async def test_a_cluster_scoped_object_is_safe_from_a_namespaced_owner(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "never-was"}
        await there.client.create(NODE, {"metadata": {"name": "a", "ownerReferences": [reference]}})
        await there.settle()
        assert (await there.client.get(NODE, "a")).metadata.name == "a"


async def test_a_cache_that_lags_deletes_no_dependent(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The owner exists; only our watch has not shown it. The server is asked before a delete."""
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        await there.settle()
        there.held_watches.add("/api/v1/configmaps")
        owner = await config(there, "owner")
        there.held_watches.add("/api/v1/secrets")
        await there.client.create(
            SECRET, {"metadata": {"name": "s", "ownerReferences": [owner]}}, "default"
        )
        there.held_watches.remove("/api/v1/secrets")
        await there.settle()
        assert (await there.client.get(SECRET, "s", "default")).metadata.name == "s"


async def test_owner_that_no_watch_has_shown_takes_its_dependents(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It comes and goes while the watch is broken; the dependent was looked at in between."""
    async with world(clock, rng, log, hands=False) as there:
        there.start(GarbageCollector(there.deps))
        await there.settle()
        there.held_watches.add("/api/v1/configmaps")
        secret = {"metadata": {"name": "s", "ownerReferences": [await config(there, "owner")]}}
        await there.client.create(SECRET, secret, "default")
        await there.settle()
        await delete(there, "owner")
        await there.settle(5.0)
        with pytest.raises(NotFound):
            await there.client.get(SECRET, "s", "default")


async def test_deleted_replicationcontroller_takes_or_leaves_its_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """As kubectl asks: Background by default, Orphan on request, Foreground to wait for them."""
    async with world(clock, rng, log) as there:
        there.start(GarbageCollector(there.deps), ReplicationService(there.deps))
        for name in "ab":
            await there.add_node(name)
        for propagation in ("Background", "Foreground", "Orphan"):
            await there.add_controller(replicas=2)
            await there.until(lambda: there.ready(2))
            await there.client.delete(
                REPLICATIONCONTROLLER, "web", "default", propagation=propagation
            )
            await there.settle(5.0)
            with pytest.raises(NotFound):
                await there.controller()
            pods = (await there.client.list(POD)).items
            assert len(pods) == (2 if propagation == "Orphan" else 0)
        assert all(not pod.metadata.owner_references for pod in await there.pods())
