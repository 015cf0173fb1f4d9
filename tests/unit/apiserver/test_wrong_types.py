"""Values of wrong types everywhere: the answer is the caller's fault, never the server's."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.apiserver.manifests import METADATA, PARTS
from tests.unit.apiserver.server import PODS, Answer, Server, pod

from grange.api.http import (
    ADMIN,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    YAML,
    Request,
)
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.apiserver.watch import WatchStream

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
WRONG: list[Any] = [
    *(None, True, False, 0, -1, 3.5, 1e300, 2**31, 2**63, 10**30),
    *("", "x", "a/b", "-1", "9" * 30, "\x00", "\ufffd"),
    *([], [None], [1], ["x"], [[]], [{}]),
    *({}, {"x": 1}, {"": None}, {"name": []}, {"name": "x"}, {"metadata": 1}, {"spec": []}),
]
TEXTS = [
    *("", "x", "-1", "0", "9" * 30, "9" * 5_000, "true", "\x00", "\udcff", "a=b", "a in (", "!"),
    *("All", "None", "Table", "%", "a,b", "\u00e9", "\u0661", ";", ",", "*/*;q=0", "text/html"),
    *("Bearer \udcff", "application/json;as=Table", "application/yaml", "gzip;q=x", 'a/b;c="'),
]
PARAMETERS = (
    *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "watch"),
    *("resourceVersionMatch", "timeoutSeconds", "sendInitialEvents", "allowWatchBookmarks"),
    *("dryRun", "fieldValidation", "pretty", "gracePeriodSeconds", "propagationPolicy"),
    *("orphanDependents", "includeObject", "container", "follow", "tailLines", "sinceSeconds"),
    *("sinceTime", "limitBytes", "exclude", "verbose"),
)
HEADERS = ("accept", "content-type", "authorization", "accept-encoding", "x-other", "if-none-match")
RAW = (
    *(
        b"\x00",
        b"\xff\xfe",
        b"null",
        b"1",
        b'"x"',
        b"[]",
        b"[1]",
        b"{",
        b'{"a":\x00}',
        b'{"\xff":1}',
    ),
    *(b'{"a":1e999}', b'{"a":NaN}', b"k8s\x00", b"k8s\x00\xff", b"k8s\x00\n\x00", b"a: !!int {}"),
    *(b'{"metadata":{"name":"\\ud800"}}', b"a: !!float []", b"a: !!bool x", b"a: 0b", b"? []"),
)
OPERATIONS: tuple[Any, ...] = ("add", "replace", "test", "remove", "copy", "move", [], None)
KINDS = {info.kind: info for info in BUILT_IN}
OPTIONS: Document = {
    "kind": "DeleteOptions",
    "apiVersion": "v1",
    "preconditions": {"uid": "x", "resourceVersion": "1"},
    "dryRun": ["All"],
    "gracePeriodSeconds": 1,
    "propagationPolicy": "Background",
    "orphanDependents": True,
}
BINDING: Document = {
    "kind": "Binding",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "default", "uid": "x", "labels": {"a": "b"}},
    "target": {"kind": "Node", "name": "n", "namespace": ""},
}
SCALE: Document = {"kind": "Scale", "metadata": {"name": "good"}, "spec": {"replicas": 1}}
CONTROLLERS = "/apis/grange.dev/v1alpha1/namespaces/default/replicationcontrollers"
REVIEWS = "/apis/authorization.k8s.io/v1"
ABOUT_OBJECTS: list[tuple[str, str, Document]] = [
    ("DELETE", f"{PODS}/p", OPTIONS),
    ("DELETE", PODS, OPTIONS),
    ("POST", f"{PODS}/p/eviction", {"kind": "Eviction", "deleteOptions": OPTIONS}),
    ("POST", f"{PODS}/p/binding", BINDING),
    ("POST", "/api/v1/bindings", {"kind": "BindingList", "items": [BINDING]}),
    ("PUT", f"{CONTROLLERS}/good/scale", SCALE),
    ("PATCH", f"{CONTROLLERS}/good/scale", SCALE),
    ("PUT", "/api/v1/namespaces/kube-public/finalize", {"spec": {"finalizers": ["kubernetes"]}}),
    (
        "POST",
        f"{REVIEWS}/selfsubjectaccessreviews",
        {"metadata": {}, "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
    ),
    ("POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": "x"}}),
]


def manifest(info: AnyKind, name: str = "x") -> Document:
    """An object of the kind with many of its fields."""
    metadata = {**METADATA, "name": name}
    if info.namespaced:
        metadata["namespace"] = "default"
    return {"metadata": metadata, **PARTS.get(info.kind, {})}


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values of a document."""
    yield path
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*path, key))
    elif isinstance(document, list):
        for index, value in enumerate(document):
            yield from places(value, (*path, index))


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at a path."""
    if not path:
        return value
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copy


async def asked(
    server: Server,
    method: str,
    path: str,
    body: Any = b"",
    media: str = JSON,
    query: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """The answer, which must not be a failure of the server."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"accept": JSON, "content-type": media, **(headers or {})}
    response = await server.application.handle(
        Request(method, path, query or {}, given, raw, ADMIN)
    )
    if isinstance(response.chunks, WatchStream):
        await response.chunks.aclose()
    unavailable = response.status == 503 and path.endswith(("/log", "/why"))
    assert response.status < 500 or unavailable, (method, path, media, raw[:500], query, headers)
    return Answer(response)


