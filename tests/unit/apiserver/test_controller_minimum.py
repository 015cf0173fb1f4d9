"""Evictions ask the minimum of the pod's ReplicationController where no disruption budget covers it."""

import asyncio
from typing import Any

import pytest
from tests.unit.apiserver.server import PODS, Answer, Server, pod
from tests.unit.apiserver.test_eviction import EVICTION, allowing, budget, leaving

from grange.api import timestamps
from grange.api.meta import Document
from grange.base.tasks import Nursery

CONTROLLERS = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers"
NODES = "/api/v1/nodes"
TEMPLATE = {"spec": {"containers": [{"name": "c", "image": "i", "command": ["run"]}]}}


async def service(server: Server, pods: str = "abc", **rollout: object) -> str:
    """A controller that asks for so many pods as there are, each ready on its own node."""
    spec = {"replicas": len(pods), "template": TEMPLATE, "rollout": rollout}
    made = await server.made(CONTROLLERS, {"metadata": {"name": "web"}, "spec": spec})
    uid: str = made["metadata"]["uid"]
    for name in pods:
        await server.made(NODES, {"metadata": {"name": name}})
        await set_ready(server, f"{NODES}/{name}", "True")
        document = pod(name)
        document["metadata"]["labels"] = {"app": "web"}
        owner = {"apiVersion": "grange.dev/v1alpha1", "kind": "ReplicationController"}
        document["metadata"]["ownerReferences"] = [
            {**owner, "name": "web", "uid": uid, "controller": True}
        ]
        await server.made(PODS, document)
        await server.bind(name, name)
        await set_ready(server, f"{PODS}/{name}", "True", phase="Running")
    return uid


async def set_ready(server: Server, path: str, status: str, **more: str) -> None:
    now = timestamps.rfc3339(server.application.registry.clock.now())
    condition = {"type": "Ready", "status": status, "lastTransitionTime": now}
    change = {"status": {"conditions": [condition], **more}}
    assert (await server.patch(f"{path}/status", change)).code == 200


async def evicted(server: Server, name: str, body: Document = EVICTION) -> Answer:
    return await server.create(f"{PODS}/{name}/eviction", body)


async def pending(server: Server) -> list[dict[str, Any]]:
    status = (await server.get(f"{CONTROLLERS}/web")).body.get("status", {})
    found: list[dict[str, Any]] = status.get("pendingDeletions", [])
    return found


async def test_minimum_refuses_with_its_cause(server: Server) -> None:
    await service(server, maxUnavailable=1)
    assert (await evicted(server, "a")).code == 201
    answer = await evicted(server, "b")
    assert (answer.code, answer.reason) == (429, "TooManyRequests")
    cause = answer.body["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert "ReplicationController web needs 2 available pods" in cause["message"]
    assert await leaving(server, "a")
    assert not await leaving(server, "b")


async def test_eviction_is_recorded_at_the_version_of_the_pod(server: Server) -> None:
    await service(server, maxUnavailable=1)
    meta = (await server.get(f"{PODS}/a")).body["metadata"]
    assert (await evicted(server, "a")).code == 201
    version = meta["resourceVersion"]
    assert await pending(server) == [{"pod": "a", "uid": meta["uid"], "resourceVersion": version}]
    found = (await server.get(f"{PODS}/a")).body
    reasons = {item["type"]: item.get("reason") for item in found["status"]["conditions"]}
    assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"


async def test_evictions_at_once_never_spend_the_same_pod(server: Server) -> None:
    await service(server, "abcde", maxUnavailable=2)
    codes: list[int] = []

    async def evict(name: str) -> None:
        codes.append((await evicted(server, name)).code)

    async with Nursery("drains") as nursery:
        for name in "abcde":
            nursery.start(evict(name))
        await asyncio.sleep(0)
    assert sorted(codes) == [201, 201, 429, 429, 429]
    assert sum([await leaving(server, name) for name in "abcde"]) == 2


async def test_deletion_that_the_controller_has_recorded_counts(server: Server) -> None:
    await service(server, maxUnavailable=1)
    meta = (await server.get(f"{PODS}/b")).body["metadata"]
    item = {"pod": "b", "uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    status = {"status": {"pendingDeletions": [item]}}
    assert (await server.patch(f"{CONTROLLERS}/web/status", status)).code == 200
    assert (await evicted(server, "a")).code == 429
    assert (await evicted(server, "b")).code == 201  # that one is counted as gone already


async def test_marked_pods_and_silent_nodes_do_not_count(server: Server) -> None:
    await service(server, "abcd", maxUnavailable=2)
    mark = {"type": "DisruptionTarget", "status": "True"}
    change = {"status": {"conditions": [mark]}}
    path = f"{PODS}/b/status"
    assert (await server.patch(path, change, "application/strategic-merge-patch+json")).code == 200
    await set_ready(server, f"{NODES}/c", "Unknown")
    assert (await evicted(server, "a")).code == 429
    await set_ready(server, f"{NODES}/c", "True")
    assert (await evicted(server, "a")).code == 201


async def test_pods_count_after_min_ready_seconds(server: Server) -> None:
    await service(server, maxUnavailable=1, minReadySeconds=60)
    await set_ready(server, f"{PODS}/c", "False", phase="Running")
    await server.application.registry.clock.sleep(61.0)
    await set_ready(server, f"{PODS}/c", "True", phase="Running")
    assert (await evicted(server, "a")).code == 429
    await server.application.registry.clock.sleep(61.0)
    assert (await evicted(server, "a")).code == 201


@pytest.mark.parametrize(
    ("pods", "rollout", "code"),
    [
        ("a", {}, 201),
        ("abc", {}, 201),
        ("a", {"maxUnavailable": 0, "maxSurge": 1}, 429),
        ("abc", {"maxUnavailable": 0, "maxSurge": 1}, 429),
        ("abc", {"maxUnavailable": "100%"}, 201),
    ],
)
async def test_minimum_is_that_without_surge(
    server: Server, pods: str, rollout: Document, code: int
) -> None:
    await service(server, pods, **rollout)
    assert (await evicted(server, "a")).code == code


async def test_budget_is_asked_instead_where_one_covers_the_pod(server: Server) -> None:
    await service(server, maxUnavailable=0, maxSurge=1)
    await budget(server, status=allowing(1))
    assert (await evicted(server, "a")).code == 201
    assert await pending(server) == []


async def test_unavailable_pod_goes_without_being_recorded(server: Server) -> None:
    await service(server, maxUnavailable=0, maxSurge=1)
    await set_ready(server, f"{PODS}/a", "False", phase="Running")
    assert (await evicted(server, "a")).code == 201
    assert await pending(server) == []


async def test_dry_run_asks_and_records_nothing(server: Server) -> None:
    await service(server, maxUnavailable=1)
    body: Document = {**EVICTION, "deleteOptions": {"dryRun": ["All"]}}
    assert (await evicted(server, "a", body)).code == 201
    assert await pending(server) == []
    assert not await leaving(server, "a")
    assert (await evicted(server, "b")).code == 201
    assert (await evicted(server, "a", body)).code == 429


async def test_pod_of_a_deleted_controller_goes(server: Server) -> None:
    await service(server, maxUnavailable=0, maxSurge=1)
    body: Document = {"propagationPolicy": "Orphan"}
    await server.patch(f"{CONTROLLERS}/web", {"metadata": {"finalizers": ["example.com/wait"]}})
    assert (await server.delete(f"{CONTROLLERS}/web", body)).code in {200, 202}
    assert (await evicted(server, "a")).code == 201
