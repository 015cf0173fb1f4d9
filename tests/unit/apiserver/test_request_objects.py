"""Bodies that are no stored object follow fieldValidation, and answers are negotiated before writes."""

from collections.abc import Mapping

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, PODS, Server, configmap, pod

from grange.api.meta import Document

ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default/token"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LIST = "/api/v1/bindings"
PROTOBUF = "application/vnd.kubernetes.protobuf"

TWICE: Mapping[str, tuple[str, str, bytes, str]] = {
    "delete": ("DELETE", f"{PODS}/web", b'{"dryRun": [], "dryRun": ["All"]}', "dryRun"),
    "deletecollection": ("DELETE", PODS, b'{"dryRun": [], "dryRun": ["All"]}', "dryRun"),
    "binding": (
        "POST",
        f"{PODS}/web/binding",
        b'{"target": {"name": "a", "name": "node-1"}}',
        "target.name",
    ),
    "eviction": (
        "POST",
        f"{PODS}/web/eviction",
        b'{"deleteOptions": {"gracePeriodSeconds": 1, "gracePeriodSeconds": 2}}',
        "deleteOptions.gracePeriodSeconds",
    ),
    "token": (
        "POST",
        ACCOUNT,
        b'{"spec": {"audiences": [], "audiences": ["x"]}}',
        "spec.audiences",
    ),
    "review": (
        "POST",
        REVIEWS,
        b'{"spec": {"nonResourceAttributes": {"path": "/a", "path": "/b"}}}',
        "spec.nonResourceAttributes.path",
    ),
    "bindings": (
        "POST",
        LIST,
        b'{"apiVersion": "v1", "items": [], "items": [{"metadata": {}}]}',
        "items",
    ),
}
UNKNOWN: Mapping[str, tuple[str, str, Document, str]] = {
    "delete": ("DELETE", f"{PODS}/web", {"gracePeriod": 0}, "gracePeriod"),
    "binding": ("POST", f"{PODS}/web/binding", {"target": {"name": "n"}, "to": "n"}, "to"),
    "eviction": (
        "POST",
        f"{PODS}/web/eviction",
        {"deleteOptions": {"grace": 1}},
        "deleteOptions.grace",
    ),
    "token": ("POST", ACCOUNT, {"spec": {"audiences": ["x"], "seconds": 1}}, "spec.seconds"),
    "review": ("POST", REVIEWS, {"spec": {"nonResourceAttributes": {}, "a": 1}}, "spec.a"),
}


@pytest.mark.parametrize("case", TWICE)
async def test_duplicate_field_follows_field_validation(server: Server, case: str) -> None:
    method, path, body, field = TWICE[case]
    await server.made(PODS, pod())
    refused = await server.ask(method, path, body, query={"fieldValidation": "Strict"})
    assert (refused.code, refused.fields) == (400, [field])
    assert f'strict decoding error: duplicate field "{field}"' in refused.message
    quiet = await server.ask(
        method, path, body, query={"fieldValidation": "Ignore", "dryRun": "All"}
    )
    assert (quiet.code // 100, dict(quiet.headers)) == (2, {}), quiet.text
    warned = await server.ask(method, path, body)
    assert warned.code // 100 == 2, warned.text
    assert warned.headers["Warning"] == f'299 - "duplicate field \\"{field}\\""'


@pytest.mark.parametrize("case", UNKNOWN)
async def test_unknown_field_follows_field_validation(server: Server, case: str) -> None:
    method, path, body, field = UNKNOWN[case]
    await server.made(PODS, pod())
    refused = await server.ask(method, path, body, query={"fieldValidation": "Strict"})
    assert (refused.code, refused.fields) == (400, [field])
    warned = await server.ask(method, path, body)
    assert warned.code // 100 == 2, warned.text
    assert warned.headers["Warning"].startswith(f'299 - "unknown field \\"{field}\\"')
    assert field.rpartition(".")[2] not in (warned.body.get("spec") or {})


async def test_field_validation_of_a_delete_is_checked(server: Server) -> None:
    answer = await server.delete(f"{PODS}/web", {}, fieldValidation="Loud")
    assert (answer.code, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", CONFIGMAPS, configmap("new", a="b")),
        ("PUT", f"{CONFIGMAPS}/settings", configmap(a="c")),
        ("PATCH", f"{CONFIGMAPS}/settings", {"data": {"a": "c"}}),
        ("DELETE", f"{CONFIGMAPS}/settings", None),
        ("DELETE", CONFIGMAPS, None),
        ("POST", f"{PODS}/web/binding", {"target": {"name": "node-1"}}),
        ("POST", f"{PODS}/web/eviction", {}),
    ],
)
async def test_write_with_an_answer_in_protobuf_only_is_not_made(
    server: Server, method: str, path: str, body: object
) -> None:
    await server.made(PODS, pod())
    await server.made(CONFIGMAPS, configmap(a="b"))
    before = server.store.revision
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer = await server.ask(method, path, body, accept=PROTOBUF, media=media)
    assert (answer.code, answer.reason) == (406, "NotAcceptable")
    assert f"Accept: {PROTOBUF},application/json" in answer.message
    assert server.store.revision == before
    both = await server.ask(method, path, body, accept=f"{PROTOBUF},application/json", media=media)
    assert both.code // 100 == 2, both.text
