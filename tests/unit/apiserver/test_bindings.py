"""Many bindings in one request: what the server makes of the list, and what that costs."""

import pytest
from tests.unit.apiserver.server import PODS, Server, configmap, nothing_unreadable, pod

from grange.api import bindings, codec
from grange.api.http import ADMIN, ANONYMOUS, YAML, User
from grange.api.kinds import BUILT_IN, CONFIGMAP
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.api.status import Forbidden
from grange.apiserver import storage
from grange.apiserver.admission import Attributes
from grange.apiserver.registry import Place, Registry, Rewrite, Written
from grange.apiserver.write_options import WriteOptions
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.store.memory import MemoryStore


def binding_of(name: str, node: str = "n1", namespace: str = "default", **meta: object) -> Document:
    return {
        "metadata": {"name": name, "namespace": namespace, **meta},
        "target": {"kind": "Node", "name": node},
    }


def listed(*items: object) -> Document:
    return {"kind": "BindingList", "apiVersion": "v1", "items": list(items)}


async def make(server: Server, count: int) -> None:
    for number in range(count):
        await server.made(PODS, pod(f"p{number}"))


async def codes(server: Server, *items: object, **query: str) -> list[int]:
    answer = await server.create(bindings.PATH, listed(*items), **query)
    assert (answer.code, answer.body["kind"]) == (200, "StatusList"), answer.text
    return [item["code"] for item in answer.body["items"]]


async def test_group_gives_what_single_bindings_give(server: Server) -> None:
    await make(server, 4)
    meta: Document = {"labels": {"a": "b"}, "annotations": {"example.com/score": "7"}}
    for name in ("p0", "p1"):
        body = binding_of(name, **meta)
        assert (await server.create(f"{PODS}/{name}/binding", body)).code == 201
    assert await codes(server, binding_of("p2", **meta), binding_of("p3", **meta)) == [201, 201]
    pods = [(await server.get(f"{PODS}/p{number}")).body for number in range(4)]
    for each in pods:
        for field in ("name", "uid", "resourceVersion"):
            del each["metadata"][field]
    assert pods[0] == pods[1] == pods[2] == pods[3]
    assert pods[3]["spec"]["nodeName"] == "n1"


async def test_items_that_make_no_sense_leave_the_others_alone(server: Server) -> None:
    await make(server, 3)
    items: list[object] = [
        "p0",
        None,
        {},
        {"metadata": "p0"},
        {"metadata": {"name": "p0"}},
        {"metadata": {"name": 5, "namespace": "default"}},
        binding_of("p0", "UPPER"),
        {**binding_of("p0"), "target": "n1"},
        {**binding_of("p0"), "kind": "Pod"},
        binding_of("p0", uid=5),
        binding_of("p0", resourceVersion="1"),
        binding_of("p0", labels={"-": "x"}),
        binding_of("p0", annotations={"a": 5}),
        binding_of("../p1"),
        binding_of("p2"),
    ]
    reported = [400, 400, 400, 400, 400, 400, 422, 400, 400, 400, 409, 422, 400, 404, 201]
    assert await codes(server, *items) == reported
    assert "nodeName" not in (await server.get(f"{PODS}/p0")).body["spec"]


async def test_refusal_is_a_whole_status(server: Server) -> None:
    answer = await server.create(bindings.PATH, listed(binding_of("web")))
    assert answer.body["items"] == [
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": 404,
            "reason": "NotFound",
            "message": 'pods "web" not found',
            "details": {"name": "web", "kind": "pods"},
        }
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"items":{}}', 400),
        (b"{}", 400),
        (b'{"kind":"PodList","items":[]}', 400),
        (b'{"items":[' + b"[" * 5000 + b"]" * 5000 + b"]}", 400),
        (b'{"items":[' + b",".join([b"{}"] * (bindings.LIMIT + 1)) + b"]}", 413),
    ],
)
async def test_body_that_is_no_list_is_refused(server: Server, body: bytes, code: int) -> None:
    assert (await server.ask("POST", bindings.PATH, body)).code == code


