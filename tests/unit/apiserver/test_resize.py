"""Other resources for the containers of a pod that exists: what may change, and what nodes are charged."""

from typing import Any

import pytest
from tests.unit.apiserver.server import NODES, PODS, Server, pod

from grange.sim import builders

PATH = f"{PODS}/web/resize"
STRATEGIC = "application/strategic-merge-patch+json"
RUNNING: dict[str, Any] = {
    "name": "main",
    "image": "",
    "imageID": "",
    "ready": True,
    "restartCount": 0,
    "state": {"running": {}},
    "resources": {},
}


def burstable(**fields: Any) -> dict[str, Any]:
    made = pod()
    requests = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi"}
    made["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": {"cpu": "1"}}
    made["spec"]["containers"][0] |= fields
    return made


def resources(name: str = "main", **parts: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "resources": parts}]}}


async def test_resize_changes_resources_and_nothing_else(server: Server) -> None:
    made = await server.made(PODS, burstable())
    wanted = resources(requests={"cpu": "200m"}, limits={"memory": "128Mi"})
    wanted["spec"]["containers"][0]["image"] = "other"
    wanted["metadata"] = {"labels": {"a": "b"}}
    answer = await server.patch(PATH, wanted, STRATEGIC)
    assert answer.code == 200, answer.message
    container = answer.body["spec"]["containers"][0]
    assert container["resources"] == {
        "requests": {"cpu": "200m", "memory": "64Mi", "ephemeral-storage": "1Gi"},
        "limits": {"cpu": "1", "memory": "128Mi"},
    }
    assert {**container, "resources": 0} == {**made["spec"]["containers"][0], "resources": 0}
    assert answer.body["metadata"].get("labels") == made["metadata"].get("labels")
    assert answer.body["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert (await server.get(PATH)).body == answer.body


async def test_resize_is_an_update_too(server: Server) -> None:
    made = await server.made(PODS, burstable())
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "150m"
    answer = await server.update(PATH, made)
    assert answer.code == 200, answer.message
    found = answer.body["spec"]["containers"][0]["resources"]["requests"]
    assert found["cpu"] == "150m"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        (resources(requests={"ephemeral-storage": "2Gi"}),
         "resources.requests.ephemeral-storage", "only cpu and memory"),
        (resources(requests={"memory": None}), "resources.requests.memory", "may not be removed"),
        (resources(limits={"cpu": None}), "resources.limits.cpu", "may not be removed"),
        (resources(requests={"cpu": "2"}), "resources.requests.cpu", "must be less than or equal"),
        (resources(requests={"cpu": "much"}), "resources.requests.cpu", "much"),
        (resources(limits={"example.com/gpu": "1"}), "resources.limits.example.com/gpu", "only"),
    ],
)  # fmt: skip
async def test_unfit_resize_is_refused(
    server: Server, change: dict[str, Any], field: str, message: str
) -> None:
    await server.made(PODS, burstable())
    answer = await server.patch(PATH, change, STRATEGIC)
    assert (answer.code, answer.reason) == (422, "Invalid")
    causes = answer.body["details"]["causes"]
    assert f"spec.containers[0].{field}" in [cause["field"] for cause in causes], causes
    assert message in answer.message


async def test_resize_keeps_the_class_and_the_containers(server: Server) -> None:
    await server.made(PODS, burstable())
    wanted = resources(
        requests={"cpu": "1", "memory": "64Mi"}, limits={"cpu": "1", "memory": "64Mi"}
    )
    answer = await server.patch(PATH, wanted, STRATEGIC)
    assert answer.code == 422
    assert "QoS class may not change by a resize: it is Burstable" in answer.message
    assert (await server.patch(PATH, resources("more"), STRATEGIC)).code == 422


