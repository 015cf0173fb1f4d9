"""Nothing may be put into a namespace that is not there, or that is being emptied."""

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, NAMESPACES, Server, configmap

from grange.apiserver.admission.namespacelifecycle import BUILT_IN


async def test_missing_namespace_is_not_found_by_name(server: Server) -> None:
    answer = await server.create("/api/v1/namespaces/nowhere/configmaps", configmap())
    assert (answer.code, answer.reason) == (404, "NotFound")
    assert answer.message == 'namespaces "nowhere" not found'
    assert answer.body["details"] == {"kind": "namespaces", "name": "nowhere"}


async def test_terminating_namespace_refuses_creates_allows_deletes(server: Server) -> None:
    await server.made(NAMESPACES, {"metadata": {"name": "team"}})
    inside = "/api/v1/namespaces/team/configmaps"
    await server.made(inside, configmap("old"))
    await server.delete(f"{NAMESPACES}/team")
    answer = await server.create(inside, configmap("new"))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "namespace team because it is being terminated" in answer.message
    assert answer.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert (await server.patch(f"{inside}/old", {"data": {"a": "b"}})).code == 200
    assert (await server.delete(f"{inside}/old")).code == 200


async def test_namespace_that_is_made_again_is_open_again(server: Server) -> None:
    inside = "/api/v1/namespaces/team/configmaps"
    for _ in range(2):
        await server.made(NAMESPACES, {"metadata": {"name": "team"}})
        await server.made(inside, configmap())
        await server.delete(f"{inside}/settings")
        await server.delete(f"{NAMESPACES}/team")
        assert (await server.create(inside, configmap())).code == 403
        space = (await server.get(f"{NAMESPACES}/team")).body
        await server.update(f"{NAMESPACES}/team/finalize", {**space, "spec": {}})
        assert (await server.create(inside, configmap())).code == 404


@pytest.mark.parametrize("name", BUILT_IN)
async def test_namespaces_of_the_system_stay(server: Server, name: str) -> None:
    answer = await server.delete(f"{NAMESPACES}/{name}")
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "may not be deleted" in answer.message
    assert (await server.get(f"{NAMESPACES}/{name}")).body["status"]["phase"] == "Active"


async def test_bootstrap_is_idempotent(server: Server) -> None:
    before = server.store.revision
    await server.application.bootstrap()
    assert server.store.revision == before
    assert (await server.get(NAMESPACES)).names == sorted(BUILT_IN)


async def test_dry_run_is_admitted_by_the_same_rules(server: Server) -> None:
    path = CONFIGMAPS.replace("default", "nowhere")
    assert (await server.create(path, configmap(), dryRun="All")).code == 404
