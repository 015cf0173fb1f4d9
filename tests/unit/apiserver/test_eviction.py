"""Evictions ask the pod's disruption budget, and never spend an allowance twice."""

import asyncio

import pytest
from tests.unit.apiserver.server import PODS, TABLE, Server, pod

from grange.api.kinds.poddisruptionbudget import ALWAYS_ALLOW
from grange.api.meta import Document
from grange.base.tasks import Nursery

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
EVICTION: Document = {"apiVersion": "policy/v1", "kind": "Eviction"}
WEB = {"app": "web"}


async def running(server: Server, name: str, *, ready: bool = True, app: str = "web") -> None:
    document = pod(name)
    document["metadata"]["labels"] = {"app": app}
    await server.made(PODS, document)
    await server.bind(name)
    condition = {"type": "Ready", "status": str(ready)}
    status = {"status": {"phase": "Running", "conditions": [condition]}}
    assert (await server.patch(f"{PODS}/{name}/status", status)).code == 200


async def budget(server: Server, name: str = "web", *, status: Document, **spec: object) -> None:
    """A budget with a status as its controller would have written it."""
    document = {
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": WEB}, **spec},
    }
    await server.made(BUDGETS, document)
    full = {"status": {"observedGeneration": 1, "expectedPods": 3, **status}}
    assert (await server.patch(f"{BUDGETS}/{name}/status", full)).code == 200


async def status_of(server: Server, name: str = "web") -> Document:
    found: Document = (await server.get(f"{BUDGETS}/{name}")).body["status"]
    return found


def allowing(count: int) -> Document:
    return {"disruptionsAllowed": count, "currentHealthy": 1 + count, "desiredHealthy": 1}


async def leaving(server: Server, name: str) -> bool:
    meta = (await server.get(f"{PODS}/{name}")).body["metadata"]
    return "deletionTimestamp" in meta


async def test_eviction_uses_the_budget_and_sets_a_condition(
    server: Server,
) -> None:
    await running(server, "a")
    await budget(server, status=allowing(1))
    answer = await server.create(f"{PODS}/a/eviction", EVICTION)
    assert (answer.code, answer.body["status"]) == (201, "Success")
    status = await status_of(server)
    assert status["disruptionsAllowed"] == 0
    assert [*status["disruptedPods"]] == ["a"]
    assert [(item["type"], item["status"]) for item in status["conditions"]] == [
        ("DisruptionAllowed", "False")
    ]
    found = (await server.get(f"{PODS}/a")).body
    assert found["metadata"]["deletionTimestamp"]
    reported = {
        item["type"]: item["reason"] for item in found["status"]["conditions"] if "reason" in item
    }
    assert reported["DisruptionTarget"] == "EvictionByEvictionAPI"


async def test_a_spent_budget_refuses_with_its_cause(server: Server) -> None:
    await running(server, "a")
    await budget(server, status=allowing(0))
    answer = await server.create(f"{PODS}/a/eviction", EVICTION)
    assert (answer.code, answer.reason) == (429, "TooManyRequests")
    cause = answer.body["details"]["causes"][0]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget web needs 1 healthy pods and has 1 currently"
    assert answer.headers["Retry-After"] == "10"
    assert not await leaving(server, "a")


async def test_two_evictions_at_once_never_spend_the_same_allowance(server: Server) -> None:
    for name in "abc":
        await running(server, name)
    await budget(server, status=allowing(2))
    codes: list[int] = []

    async def evict(name: str) -> None:
        codes.append((await server.create(f"{PODS}/{name}/eviction", EVICTION)).code)
        await asyncio.sleep(0)

    async with Nursery("evictions") as nursery:
        for name in "abc":
            nursery.start(evict(name))
    assert sorted(codes) == [201, 201, 429]
    assert (await status_of(server))["disruptionsAllowed"] == 0


async def test_a_budget_that_its_controller_has_not_seen_refuses(server: Server) -> None:
    await running(server, "a")
    await budget(server, status={**allowing(5), "observedGeneration": 0})
    answer = await server.create(f"{PODS}/a/eviction", EVICTION)
    assert answer.code == 429
    assert "still being processed" in answer.body["details"]["causes"][0]["message"]


async def test_other_pods_and_empty_selectors(server: Server) -> None:
    """An empty selector covers the whole namespace, none at all covers none."""
    await running(server, "a", app="other")
    await budget(server, status=allowing(0))
    await budget(server, "none", status=allowing(0), selector=None)
    assert (await server.create(f"{PODS}/a/eviction", EVICTION, dryRun="All")).code == 201
    await budget(server, "all", status=allowing(0), selector={})
    assert (await server.create(f"{PODS}/a/eviction", EVICTION)).code == 429


