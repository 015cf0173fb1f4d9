"""``scale``: one form of the number of copies, whatever the kind."""

import pytest
from tests.unit.api.documents import controller
from tests.unit.apiserver.server import PODS, TABLE, Server, pod

from grange.api.http import JSON_PATCH, STRATEGIC_MERGE_PATCH, User
from grange.api.meta import Document, Resource
from grange.api.scheme import KindInfo, Scaling

CONTROLLERS = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers"
SCALE = f"{CONTROLLERS}/web/scale"
BOB = User("bob", ("system:authenticated",))


async def make(server: Server, replicas: int = 2) -> Document:
    body = controller(replicas=replicas)
    body["metadata"] = {"name": "web", "labels": {"app": "web"}}
    return await server.made(CONTROLLERS, body)


def body(replicas: object, **meta: str) -> Document:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "web", "namespace": "default", **meta},
        "spec": {"replicas": replicas},
    }


async def test_scale_shows_what_is_wanted_what_is_and_whose(server: Server) -> None:
    made = await make(server)
    await server.patch(f"{CONTROLLERS}/web/status", {"status": {"replicas": 1}})
    answer = await server.get(SCALE)
    shown = answer.body
    assert (shown["apiVersion"], shown["kind"]) == ("autoscaling/v1", "Scale")
    assert shown["spec"] == {"replicas": 2}
    uid = made["metadata"]["uid"]
    assert shown["status"] == {
        "replicas": 1,
        "selector": "grange.dev/replication-controller=web,"
        f"grange.dev/replication-controller-uid={uid}",
    }
    assert shown["metadata"] == {
        "name": "web",
        "namespace": "default",
        "uid": uid,
        "resourceVersion": (await server.get(f"{CONTROLLERS}/web")).version,
        "creationTimestamp": made["metadata"]["creationTimestamp"],
    }


async def test_zero_wanted_is_shown_as_zero(server: Server) -> None:
    await make(server, 0)
    assert (await server.get(SCALE)).body["spec"] == {"replicas": 0}


async def test_replaced_scale_changes_the_number_and_nothing_else(server: Server) -> None:
    made = await make(server)
    answer = await server.update(SCALE, body(5))
    assert (answer.code, answer.body["kind"]) == (200, "Scale")
    assert answer.body["spec"] == {"replicas": 5}
    after = (await server.get(f"{CONTROLLERS}/web")).body
    assert answer.version == after["metadata"]["resourceVersion"]
    assert after["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert after["spec"] == {**made["spec"], "replicas": 5}
    assert after["metadata"]["labels"] == {"app": "web"}


@pytest.mark.parametrize("media", ["merge", "strategic", "json"])
async def test_patched_scale_changes_the_number(server: Server, media: str) -> None:
    await make(server)
    if media == "json":
        operations = [
            {"op": "test", "path": "/spec/replicas", "value": 2},
            {"op": "replace", "path": "/spec/replicas", "value": 4},
        ]
        answer = await server.patch(SCALE, operations, JSON_PATCH)
    elif media == "strategic":
        answer = await server.patch(SCALE, {"spec": {"replicas": 4}}, STRATEGIC_MERGE_PATCH)
    else:
        answer = await server.patch(SCALE, {"spec": {"replicas": 4}})
    assert (answer.code, answer.body["spec"]) == (200, {"replicas": 4})
    assert (await server.get(f"{CONTROLLERS}/web")).body["spec"]["replicas"] == 4


async def test_what_go_clients_leave_out_is_zero(server: Server) -> None:
    """``replicas`` is ``omitempty`` in the typed clients: a scale to none has an empty spec."""
    await make(server)
    sent = {**body(0), "spec": {}}
    assert (await server.update(SCALE, sent)).body["spec"] == {"replicas": 0}
    assert (await server.get(f"{CONTROLLERS}/web")).body["spec"]["replicas"] == 0


async def test_the_same_number_again_writes_nothing(server: Server) -> None:
    await make(server)
    before = server.store.revision
    assert (await server.update(SCALE, body(2))).code == 200
    assert server.store.revision == before


async def test_duplicate_field_is_warned_about_once(server: Server) -> None:
    await make(server)
    twice = b'{"metadata": {"name": "web"}, "spec": {"replicas": 4, "replicas": 2}}'
    answer = await server.update(SCALE, twice)
    assert (answer.code, answer.body["spec"]["replicas"]) == (200, 2), answer.text
    assert answer.headers["Warning"].count("duplicate field") == 1


async def test_dry_run_answers_and_writes_nothing(server: Server) -> None:
    await make(server)
    before = server.store.revision
    answer = await server.patch(SCALE, {"spec": {"replicas": 9}}, dryRun="All")
    assert answer.body["spec"] == {"replicas": 9}
    assert server.store.revision == before


@pytest.mark.parametrize(
    ("spec", "code", "fields"),
    [
        ({"replicas": -1}, 422, ["spec.replicas"]),
        ({"replicas": "two"}, 422, ["spec.replicas"]),
        ({"replicas": True}, 422, ["spec.replicas"]),
        ({"replicas": 2**31}, 422, ["spec.replicas"]),
        ({"replica": 1}, 400, ["spec.replica"]),
        (None, 422, ["spec"]),
        ("x", 422, ["spec"]),
    ],
)
async def test_nonsense_is_refused_with_its_field(
    server: Server, spec: object, code: int, fields: list[str]
) -> None:
    await make(server)
    before = server.store.revision
    answer = await server.update(SCALE, {**body(0), "spec": spec}, fieldValidation="Strict")
    assert (answer.code, answer.fields) == (code, fields), answer.text
    if code == 422:
        details = answer.body["details"]
        assert (details["kind"], details["group"]) == ("Scale", "autoscaling")
    assert (await server.patch(SCALE, {"spec": {"replicas": -3}})).fields == ["spec.replicas"]
    assert server.store.revision == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "ReplicationController"},
        {"apiVersion": "grange.dev/v1alpha1"},
        {"metadata": {"name": "other"}},
        {"metadata": {"name": "web", "namespace": "elsewhere"}},
        {"metadata": 5},
    ],
)
async def test_scale_of_something_else_is_refused(server: Server, wrong: Document) -> None:
    await make(server)
    assert (await server.update(SCALE, {**body(3), **wrong})).code == 400


