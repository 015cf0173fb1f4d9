"""The server is asked about writes without an answer, and about those the cache never shows."""

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, ObjectKey
from grange.api.status import Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.reconcile import owners
from grange.reconcile.expectations import OVERDUE_S, Expectations
from grange.reconcile.unanswered import wait_s

KINDS = {"": POD}


async def owner_of(there: World) -> ReplicationController:
    await there.add_controller(replicas=0)
    return await there.controller()


async def add_pod(there: World, owner: ReplicationController | None) -> str:
    """A pod ``p``, of the owner or of none; its uid."""
    meta: Document = {"name": "p", "labels": {"app": "web"}}
    if owner is not None:
        reference = owners.owner_reference(REPLICATIONCONTROLLER, owner)
        meta["ownerReferences"] = [
            {
                "apiVersion": reference.api_version,
                "kind": reference.kind,
                "name": reference.name,
                "uid": reference.uid,
                "controller": True,
            }
        ]
    document = {"metadata": meta, "spec": builders.TEMPLATE["spec"]}
    return (await there.client.create(POD, document, "default")).metadata.uid


async def test_creation_of_the_owner_is_awaited_further(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        uid = owner.metadata.uid
        expectations.expect_creations(uid, ["p"])
        await add_pod(there, owner)
        expectations.creation_failed(uid, "p", Timeout("no answer"))
        assert await wait_s(there.client, expectations, owner, KINDS) == OVERDUE_S
        expectations.creation_observed(uid, "p")
        assert await wait_s(there.client, expectations, owner, KINDS) == 0.0


async def test_name_of_another_owner_is_no_creation(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        uid = owner.metadata.uid
        expectations.expect_creations(uid, ["p"])
        await add_pod(there, None)
        expectations.creation_failed(uid, "p", Timeout("no answer"))
        assert await wait_s(there.client, expectations, owner, KINDS) == 0.0


async def test_object_of_another_uid_means_the_deletion_happened(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        uid = owner.metadata.uid
        there_now = await add_pod(there, owner)
        expectations.expect_deletions(uid, {"before": "p", there_now: "p"})
        for pod_uid in ("before", there_now):
            expectations.deletion_failed(uid, pod_uid, Timeout("no answer"))
        assert await wait_s(there.client, expectations, owner, KINDS) == OVERDUE_S
        assert expectations.awaited(uid).deletions == ("before",)


@pytest.mark.parametrize("gone", [False, True])
async def test_deletion_that_the_cache_showed_before_is_settled(
    clock: Clock, rng: Stream, log: Logger, gone: bool
) -> None:
    """Another client deleted it between the look at the cache and the request, which was lost."""
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        uid, store = owner.metadata.uid, there.deps.informers.informer(POD).store
        pod_uid = await add_pod(there, owner)
        if not gone:
            held = {"metadata": {"finalizers": ["example.com/held"]}}
            await there.client.patch(POD, "p", "default", patch=held)
        await there.client.delete(POD, "p", "default", grace_period_s=0)
        await clock.sleep(1)
        assert (store.get(ObjectKey("default", "p")) is None) == gone
        expectations.expect_deletions(uid, {pod_uid: "p"})
        expectations.deletion_failed(uid, pod_uid, Timeout("no answer"))
        assert await wait_s(there.client, expectations, owner, KINDS, caches={"": store}) == 0.0


async def test_creation_the_cache_never_shows_is_read_when_overdue(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """It was deleted before a relist: the cache learns neither that it came nor that it went."""
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        expectations.expect_creations(owner.metadata.uid, ["p"])
        assert await wait_s(there.client, expectations, owner, KINDS) == OVERDUE_S
        await clock.sleep(OVERDUE_S)
        assert await wait_s(there.client, expectations, owner, KINDS) == 0.0
        assert expectations.expired == 0


async def test_creation_that_the_cache_showed_before_is_settled(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The name was taken by an object of the owner, and the answer that states it was lost."""
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        uid, store = owner.metadata.uid, there.informers.informer(POD).store
        await add_pod(there, owner)
        await clock.sleep(1)
        expectations.expect_creations(uid, ["p"])
        expectations.creation_failed(uid, "p", Timeout("no answer"))
        assert await wait_s(there.client, expectations, owner, KINDS, caches={"": store}) == 0.0


async def test_creation_behind_an_older_cached_object_is_awaited(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        owner, expectations = await owner_of(there), Expectations(clock)
        uid, store = owner.metadata.uid, there.deps.informers.informer(POD).store
        await add_pod(there, owner)
        await clock.sleep(1)
        there.held_watches.add("/api/v1/pods")
        await there.client.delete(POD, "p", "default", grace_period_s=0)
        await add_pod(there, owner)
        expectations.expect_creations(uid, ["p"])
        expectations.creation_failed(uid, "p", Timeout("no answer"))
        waited = await wait_s(there.client, expectations, owner, KINDS, caches={"": store})
        assert waited == OVERDUE_S