async def test_other_media_and_verbs_are_refused(server: Server) -> None:
    assert (await server.ask("POST", bindings.PATH, listed(), media=YAML)).code == 415
    for method in ("GET", "DELETE"):
        answer = await server.ask(method, bindings.PATH)
        assert (answer.code, answer.reason) == (405, "MethodNotAllowed")
    for path in ("/api/v2/bindings", "/apis/apps/v1/bindings", "/api/v1/bindings/x"):
        assert (await server.create(path, listed())).code == 404


async def test_dry_run_answers_and_writes_nothing(server: Server) -> None:
    await make(server, 1)
    before = server.store.revision
    items = [binding_of("p0"), binding_of("absent")]
    assert await codes(server, *items, dryRun="All") == [201, 404]
    assert server.store.revision == before


@pytest.mark.parametrize(
    ("user", "code"),
    [(ANONYMOUS, 403), (User("guest", ("system:authenticated",)), 403), (ADMIN, 200)],
)
async def test_only_who_may_bind_everywhere_may_bind_many(
    server: Server, user: User, code: int
) -> None:
    await make(server, 1)
    answer = await server.ask("POST", bindings.PATH, listed(binding_of("p0")), user=user)
    assert answer.code == code
    bound = "nodeName" in (await server.get(f"{PODS}/p0")).body["spec"]
    assert bound == (code == 200)


async def test_admission_is_asked_about_each(clock: Clock, rng: Stream, log: Logger) -> None:
    """As about a single one: what a rule refuses is not written, the others are."""
    seen: list[str] = []

    class Rule:
        def admit(self, attempt: Attributes) -> None:
            if attempt.verb == "bind":
                seen.append(attempt.name)
                if attempt.name == "a":
                    raise Forbidden("not this one")

    store = MemoryStore()
    registry = Registry(
        store,
        Scheme(BUILT_IN),
        clock=clock,
        rng=rng,
        admission=(Rule(),),
        unreadable=nothing_unreadable(log),
    )
    rewrites = []
    for name in ("a", "b"):
        await registry.create(CONFIGMAP, "default", configmap(name), WriteOptions())
        place = Place(CONFIGMAP, "default", name)
        attempt = Attributes("bind", CONFIGMAP, "default", name)
        rewrites.append(Rewrite(place, attempt, lambda old: {**old, "data": {"k": "v"}}))
    outcomes = await registry.rewrite(rewrites, WriteOptions())
    assert [type(outcome) for outcome in outcomes] == [Forbidden, Written]
    assert seen == ["a", "b"]
    entries = (await store.list("/")).entries
    assert [b'"v"' in entry.value for entry in entries] == [False, True]


async def test_every_answer_is_counted_by_its_code(server: Server) -> None:
    await make(server, 2)
    await codes(server, binding_of("p0"), binding_of("p0"), binding_of("p1"), binding_of("p2"))
    text = (await server.get("/metrics")).text
    name = "grange_apiserver_requests_total"
    assert f'{name}{{code="201",resource="pods/binding",verb="create"}} 2.0' in text
    assert f'{name}{{code="404",resource="pods/binding",verb="create"}} 1.0' in text
    assert f'{name}{{code="409",resource="pods/binding",verb="create"}} 1.0' in text
    assert f'{name}{{code="200",resource="bindings",verb="create"}} 1.0' in text


async def test_binding_decodes_once_and_encodes_once(server: Server) -> None:
    await make(server, 20)
    before = (server.work.decodes, server.work.encodes, server.store.revision)
    assert await codes(server, *[binding_of(f"p{n}") for n in range(20)]) == [201] * 20
    after = (server.work.decodes, server.work.encodes, server.store.revision)
    assert [now - then for now, then in zip(after, before, strict=True)] == [20, 20, 20]


def test_outline_leaves_the_spec_raw_except_the_node() -> None:
    pod_ = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"resourceVersion": "7", "name": "p"},
        "spec": {"containers": [{"name": "main"}], "nodeName": "n1"},
        "status": {"phase": "Pending"},
    }
    body = codec.encode(pod_)
    work = storage.Work()
    outline = storage.decode_outline(body, work)
    assert outline["metadata"]["name"] == "p"
    assert outline["spec"]["nodeName"] == "n1"
    assert bytes(outline["spec"]["containers"]) == b'[{"name":"main"}]'
    assert codec.encode(outline) == body  # in the same order
    odd = {**pod_, "extra": 1}
    assert storage.decode_outline(codec.encode(odd), work) == odd
    assert work.decodes == 2
