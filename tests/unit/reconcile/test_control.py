"""Creating and deleting on an owner's behalf: one write, with the checks that precede it."""

import copy

import pytest
from tests.support.request_log import RequestLog
from tests.unit.reconcile.builders import create_owner, create_pod, pod, reference

from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.status import Conflict
from grange.client.client import Client
from grange.reconcile.control import (
    NoLabels,
    covers,
    create_owned,
    delete_object,
    find_owned,
    from_template,
)
from grange.reconcile.owners import InvalidReference, check_reference, owner_reference


async def test_check_16_create_is_one_post_with_labels_name_and_owner(
    client: Client, request_log: RequestLog
) -> None:
    request_log.requests.clear()
    made = await create_owned(client, POD, pod("a", app="web"), reference())
    assert request_log.requests == ["POST /api/v1/namespaces/default/pods"]
    assert made.metadata.labels == {"app": "web"}
    assert [item.uid for item in made.metadata.owner_references] == ["u"]


BAD: dict[str, dict[str, object]] = {
    "apiVersion": {"api_version": ""},
    "kind": {"kind": ""},
    "controller": {"controller": None},
    "blockOwnerDeletion": {"block_owner_deletion": False},
}


@pytest.mark.parametrize("field", list(BAD))
async def test_check_17_invalid_references_are_refused_before_any_call(
    client: Client, request_log: RequestLog, field: str
) -> None:
    request_log.requests.clear()
    with pytest.raises(InvalidReference, match=field):
        await create_owned(client, POD, pod("a"), reference(**BAD[field]))
    assert request_log.requests == []


def test_check_17_missing_reference_is_refused() -> None:
    with pytest.raises(InvalidReference, match="required"):
        check_reference(None)


async def test_check_17_object_without_labels_is_refused(
    client: Client, request_log: RequestLog
) -> None:
    document = pod("a")
    del document["metadata"]["labels"]
    request_log.requests.clear()
    with pytest.raises(NoLabels):
        await create_owned(client, POD, document, reference())
    with pytest.raises(NoLabels):
        from_template({"spec": {}}, name="a", namespace="ns", owner=reference())
    assert request_log.requests == []


async def test_check_18_delete_of_a_terminating_object_makes_no_call(
    client: Client, request_log: RequestLog
) -> None:
    await create_pod(client, "a")
    await client.patch(
        POD, "a", "default", patch={"metadata": {"finalizers": ["example.com/hold"]}}
    )
    await client.delete(POD, "a", "default")
    obj = await client.get(POD, "a", "default")
    request_log.requests.clear()
    assert not await delete_object(client, POD, obj)
    assert request_log.requests == []


async def test_check_18_delete_of_a_missing_object_is_a_silent_success(client: Client) -> None:
    """Upstream reads first; the fenced delete finds out with the same one request."""
    obj = await create_pod(client, "a")
    assert await delete_object(client, POD, obj)
    assert not await delete_object(client, POD, obj)


async def test_delete_never_hits_another_of_the_name(client: Client) -> None:
    old = await create_pod(client, "a")
    await client.delete(POD, "a", "default")
    new = await create_pod(client, "a")
    assert not await delete_object(client, POD, old)
    assert (await client.get(POD, "a", "default")).metadata.uid == new.metadata.uid


def test_template_is_copied_deeply_and_left_alone() -> None:
    template = {
        "metadata": {
            "name": "ignored",
            "labels": {"app": "web"},
            "annotations": {"a": "b"},
            "finalizers": ["f"],
        },
        "spec": {"containers": [{"name": "c"}]},
        "status": {"phase": "Running"},
    }
    before = copy.deepcopy(template)
    made = from_template(template, name="web-0", namespace="ns", owner=reference())
    made["spec"]["containers"][0]["name"] = "changed"
    made["metadata"]["labels"]["x"] = "y"
    assert template == before
    assert made["metadata"]["name"] == "web-0"
    assert made["metadata"]["finalizers"] == ["f"]
    assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert "status" not in made


async def test_taken_name_is_ours_another_s_or_free_soon(client: Client) -> None:
    owner = await create_owner(client)
    document = pod("a", app="web")
    document["metadata"]["finalizers"] = ["example.com/hold"]
    ours = await create_owned(client, POD, document, owner_reference(REPLICATIONCONTROLLER, owner))
    await create_pod(client, "b", app="web")
    assert await find_owned(client, POD, "a", owner) == ours
    assert await find_owned(client, POD, "b", owner) is None
    await client.delete(POD, "a", "default", grace_period_s=0)
    for name in ("a", "none"):
        with pytest.raises(Conflict, match=f"the name {name} is held"):
            await find_owned(client, POD, name, owner)


@pytest.mark.parametrize(
    ("live", "want", "covered"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1}}, True),
        ({"a": ({"b": 1, "default": 0},)}, {"a": [{"b": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"b": None}, True),
        (None, {"a": 1}, False),
    ],
)
def test_document_covers_what_is_wanted_of_it(live: object, want: object, covered: bool) -> None:
    assert covers(live, want) is covered
