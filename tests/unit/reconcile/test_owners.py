"""Claiming: ours stay ours, orphans that fit are adopted, those that no longer fit are let go."""

import pytest
from tests.support.request_log import RequestLog
from tests.unit.reconcile.builders import create_owner, create_pod, pod

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectMeta, controller_of
from grange.api.status import InternalError, NotFound
from grange.client.client import Client
from grange.reconcile import owners
from grange.reconcile.owners import CannotAdopt, RefManager

GRC = REPLICATIONCONTROLLER


def manager(client: Client, owner: ReplicationController, app: str = "web") -> RefManager[Pod]:
    return RefManager(
        client,
        owner=owner,
        owner_kind=GRC,
        kind=POD,
        matches=lambda obj: obj.metadata.labels.get("app") == app,
        can_adopt=owners.live_check(client, GRC, owner),
    )


async def owned_pod(client: Client, owner: ReplicationController, name: str, app: str) -> Pod:
    document = pod(name, app=app)
    reference = owners.owner_reference(GRC, owner)
    document["metadata"]["ownerReferences"] = [
        {
            "apiVersion": reference.api_version,
            "kind": reference.kind,
            "name": reference.name,
            "uid": reference.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return await client.create(POD, document)


def names(objects: list[Pod]) -> list[str]:
    return [obj.metadata.name for obj in objects]


async def test_check_4_owner_reference_is_complete(client: Client) -> None:
    owner = await create_owner(client)
    reference = owners.owner_reference(GRC, owner)
    assert reference.api_version == "grange.dev/v1alpha1"
    assert (reference.kind, reference.name) == ("ReplicationController", "web")
    assert reference.uid == owner.metadata.uid
    assert reference.controller
    assert reference.block_owner_deletion


async def test_orphan_that_matches_is_adopted(client: Client) -> None:
    owner = await create_owner(client)
    orphan = await create_pod(client, "a", app="web")
    claims = await manager(client, owner).claim([orphan])
    assert names(claims.objects) == ["a"]
    assert owners.is_controlled_by(claims.objects[0], owner)
    live = await client.get(POD, "a", "default")
    assert owners.is_controlled_by(live, owner)


async def test_check_11_object_of_another_owner_is_not_ours(
    client: Client, request_log: RequestLog
) -> None:
    owner, other = await create_owner(client), await create_owner(client, "other")
    theirs = await owned_pod(client, other, "a", "web")
    request_log.requests.clear()
    claims = await manager(client, owner).claim([theirs])
    assert (claims.objects, claims.errors) == ([], [])
    assert request_log.requests == []


async def test_check_12_owned_that_no_longer_matches_is_released(client: Client) -> None:
    owner = await create_owner(client)
    ours = await owned_pod(client, owner, "a", "db")
    claims = await manager(client, owner).claim([ours])
    assert claims.objects == []
    live = await client.get(POD, "a", "default")
    assert controller_of(live.metadata) is None


async def test_check_9_owned_that_matches_is_claimed_without_a_write(
    client: Client, request_log: RequestLog
) -> None:
    owner = await create_owner(client)
    ours = await owned_pod(client, owner, "a", "web")
    foreign = await create_pod(client, "b", app="db")
    request_log.requests.clear()
    claims = await manager(client, owner).claim([ours, foreign])
    assert names(claims.objects) == ["a"]
    assert request_log.requests == []


async def test_check_10_terminating_owner_keeps_its_own_adopts_nothing(client: Client) -> None:
    await create_owner(client, finalizers=("example.com/hold",))
    await client.delete(GRC, "web", "default")
    owner = await client.get(GRC, "web", "default")
    assert owner.metadata.deletion_timestamp
    ours = await owned_pod(client, owner, "a", "web")
    stray = await owned_pod(client, owner, "b", "db")
    orphan = await create_pod(client, "c", app="web")
    claims = await manager(client, owner).claim([ours, stray, orphan])
    assert names(claims.objects) == ["a"]
    live = await client.get(POD, "b", "default")
    assert owners.is_controlled_by(live, owner)


async def terminating(client: Client, name: str) -> Pod:
    held = await client.patch(
        POD, name, "default", patch={"metadata": {"finalizers": ["example.com/hold"]}}
    )
    await client.delete(POD, held.metadata.name, "default")
    return await client.get(POD, held.metadata.name, "default")


async def test_check_13_terminating_orphan_is_not_adopted(
    client: Client,
) -> None:
    owner = await create_owner(client)
    await create_pod(client, "a", app="web")
    await owned_pod(client, owner, "b", "web")
    orphan, ours = await terminating(client, "a"), await terminating(client, "b")
    assert orphan.metadata.deletion_timestamp
    claims = await manager(client, owner).claim([orphan, ours])
    assert names(claims.objects) == ["b"]


async def test_check_14_adoption_check_is_made_once_and_blocks_only_it(
    client: Client, request_log: RequestLog
) -> None:
    owner = await create_owner(client)
    ours = await owned_pod(client, owner, "a", "web")
    orphans = [await create_pod(client, name, app="web") for name in "bcd"]
    request_log.requests.clear()
    request_log.error = InternalError("cannot read")
    request_log.fails = lambda request: "replicationcontrollers" in request.path
    claims = await manager(client, owner).claim([orphans[0], ours, *orphans[1:]])
    assert names(claims.objects) == ["a"]
    assert [type(error) for error in claims.errors] == [CannotAdopt] * 3
    assert len(request_log.requests) == 1


async def test_check_14_recreated_owner_must_not_adopt(client: Client) -> None:
    """A cache that is behind shows the old owner; the pods belong to none yet."""
    old = await create_owner(client)
    await client.delete(GRC, "web", "default")
    new = await create_owner(client)
    assert new.metadata.uid != old.metadata.uid
    orphan = await create_pod(client, "a", app="web")
    claims = await manager(client, old).claim([orphan])
    assert claims.objects == []
    assert "another object" in str(claims.errors[0])


async def test_check_15_live_check_refuses_missing_or_leaving_owners(client: Client) -> None:
    owner = await create_owner(client, finalizers=("example.com/hold",))
    check = owners.live_check(client, GRC, owner)
    await check()
    await client.delete(GRC, "web", "default")
    with pytest.raises(CannotAdopt, match=r"default/web: is being deleted since 20"):
        await check()
    await client.patch(GRC, "web", "default", patch={"metadata": {"finalizers": None}})
    with pytest.raises(CannotAdopt, match="cannot recheck the deletion timestamp") as caught:
        await check()
    assert isinstance(caught.value.__cause__, NotFound)


async def test_orphan_that_is_gone_or_another_by_now_is_not_claimed(client: Client) -> None:
    owner = await create_owner(client)
    gone = await create_pod(client, "a", app="web")
    replaced = await create_pod(client, "b", app="web")
    for name in "ab":
        await client.delete(POD, name, "default", grace_period_s=0)
    await create_pod(client, "b", app="web")
    claims = await manager(client, owner).claim([gone, replaced])
    assert claims.objects == []
    assert [type(error).__name__ for error in claims.errors] == ["Conflict"]
    live = await client.get(POD, "b", "default")
    assert controller_of(live.metadata) is None, "an object of the same name is never touched"


async def test_adoption_that_comes_second_is_refused_by_the_server(client: Client) -> None:
    first, second = await create_owner(client), await create_owner(client, "other")
    orphan = await create_pod(client, "a", app="web")
    await manager(client, first).claim([orphan])
    claims = await manager(client, second).claim([orphan])
    assert claims.objects == []
    assert len(claims.errors) == 1
    live = await client.get(POD, "a", "default")
    assert owners.is_controlled_by(live, first)


async def test_error_with_one_object_does_not_stop_the_others(
    client: Client, request_log: RequestLog
) -> None:
    owner = await create_owner(client)
    orphans = [await create_pod(client, name, app="web") for name in "abc"]
    request_log.error = InternalError("no")
    request_log.fails = lambda request: request.path.endswith("/b")
    claims = await manager(client, owner).claim(orphans)
    assert names(claims.objects) == ["a", "c"]
    assert len(claims.errors) == 1


async def test_claims_of_custom_kinds_keep_other_owners(
    client: Client, request_log: RequestLog
) -> None:
    """The merge patch replaces the list, so the whole list is written, fenced by its version."""
    owner = await create_owner(client, "parent")
    child = await create_owner(client, "child")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "other"}
    child = await client.patch(
        GRC, "child", "default", patch={"metadata": {"ownerReferences": [other]}}
    )
    claimant: RefManager[ReplicationController] = RefManager(
        client,
        owner=owner,
        owner_kind=GRC,
        kind=GRC,
        matches=lambda obj: obj.metadata.name == "child",
        can_adopt=owners.live_check(client, GRC, owner),
    )
    stale = child
    claims = await claimant.claim([child])
    assert [item.uid for item in claims.objects[0].metadata.owner_references] == [
        "other",
        owner.metadata.uid,
    ]
    again = await claimant.claim([stale])
    assert [type(error).__name__ for error in again.errors] == ["Conflict"]


def test_controlled_means_the_same_uid() -> None:
    owner = ReplicationController(metadata=ObjectMeta(name="web", uid="1"))
    same_name = ReplicationController(metadata=ObjectMeta(name="web", uid="2"))
    reference = owners.owner_reference(GRC, owner)
    obj = Pod(metadata=ObjectMeta(name="a", owner_references=(reference,)))
    assert owners.is_controlled_by(obj, owner)
    assert not owners.is_controlled_by(obj, same_name)
