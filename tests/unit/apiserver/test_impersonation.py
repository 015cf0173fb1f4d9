"""Requests that ask to be served as another user."""

import pytest
from multidict import CIMultiDict
from tests.unit.apiserver.server import PODS, Answer, Server, pod

from grange.api import codec
from grange.api.http import ADMIN, ANONYMOUS, Request, User
from grange.api.meta import Document

BOB = User("bob", ("system:authenticated",))
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


async def send(
    server: Server, headers: dict[str, str], *, user: User = ADMIN, path: str = WHOAMI
) -> Answer:
    method = "POST" if path == WHOAMI else "GET"
    request = Request(method, path, {}, headers, b"{}", user)
    return Answer(await server.application.handle(request))


async def allow(server: Server, name: str, *rules: Document) -> None:
    """Give bob a ClusterRole."""
    role = {"metadata": {"name": name}, "rules": [*rules]}
    assert (await server.create(f"{RBAC}/clusterroles", role)).code == 201
    binding = {
        "metadata": {"name": name},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": name,
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}],
    }
    assert (await server.create(f"{RBAC}/clusterrolebindings", binding)).code == 201


def rule(resource: str, *names: str) -> Document:
    return {
        "apiGroups": [""],
        "resources": [resource],
        "verbs": ["impersonate"],
        "resourceNames": [*names],
    }


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("alice", ["system:authenticated"]),
        ("system:anonymous", ["system:unauthenticated"]),
        (
            "system:serviceaccount:default:ci",
            [
                "system:serviceaccounts",
                "system:serviceaccounts:default",
                "system:authenticated",
            ],
        ),
    ],
)
async def test_superuser_impersonates(server: Server, name: str, groups: list[str]) -> None:
    answer = await send(server, {"impersonate-user": name})
    if name == ANONYMOUS.name:
        assert (answer.code, "system:anonymous" in answer.message) == (403, True)
    else:
        reported = {"username": name, "groups": groups}
        assert answer.body["status"] == {"userInfo": reported}
    answer = await send(server, {"Impersonate-User": name}, path=PODS)
    assert (answer.code, name in answer.message) == (403, True)


async def test_every_group_header_counts(server: Server) -> None:
    headers = CIMultiDict({"Impersonate-User": "alice"})
    headers.add("Impersonate-Group", "dev")
    headers.add("Impersonate-Group", "ops")
    request = Request("POST", WHOAMI, {}, headers, b"{}", ADMIN)
    answer = Answer(await server.application.handle(request))
    groups = answer.body["status"]["userInfo"]["groups"]
    assert groups == ["dev", "ops", "system:authenticated"]
    assert request.user == ADMIN  # a request that is sent again is decided on again


async def test_impersonated_user_has_only_its_own_rights(server: Server) -> None:
    body = codec.encode(pod())
    request = Request("POST", PODS, {}, {"impersonate-user": "alice"}, body, ADMIN)
    before = server.store.revision
    answer = Answer(await server.application.handle(request))
    assert (answer.code, server.store.revision) == (403, before)
    assert 'User "alice" cannot create resource "pods"' in answer.message
    masters = {"impersonate-user": "alice", "impersonate-group": "system:masters"}
    request = Request("POST", PODS, {}, masters, body, ADMIN)
    assert Answer(await server.application.handle(request)).code == 201


async def test_impersonation_needs_the_verb_for_each_name(server: Server) -> None:
    alice = {"impersonate-user": "alice"}
    answer = await send(server, alice, user=BOB)
    wanted = 'users "alice" is forbidden: User "bob" cannot impersonate resource "users"'
    assert (answer.code, wanted in answer.message) == (403, True)
    await allow(server, "as-alice", rule("users", "alice"), rule("groups", "dev"))
    assert (await send(server, alice, user=BOB)).code == 201
    assert (await send(server, {"impersonate-user": "carol"}, user=BOB)).code == 403
    assert (await send(server, {**alice, "impersonate-group": "dev"}, user=BOB)).code == 201
    masters = {**alice, "impersonate-group": "system:masters"}
    assert (await send(server, masters, user=BOB)).code == 403
    account = {"impersonate-user": "system:serviceaccount:default:default"}
    answer = await send(server, account, user=BOB)
    assert (answer.code, "serviceaccounts" in answer.message) == (403, True)
    await allow(server, "as-default", rule("serviceaccounts", "default"))
    assert (await send(server, account, user=BOB)).code == 201


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"impersonate-group": "dev"}, 400),
        ({"impersonate-user": ""}, 400),
        ({"impersonate-user": "al\udcffice"}, 400),
        ({"impersonate-user": "alice", "impersonate-group": ""}, 400),
        ({"impersonate-user": "alice", "Impersonate-Uid": "7"}, 403),
        ({"Impersonate-Extra-scopes": "view"}, 403),
    ],
)
async def test_malformed_impersonation(server: Server, headers: dict[str, str], code: int) -> None:
    assert (await send(server, headers)).code == code


async def test_too_many_groups_are_refused(server: Server) -> None:
    headers = CIMultiDict({"Impersonate-User": "alice"})
    for number in range(101):
        headers.add("Impersonate-Group", f"group-{number}")
    request = Request("POST", WHOAMI, {}, headers, b"{}", ADMIN)
    assert Answer(await server.application.handle(request)).code == 400


@pytest.mark.parametrize("name", ["impersonate-user", "Impersonate-User", "Impersonate-Uid"])
async def test_impersonation_is_checked_on_every_path(server: Server, name: str) -> None:
    asked = [
        ("GET", PODS, {}),
        ("GET", PODS, {"watch": "1"}),
        ("POST", PODS, {}),
        ("PATCH", f"{PODS}/web", {}),
        ("DELETE", f"{PODS}/web", {}),
        ("GET", f"{PODS}/web/log", {}),
        ("POST", f"{PODS}/web/eviction", {}),
        ("POST", "/api/v1/bindings", {}),
        ("GET", "/readyz", {}),
        ("GET", "/metrics", {}),
        ("GET", "/apis", {}),
    ]
    await allow(server, "all", {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]})
    for method, path, query in asked:
        request = Request(method, path, query, {name: "alice"}, b"{}", BOB)
        answer = Answer(await server.application.handle(request))
        assert (answer.code, answer.reason) == (403, "Forbidden")
        assert name.lower() in answer.message or "impersonate" in answer.message
