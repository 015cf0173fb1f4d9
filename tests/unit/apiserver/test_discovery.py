"""Clients find their way by what the server publishes about itself."""

import json
from typing import Any

import pytest
from tests.unit.apiserver.server import NODES, PODS, Server, pod

from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.apiserver import metrics_api, openapi_protobuf, reviews
from grange.base.clock import Clock

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
GO_CLIENT = f"{AGGREGATED},{AGGREGATED.replace('v=v2', 'v=v2beta1')},application/json"
V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"

KINDS = (*BUILT_IN, *reviews.KINDS, *metrics_api.KINDS)
GROUPS = [*dict.fromkeys(info.group for info in KINDS if info.group)]


async def test_groups_and_versions_are_listed(server: Server) -> None:
    assert (await server.get("/api")).body["versions"] == ["v1"]
    groups = (await server.get("/apis")).body["groups"]
    assert [group["name"] for group in groups] == GROUPS
    group = (await server.get("/apis/grange.dev")).body
    assert group["preferredVersion"] == {
        "groupVersion": "grange.dev/v1alpha1",
        "version": "v1alpha1",
    }


async def test_resources_are_listed_with_their_parts(server: Server) -> None:
    body = (await server.get("/api/v1")).body
    resources = {item["name"]: item for item in body["resources"]}
    assert body["groupVersion"] == "v1"
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods"]["namespaced"]
    assert "watch" in resources["pods"]["verbs"]
    assert resources["pods/binding"]["kind"] == "Binding"
    assert resources["pods/log"]["verbs"] == ["get"]
    assert resources["pods/status"]["verbs"] == ["get", "patch", "update"]
    eviction = resources["pods/eviction"]
    assert (eviction["group"], eviction["version"]) == ("policy", "v1")
    assert not resources["nodes"]["namespaced"]
    assert "namespaces/finalize" in resources
    assert "configmaps/status" not in resources


@pytest.mark.parametrize("path", ["/apis/apps", "/apis/apps/v1", "/apis/grange.dev/v9"])
async def test_what_is_not_served_is_not_found(server: Server, path: str) -> None:
    answer = await server.get(path)
    assert answer.code == 404
    assert "/apis" in answer.message


async def test_aggregated_discovery_has_all_at_once(server: Server) -> None:
    answer = await server.get("/apis", accept=GO_CLIENT)
    assert answer.response.content_type == AGGREGATED
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    assert answer.body["apiVersion"] == "apidiscovery.k8s.io/v2"
    names = [item["metadata"]["name"] for item in answer.body["items"]]
    assert names == GROUPS
    core = (await server.get("/api", accept=GO_CLIENT)).body["items"]
    resources = {item["resource"]: item for item in core[0]["versions"][0]["resources"]}
    assert resources["pods"]["scope"] == "Namespaced"
    assert resources["nodes"]["scope"] == "Cluster"
    parts = {part["subresource"]: part for part in resources["pods"]["subresources"]}
    assert parts["eviction"]["responseKind"]["group"] == "policy"
    assert parts["status"]["responseKind"]["kind"] == "Pod"


async def test_older_shape_of_aggregated_discovery_is_known(server: Server) -> None:
    answer = await server.get("/apis", accept=AGGREGATED.replace("v=v2", "v=v2beta1"))
    assert answer.body["apiVersion"] == "apidiscovery.k8s.io/v2beta1"


async def test_plain_discovery_is_given_to_who_prefers_it(server: Server) -> None:
    assert (await server.get("/apis", accept=f"application/json,{AGGREGATED}")).body["kind"] == (
        "APIGroupList"
    )


async def test_every_kind_of_the_scheme_is_discovered(server: Server) -> None:
    found = set()
    for root in dict.fromkeys(info.root for info in BUILT_IN):
        resources = (await server.get(root)).body["resources"]
        found |= {item["name"] for item in resources if "/" not in item["name"]}
    assert found == {info.plural for info in server.application.scheme}


async def test_version_is_one_that_clients_can_compare(server: Server) -> None:
    body = (await server.get("/version")).body
    assert (body["major"], body["minor"]) == ("1", "36")
    assert body["gitVersion"].startswith("v1.36.0+grange.")


# --- OpenAPI -----------------------------------------------------------------------------------


async def test_openapi_v3_is_found_by_its_index_and_cached_by_hash(server: Server) -> None:
    index = (await server.get("/openapi/v3")).body["paths"]
    assert set(index) == {info.root.removeprefix("/") for info in BUILT_IN}
    url = index["api/v1"]["serverRelativeURL"]
    path, _, digest = url.partition("?hash=")
    answer = await server.get(path)
    assert answer.body["openapi"].startswith("3.")
    assert answer.headers["ETag"] == f'"{digest}"'
    assert (await server.get("/openapi/v3/apis/apps/v1")).code == 404