async def stocked(server: Server) -> Server:
    """A server with an object of each kind, called good."""
    await server.application.bootstrap()
    for info in BUILT_IN:
        await asked(server, "POST", info.path("default"), manifest(info, "good"))
    await server.made(PODS, pod("p"))
    return server


def test_manifests_of_all_kinds_are_there() -> None:
    assert {*PARTS} >= {*KINDS}


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_manifest_is_accepted(server: Server, kind: str) -> None:
    """So that what is wrong about the others is the one value that was put in."""
    info = KINDS[kind]
    answer = await asked(server, "POST", info.path("default"), manifest(info))
    assert answer.code == 201, answer.text


@pytest.mark.parametrize("kind", sorted(KINDS))
async def test_wrong_values_in_objects_are_never_our_failure(server: Server, kind: str) -> None:
    info = KINDS[kind]
    collection = info.path("default")
    good = manifest(info, "good")
    assert (await asked(server, "POST", collection, good)).code == 201
    for number, path in enumerate(places(good)):
        for turn in range(3):
            at = 3 * number + turn
            value = WRONG[at % len(WRONG)]  # in the end each of them was in many places
            document = replaced(good, path, value)
            pointer = "".join(f"/{step}" for step in path)
            operation = {"op": OPERATIONS[at % len(OPERATIONS)], "path": pointer}
            operation |= {"from": f"{pointer}/x", "value": value}
            await asked(server, "POST", collection, document, query={"dryRun": "All"})
            await asked(server, "PUT", f"{collection}/good", document)
            await asked(server, "PATCH", f"{collection}/good", document, MERGE_PATCH)
            await asked(server, "PATCH", f"{collection}/good", document, STRATEGIC_MERGE_PATCH)
            await asked(server, "PATCH", f"{collection}/good", [operation], JSON_PATCH)
            if info.has_status:
                await asked(server, "PATCH", f"{collection}/good/status", document, MERGE_PATCH)
        await asked(server, "GET", collection, headers={"accept": TABLE})


@pytest.mark.parametrize(
    ("method", "path", "body"), ABOUT_OBJECTS, ids=[path for _, path, _ in ABOUT_OBJECTS]
)
async def test_wrong_values_about_objects_are_never_our_failure(
    server: Server, method: str, path: str, body: Document
) -> None:
    await stocked(server)
    media = MERGE_PATCH if method == "PATCH" else JSON
    query = {"dryRun": "All"} if method == "DELETE" else {}
    for place in [*places(body)]:
        for value in WRONG:
            await asked(server, method, path, replaced(body, place, value), media, query)


ASKED = [
    *(("GET", PODS), ("GET", f"{PODS}/p"), ("POST", PODS), ("PUT", f"{PODS}/p")),
    *(("PATCH", f"{PODS}/p"), ("DELETE", f"{PODS}/p"), ("DELETE", PODS), ("GET", f"{PODS}/p/log")),
    *(("GET", "/readyz"), ("GET", "/openapi/v2"), ("GET", "/apis"), ("GET", "/api/v1/nodes")),
]


@pytest.mark.parametrize(("method", "path"), ASKED)
async def test_wrong_queries_headers_and_bodies_are_never_our_failure(
    server: Server, method: str, path: str
) -> None:
    await server.made(PODS, pod("p"))
    dry = {} if method == "GET" else {"dryRun": "All"}
    for text in TEXTS:
        for name in PARAMETERS:
            await asked(server, method, path, b"{}", query={**dry, name: text})
        for name in HEADERS:
            await asked(server, method, path, b"{}", query=dry, headers={name: text})
    for body in RAW:
        for media in (JSON, YAML, MERGE_PATCH, STRATEGIC_MERGE_PATCH, JSON_PATCH, "", "x"):
            await asked(server, method, path, body, media, dry)
        await asked(server, method, path, body, "application/vnd.kubernetes.protobuf", dry)


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "X\udcff"])
async def test_wrong_paths_are_never_our_failure(server: Server, method: str) -> None:
    for path in (
        *("/", "//", "/api", "/api/v1", "/api/v1//", "/api/v1/pods/x", "/apis/x/y/z"),
        *("/api/v1/namespaces//pods", "/api/v1/namespaces/\x00/pods", "/openapi/v3/\udcff"),
        *(f"{PODS}/\udcff", f"{PODS}/\u00fc", f"{PODS}/a%2fb", f"{PODS}/p/\udcff", "/livez/x"),
        *("/api/v1/nodes/\udcff/status", f"/api/v1/namespaces/{'x' * 9_000}/pods", "/metrics/x"),
    ):
        await asked(server, method, path, b"{}")


@pytest.mark.parametrize("field", ["minAvailable", "maxUnavailable"])
@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63, 10**30])
async def test_integers_beyond_32_bits_are_refused(server: Server, field: str, number: int) -> None:
    info = KINDS["PodDisruptionBudget"]
    budget: Document = {"metadata": {"name": "b"}, "spec": {field: number, "selector": {}}}
    answer = await server.create(info.path("default"), budget)
    assert (answer.code, answer.fields) == (422, [f"spec.{field}"])
    assert "must be between -2147483648 and 2147483647" in answer.message