async def test_preconditions_hold(server: Server) -> None:
    made = await make(server)
    stale = made["metadata"]["resourceVersion"]
    current = (await server.patch(SCALE, {"spec": {"replicas": 3}})).version
    for fence in ({"resourceVersion": stale}, {"uid": "another"}):
        refused = await server.update(SCALE, body(7, **fence))
        assert (refused.code, refused.reason) == (409, "Conflict")
        refused = await server.patch(SCALE, {"metadata": fence, "spec": {"replicas": 7}})
        assert (refused.code, refused.reason) == (409, "Conflict")
    assert (await server.get(SCALE)).body["spec"] == {"replicas": 3}
    fences = {"resourceVersion": current, "uid": made["metadata"]["uid"]}
    assert (await server.update(SCALE, body(7, **fences))).code == 200


async def test_unknown_field_is_warned_of_where_that_is_asked_for(server: Server) -> None:
    await make(server)
    sent = {**body(3), "speck": 1}
    answer = await server.update(SCALE, sent, fieldValidation="Warn")
    assert answer.code == 200
    assert "speck" in answer.headers["Warning"]


async def test_scale_of_nothing_is_not_found(server: Server) -> None:
    for answer in (
        await server.get(SCALE),
        await server.update(SCALE, body(1)),
        await server.patch(SCALE, {"spec": {"replicas": 1}}),
    ):
        assert (answer.code, answer.reason) == (404, "NotFound")
        assert 'replicationcontrollers.grange.dev "web" not found' in answer.message


async def test_kinds_without_copies_have_no_scale(server: Server) -> None:
    await server.made(PODS, pod())
    answer = await server.get(f"{PODS}/web/scale")
    assert answer.code == 404
    assert "no subresource scale" in answer.message
    await make(server)
    assert (await server.delete(SCALE)).code == 405


async def test_who_may_not_change_the_object_may_not_scale_it(server: Server) -> None:
    await make(server)
    for method in ("GET", "PUT", "PATCH"):
        answer = await server.ask(method, SCALE, body(9), user=BOB)
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert "replicationcontrollers/scale" in answer.message
    assert (await server.get(SCALE)).body["spec"] == {"replicas": 2}


async def test_scale_as_a_table(server: Server) -> None:
    await make(server)
    table = (await server.get(SCALE, accept=TABLE)).body
    assert [item["name"] for item in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == ["web", 2, 0]


async def test_scale_is_discovered(server: Server) -> None:
    resources = (await server.get("/apis/grange.dev/v1alpha1")).body["resources"]
    assert {
        "name": "replicationcontrollers/scale",
        "singularName": "",
        "namespaced": True,
        "kind": "Scale",
        "group": "autoscaling",
        "version": "v1",
        "verbs": ["get", "patch", "update"],
    } in resources
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = (await server.get("/apis", accept=aggregated)).body["items"]
    ours = next(item for item in groups if item["metadata"]["name"] == "grange.dev")
    resources = {item["resource"]: item for item in ours["versions"][0]["resources"]}
    resource = resources["replicationcontrollers"]
    parts = {part["subresource"]: part for part in resource["subresources"]}
    assert parts["scale"]["responseKind"] == {
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
    }


async def test_any_kind_with_copies_is_scaled(server: Server) -> None:
    """Nothing knows our controllers: the kind states where its numbers are."""
    info = KindInfo(
        group="example.com",
        version="v1",
        kind="Farm",
        plural="farms",
        view=Resource,
        schema="com.example.v1.Farm",
        definitions={
            "com.example.v1.Farm": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            }
        },
        namespaced=False,
        has_status=False,
        scale=Scaling("spec.herd.size", "status.size", lambda document: ""),
    )
    server.application.scheme.add(info)
    path = "/apis/example.com/v1/farms"
    await server.made(path, {"metadata": {"name": "f"}, "spec": {"soil": "clay"}})
    assert (await server.get(f"{path}/f/scale")).body["spec"] == {"replicas": 0}
    answer = await server.patch(f"{path}/f/scale", {"spec": {"replicas": 3}})
    assert answer.body["spec"] == {"replicas": 3}, answer.text
    stored = (await server.get(f"{path}/f")).body
    assert stored["spec"] == {"soil": "clay", "herd": {"size": 3}}