async def test_openapi_v3_declares_that_fields_are_validated_here(server: Server) -> None:
    """kubectl looks for this parameter on PATCH and validates by itself where it is missing."""
    paths = (await server.get("/openapi/v3/api/v1")).body["paths"]
    patch = paths["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "fieldValidation" in [item["name"] for item in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Pod"


async def test_definitions_of_kinds_are_listed_and_there_are_none(server: Server) -> None:
    """kubectl asks for them before it reports that it knows no such kind."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    listed = await server.get(path)
    assert (listed.code, listed.body["kind"]) == (200, "CustomResourceDefinitionList")
    assert listed.body["items"] == []
    assert (await server.create(path, {})).code == 404
    assert (await server.get(f"{path}/x")).code == 404
    groups = (await server.get("/apis")).body["groups"]
    assert "apiextensions.k8s.io" not in [group["name"] for group in groups]


async def test_openapi_v2_is_json_or_protobuf_of_the_same(server: Server) -> None:
    plain = (await server.get("/openapi/v2")).body
    answer = await server.get("/openapi/v2", accept=V2_PROTOBUF)
    assert (answer.code, answer.response.content_type) == (200, V2_PROTOBUF.replace("@", "."))
    read = records(answer.response.body)
    assert read[1] == [b"2.0"]
    assert [name.decode() for name in names(read[9][0], 1)] == list(plain["definitions"])
    assert [name.decode() for name in names(read[8][0], 2)] == list(plain["paths"])
    assert answer.headers["ETag"] != (await server.get("/openapi/v2")).headers["ETag"]
    again = await server.get("/openapi/v2", accept=V2_PROTOBUF)
    assert again.response.body is answer.response.body
    assert (await server.get("/openapi/v2", accept="text/html")).code == 406


def test_schema_is_encoded_as_gnostic_has_it() -> None:
    schema: Document = {
        "type": "object",
        "required": ["a"],
        "properties": {"a": {"type": "array", "items": {"$ref": "#/definitions/b"}}},
        "additionalProperties": False,
        "minimum": 0,
        "x-kubernetes-group-version-kind": [{"kind": "A"}],
    }
    body = openapi_protobuf.encode({"definitions": {"a": schema}})
    (entry,) = records(records(body)[9][0])[1]
    assert records(entry)[1] == [b"a"]
    read = records(records(entry)[2][0])
    assert records(read[22][0]) == {1: [b"object"]}
    assert (read[19], records(read[21][0]), read[9]) == ([b"a"], {2: [0]}, [bytes(8)])
    (inner,) = records(read[25][0])[1]
    items = records(records(records(inner)[2][0])[23][0])[1]
    assert records(items[0]) == {1: [b"#/definitions/b"]}
    extension = records(read[31][0])
    assert extension[1] == [b"x-kubernetes-group-version-kind"]
    assert records(extension[2][0]) == {2: [b'[{"kind":"A"}]']}


def records(body: bytes) -> dict[int, list[Any]]:
    """Field numbers and values of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = body[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    found: dict[int, list[Any]] = {}
    while at < len(body):
        tag = varint()
        if tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(varint())
            continue
        size = 8 if tag & 7 == 1 else varint()
        found.setdefault(tag >> 3, []).append(body[at : at + size])
        at += size
    return found


def names(body: bytes, number: int) -> list[bytes]:
    """The keys of a map."""
    return [records(entry)[1][0] for entry in records(body)[number]]


# --- health and metrics ------------------------------------------------------------------------


async def test_health_is_text(server: Server) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/readyz/store"):
        answer = await server.get(path)
        assert (answer.code, answer.text) == (200, "ok")
    assert "[+]store ok" in (await server.get("/readyz", verbose="")).text
    assert (await server.get("/readyz/nothing")).code == 404


async def test_readiness_fails_by_name_and_liveness_does_not(server: Server) -> None:
    server.application.health.add_group(lambda: {"disk": "full"})
    answer = await server.get("/readyz")
    assert answer.code == 500
    assert "[-]disk failed: full" in answer.text
    assert (await server.get("/livez")).code == 200
    assert (await server.get("/readyz", exclude="disk")).code == 200


async def test_readyz_names_the_service_that_is_down(server: Server, clock: Clock) -> None:
    states = server.application.services
    states.started("agent node-1", clock.monotonic())
    states.started("scheduler", clock.monotonic())
    assert "[+]service/agent-node-1 ok" in (await server.get("/readyz", verbose="")).text
    states.crashed("scheduler", ValueError("unreadable"), 3)
    answer = await server.get("/readyz")
    assert answer.code == 500
    assert "[-]service/scheduler failed: crashed (ValueError, attempt 3)" in answer.text
    assert (await server.get("/readyz/service/agent-node-1")).code == 200
    assert (await server.get("/readyz", exclude="service/scheduler")).code == 200
    for path in ("/livez", "/healthz"):  # a restart of the server would end its pods, too
        assert (await server.get(path)).code == 200


async def test_server_is_not_ready_before_its_namespaces_are(server: Server) -> None:
    server.application.health.bootstrapped = False
    answer = await server.get("/readyz")
    assert answer.code == 500
    assert "[-]bootstrap failed" in answer.text
    assert (await server.get("/livez")).code == 200


async def test_metrics_count_requests_and_watches(server: Server) -> None:
    await server.made(PODS, pod())
    await server.get(f"{PODS}/none")
    await server.get(f"{PODS}/web/made-up")
    watcher = await server.watch(NODES)
    text = (await server.get("/metrics")).text
    name = "grange_apiserver_requests_total"
    assert f'{name}{{code="201",resource="pods",verb="create"}} 1.0' in text
    assert f'{name}{{code="404",resource="pods",verb="get"}} 1.0' in text
    assert "made-up" not in text
    assert "grange_apiserver_watchers 1.0" in text
    encodes = server.work.encodes
    assert f'grange_apiserver_object_operations_total{{operation="encode"}} {encodes}.0' in text
    assert 'duration_seconds_count{resource="pods",verb="create"} 1.0' in text
    await watcher.close()


async def test_root_lists_what_there_is(server: Server) -> None:
    assert "/openapi/v3" in json.loads((await server.get("/")).text)["paths"]
    assert (await server.get("/nothing")).code == 404
    assert (await server.ask("POST", "/version", {})).code == 405