async def test_several_budgets_for_one_pod_are_an_error(server: Server) -> None:
    await running(server, "a")
    await budget(server, "one", status=allowing(1))
    await budget(server, "two", status=allowing(1))
    answer = await server.create(f"{PODS}/a/eviction", EVICTION)
    assert answer.code == 500
    assert "one, two" in answer.message


async def test_pods_that_do_not_run_yet_or_any_more_are_free_to_go(server: Server) -> None:
    document = pod("waiting")
    document["metadata"]["labels"] = WEB
    await server.made(PODS, document)
    await running(server, "ended")
    await server.patch(f"{PODS}/ended/status", {"status": {"phase": "Failed"}})
    await budget(server, status=allowing(0))
    for name in ("waiting", "ended"):
        assert (await server.create(f"{PODS}/{name}/eviction", EVICTION)).code == 201
    assert "disruptedPods" not in await status_of(server)


@pytest.mark.parametrize(
    ("status", "policy", "code"),
    [
        (allowing(0), None, 201),  # enough others are healthy
        ({"currentHealthy": 0, "desiredHealthy": 1}, None, 429),
        ({"currentHealthy": 0, "desiredHealthy": 1}, ALWAYS_ALLOW, 201),
        ({"currentHealthy": 0, "desiredHealthy": 0}, None, 429),
    ],
)
async def test_pods_that_are_not_ready(
    server: Server, status: Document, policy: str | None, code: int
) -> None:
    await running(server, "sick", ready=False)
    more = {"unhealthyPodEvictionPolicy": policy} if policy else {}
    await budget(server, status=status, **more)
    assert (await server.create(f"{PODS}/sick/eviction", EVICTION)).code == code
    assert "disruptedPods" not in await status_of(server)


async def test_a_dry_run_spends_nothing(server: Server) -> None:
    await running(server, "a")
    await budget(server, status=allowing(1))
    before = server.store.revision
    body = {**EVICTION, "deleteOptions": {"dryRun": ["All"]}}
    assert (await server.create(f"{PODS}/a/eviction", body)).code == 201
    assert server.store.revision == before
    await budget(server, "strict", status=allowing(0), selector={})
    await server.delete(f"{BUDGETS}/web")
    assert (await server.create(f"{PODS}/a/eviction", body)).code == 429


async def test_a_failed_precondition_spends_nothing(server: Server) -> None:
    await running(server, "a")
    await budget(server, status=allowing(1))
    for fence in ({"uid": "another"}, {"resourceVersion": "1"}):
        body = {**EVICTION, "deleteOptions": {"preconditions": fence}}
        assert (await server.create(f"{PODS}/a/eviction", body)).reason == "Conflict"
    assert (await status_of(server))["disruptionsAllowed"] == 1
    version = (await server.get(f"{PODS}/a")).version
    body = {**EVICTION, "deleteOptions": {"preconditions": {"resourceVersion": version}}}
    assert (await server.create(f"{PODS}/a/eviction", body)).code == 201


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"minAvailable": -1}, ["spec.minAvailable"]),
        ({"minAvailable": "101%"}, ["spec.minAvailable"]),
        ({"maxUnavailable": "some"}, ["spec.maxUnavailable"]),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec.maxUnavailable"]),
        ({"unhealthyPodEvictionPolicy": "Perhaps"}, ["spec.unhealthyPodEvictionPolicy"]),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            ["spec.selector.matchExpressions[0].operator"],
        ),
    ],
)
async def test_a_budget_must_be_in_order(server: Server, spec: Document, fields: list[str]) -> None:
    answer = await server.create(BUDGETS, {"metadata": {"name": "x"}, "spec": spec})
    assert (answer.code, answer.fields) == (422, fields)


async def test_budget_columns_are_those_of_kubernetes(server: Server) -> None:
    await budget(server, status=allowing(2), minAvailable="50%")
    table = (await server.get(f"{BUDGETS}/web", accept=TABLE)).body
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names == ["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"]
    assert table["rows"][0]["cells"][:4] == ["web", "50%", "N/A", 2]


async def test_eviction_that_meets_another_version_gives_back(server: Server) -> None:
    """The pod changed after the budget was charged: nothing is to wait for its end."""
    await running(server, "a")
    await budget(server, status=allowing(1))
    meta = (await server.get(f"{PODS}/a")).body["metadata"]
    fence = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    eviction = {**EVICTION, "deleteOptions": {"preconditions": fence}}
    codes: list[int] = []

    async def evict() -> None:
        codes.append((await server.create(f"{PODS}/a/eviction", eviction)).code)

    async def change() -> None:
        await server.patch(f"{PODS}/a", {"metadata": {"labels": {"changed": "yes"}}})

    async with Nursery() as nursery:
        nursery.start(evict())
        nursery.start(change())
    assert codes == [409]
    assert (await status_of(server)).get("disruptedPods", {}) == {}
    assert not await leaving(server, "a")