async def test_init_container_is_resized_as_a_sidecar_only(server: Server) -> None:
    made = burstable()
    own = {"command": ["true"], "resources": {"requests": {"cpu": "100m"}}}
    made["spec"]["initContainers"] = [
        {"name": "first", **own},
        {"name": "along", "restartPolicy": "Always", **own},
    ]
    await server.made(PODS, made)
    for name, code in (("first", 422), ("along", 200)):
        change = {"name": name, "resources": {"requests": {"cpu": "200m"}}}
        answer = await server.patch(PATH, {"spec": {"initContainers": [change]}}, STRATEGIC)
        assert answer.code == code, answer.message


async def test_resources_change_through_the_subresource_only(server: Server) -> None:
    made = await server.made(PODS, burstable())
    answer = await server.patch(f"{PODS}/web", resources(requests={"cpu": "200m"}), STRATEGIC)
    assert answer.code == 422
    assert "through the subresource resize only" in answer.message
    del made["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    made["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "100m"
    assert (await server.update(f"{PODS}/web", made)).code == 422


async def test_pod_of_an_agent_that_cannot_resize_is_refused(server: Server) -> None:
    await server.made(PODS, burstable())
    for reported, code in (({"resources": None}, 422), ({}, 200)):
        status = {"containerStatuses": [{**RUNNING, **reported}]}
        written = await server.patch(f"{PODS}/web/status", {"status": status}, STRATEGIC)
        assert written.code == 200, written.message
        answer = await server.patch(PATH, resources(requests={"cpu": "200m"}), STRATEGIC)
        assert answer.code == code, answer.message


@pytest.mark.parametrize(
    ("policy", "restarts", "field"),
    [
        ([{"resourceName": "disk", "restartPolicy": "NotRequired"}], "Always", "resourceName"),
        ([{"resourceName": "cpu", "restartPolicy": "Sometimes"}], "Always", "restartPolicy"),
        ([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}], "Never", "restartPolicy"),
        ([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}], "OnFailure", ""),
    ],
)
async def test_resize_policy_is_checked(
    server: Server, policy: list[Any], restarts: str, field: str
) -> None:
    made = burstable(resizePolicy=policy)
    made["spec"]["restartPolicy"] = restarts
    answer = await server.create(PODS, made)
    assert answer.code == (422 if field else 201), answer.message
    if field:
        [cause] = answer.body["details"]["causes"]
        assert cause["field"] == f"spec.containers[0].resizePolicy[0].{field}"


async def test_node_is_charged_the_most_during_a_resize(server: Server) -> None:
    await server.made(NODES, builders.node_document("n1", capacity={"cpu": "1", "pods": "9"}))
    made = burstable()
    made["spec"]["nodeName"] = "n1"
    await server.made(PODS, made)
    await server.made(PODS, builders.pod_document("other", requests={"cpu": "500m"}))

    binding = {"metadata": {"name": "other"}, "target": {"name": "n1"}}

    async def refusal() -> str:
        answer = await server.create(f"{PODS}/other/binding", binding, dryRun="All")
        return answer.message if answer.code != 201 else ""

    async def report(allocated: str, conditions: list[Any]) -> None:
        own = {**RUNNING, "resources": {"requests": {"cpu": allocated}}}
        status = {"containerStatuses": [{**own, "allocatedResources": {"cpu": allocated}}]}
        written = {"status": {**status, "conditions": conditions}}
        assert (await server.patch(f"{PODS}/web/status", written, STRATEGIC)).code == 200

    await report("100m", [])
    assert await refusal() == ""
    await server.patch(PATH, resources(requests={"cpu": "600m"}), STRATEGIC)
    assert "500m requested, 400m free" in await refusal()
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    await report("100m", [pending])
    assert await refusal() == ""
    await report("600m", [{**pending, "reason": "Deferred"}])
    await server.patch(PATH, resources(requests={"cpu": "200m"}), STRATEGIC)
    assert "500m requested, 400m free" in await refusal()
    await report("200m", [{"type": "PodResizePending", "$patch": "delete"}])
    assert await refusal() == ""
