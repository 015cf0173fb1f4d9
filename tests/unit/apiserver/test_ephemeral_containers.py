"""Programs that are added to a pod: by their own subresource, and never taken away."""

from typing import Any

import pytest
from tests.unit.apiserver.server import PODS, Server, pod

PATH = f"{PODS}/web/ephemeralcontainers"
STRATEGIC = "application/strategic-merge-patch+json"


def patch(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"ephemeralContainers": list(containers)}}


def added(name: str = "debug", **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": ["sh"], **fields}


async def test_container_is_added_and_nothing_else_changes(server: Server) -> None:
    made = await server.made(PODS, pod())
    wanted = {"metadata": {"labels": {"a": "b"}}, **patch(added())}
    first = await server.patch(PATH, wanted, STRATEGIC)
    assert first.code == 200, first.message
    second = await server.patch(PATH, patch(added("other", stdin=True)), STRATEGIC)
    assert second.code == 200, second.message
    body = second.body
    found = body["spec"].pop("ephemeralContainers")
    assert sorted(item["name"] for item in found) == ["debug", "other"]
    assert all(item["terminationMessagePolicy"] == "File" for item in found)
    assert body["spec"] == made["spec"]
    assert body["metadata"].get("labels") == made["metadata"].get("labels")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (added("main"), "spec.ephemeralContainers[0].name"),
        (added(ports=[{"containerPort": 80}]), "spec.ephemeralContainers[0].ports"),
        (
            added(targetContainerName="none"),
            "spec.ephemeralContainers[0].targetContainerName",
        ),
        ({"name": "debug"}, "spec.ephemeralContainers[0].command"),
    ],
)
async def test_unfit_container_is_refused(
    server: Server, given: dict[str, Any], field: str
) -> None:
    await server.made(PODS, pod())
    answer = await server.patch(PATH, patch(given), STRATEGIC)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert [cause["field"] for cause in answer.body["details"]["causes"]] == [field]


async def test_container_stays_as_it_was_added(server: Server) -> None:
    await server.made(PODS, pod())
    await server.patch(PATH, patch(added()), STRATEGIC)
    for change in (added(command=["ls"]), None):
        wanted = {"spec": {"ephemeralContainers": [change] if change else None}}
        answer = await server.patch(PATH, wanted, "application/merge-patch+json")
        assert answer.code == 422
        assert "may not change or be removed" in answer.message


@pytest.mark.parametrize("spec", ["text", [], {"ephemeralContainers": "text"}])
async def test_value_of_another_type_is_refused(server: Server, spec: Any) -> None:
    await server.made(PODS, pod())
    for path in (PATH, f"{PODS}/web"):
        answer = await server.patch(path, {"spec": spec}, "application/merge-patch+json")
        assert answer.code in (400, 422), (path, answer.message)


async def test_pod_itself_takes_none(server: Server) -> None:
    document = pod()
    document["spec"]["ephemeralContainers"] = [added()]
    refused = await server.create(PODS, document)
    assert "may not be set when a pod is created" in refused.message
    await server.made(PODS, pod())
    answer = await server.patch(f"{PODS}/web", patch(added()), STRATEGIC)
    assert answer.code == 422
    assert "through the subresource ephemeralcontainers only" in answer.message
