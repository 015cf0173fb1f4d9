"""Roles and bindings as objects: whom they allow what, from the moment they are written."""

from typing import Any

import pytest
from tests.unit.apiserver.server import PODS, Answer, Server, pod

from grange.api.http import JSON, MERGE_PATCH, User
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
ROLEBINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTERROLES = f"{RBAC}/clusterroles"
CLUSTERROLEBINDINGS = f"{RBAC}/clusterrolebindings"
BOB = User("bob", ("team", "system:authenticated"))
OTHER_PODS = "/api/v1/namespaces/kube-system/pods"


def rule(verbs: str, resources: str, group: str = "") -> Document:
    return {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": [group]}


def role(name: str, *rules: Document) -> Document:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, kind: str, to: str, /, **subject: str) -> Document:
    return {
        "metadata": {"name": name},
        "roleRef": {"kind": kind, "name": to},
        "subjects": [subject or {"kind": "User", "name": "bob"}],
    }


async def created(server: Server, path: str, document: Document) -> None:
    answer = await server.create(path, document)
    assert answer.code == 201, answer.text


async def as_bob(server: Server, method: str, path: str, body: Any = None) -> Answer:
    media = MERGE_PATCH if method == "PATCH" else JSON
    return await server.ask(method, path, body, media=media, user=BOB)


@pytest.fixture
async def writer(server: Server) -> Server:
    """A server on which bob may read pods, and write roles and bindings of its namespace."""
    rights = [
        rule("get list", "pods"),
        rule("get create update patch", "roles rolebindings", "rbac.authorization.k8s.io"),
    ]
    await created(server, ROLES, role("writer", *rights))
    await created(server, ROLEBINDINGS, binding("writer", "Role", "writer"))
    return server


async def test_delete_with_a_finalizer_needs_patch_too(server: Server) -> None:
    await created(server, ROLES, role("cleaner", rule("delete deletecollection", "pods")))
    await created(server, ROLEBINDINGS, binding("cleaner", "Role", "cleaner"))
    held = pod()
    held["metadata"]["finalizers"] = ["x.y/z"]
    both = {"removeFinalizer": "x.y/z"}
    await created(server, PODS, held)
    for path in (f"{PODS}/web", PODS):
        answer = await server.ask("DELETE", path, user=BOB, query=both)
        assert (answer.code, 'cannot patch resource "pods"' in answer.message) == (403, True)
    assert (await server.get(f"{PODS}/web")).body["metadata"]["finalizers"] == ["x.y/z"]
    patch = role("cleaner", rule("delete patch", "pods"))
    assert (await server.update(f"{ROLES}/cleaner", patch)).code == 200
    answer = await server.ask("DELETE", f"{PODS}/web", user=BOB, query=both)
    assert answer.code == 200
    assert (await server.get(f"{PODS}/web")).code == 404


async def test_named_object_may_be_selected_from_its_collection(server: Server) -> None:
    named = {**rule("list watch deletecollection", "pods"), "resourceNames": ["web"]}
    await created(server, ROLES, role("one", named))
    await created(server, ROLEBINDINGS, binding("b", "Role", "one"))
    await created(server, PODS, pod())
    await created(server, PODS, pod("other"))
    for selected, code in (
        ("metadata.name=web", 200),
        ("metadata.name=web,spec.nodeName=", 200),
        ("metadata.name=other", 403),
        ("metadata.name!=web", 403),
        ("spec.nodeName=web", 403),
    ):
        query = {"fieldSelector": selected}
        for method in ("GET", "DELETE") if code == 403 else ("GET",):
            answer = await server.ask(method, PODS, user=BOB, query=query)
            assert answer.code == code, (method, selected)
    query = {"fieldSelector": "metadata.name=web"}
    assert (await server.ask("DELETE", PODS, user=BOB, query=query)).code == 200
    assert (await server.get(f"{PODS}/other")).code == 200


async def test_role_counts_from_its_binding_to_its_deletion(server: Server) -> None:
    assert (await as_bob(server, "GET", PODS)).code == 403
    await created(server, ROLES, role("reader", rule("list", "pods")))
    assert (await as_bob(server, "GET", PODS)).code == 403
    await created(server, ROLEBINDINGS, binding("b", "Role", "reader"))
    assert (await as_bob(server, "GET", PODS)).code == 200
    assert (await as_bob(server, "GET", OTHER_PODS)).code == 403
    assert (await as_bob(server, "GET", "/api/v1/pods")).code == 403
    assert (await as_bob(server, "POST", PODS, pod())).code == 403
    patch = {"rules": [rule("create", "pods")]}
    assert (await server.patch(f"{ROLES}/reader", patch)).code == 200
    assert (await as_bob(server, "GET", PODS)).code == 403
    assert (await as_bob(server, "POST", PODS, pod())).code == 201
    assert (await server.delete(f"{ROLEBINDINGS}/b")).code == 200
    assert (await as_bob(server, "POST", PODS, pod("other"))).code == 403


@pytest.mark.parametrize(
    ("subject", "user"),
    [
        ({"kind": "User", "name": "bob"}, BOB),
        ({"kind": "Group", "name": "team"}, BOB),
        (
            {"kind": "ServiceAccount", "name": "builder", "namespace": "ci"},
            User("system:serviceaccount:ci:builder"),
        ),
    ],
)
async def test_cluster_role_is_bound_to_each_kind_of_subject(
    server: Server, subject: dict[str, str], user: User
) -> None:
    await created(server, ROLEBINDINGS, binding("b", "ClusterRole", "view", **subject))
    assert (await server.ask("GET", PODS, user=user)).code == 200
    assert (await server.ask("GET", OTHER_PODS, user=user)).code == 403
    assert (await server.ask("GET", PODS, user=User("eve", ("others",)))).code == 403
    await created(server, CLUSTERROLEBINDINGS, binding("c", "ClusterRole", "view", **subject))
    assert (await server.ask("GET", OTHER_PODS, user=user)).code == 200
    assert (await server.ask("GET", "/api/v1/pods", user=user)).code == 200


async def test_missing_role_is_named_in_the_refusal(server: Server) -> None:
    await created(server, ROLEBINDINGS, binding("b", "ClusterRole", "gone"))
    answer = await as_bob(server, "GET", PODS)
    assert answer.code == 403
    assert answer.message.endswith(
        'in the namespace "default": RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'
    )


async def test_rights_outlast_a_restart(server: Server) -> None:
    await created(server, ROLEBINDINGS, binding("b", "ClusterRole", "edit"))
    again = server.restarted()
    await again.application.bootstrap()
    assert (await as_bob(again, "POST", PODS, pod())).code == 201
    unprepared = server.restarted()
    assert (await as_bob(unprepared, "GET", PODS)).code == 200


async def test_damaged_binding_gives_no_rights(server: Server) -> None:
    await created(server, ROLEBINDINGS, binding("b", "ClusterRole", "edit"))
    key = "/rbac.authorization.k8s.io/rolebindings/default/b"
    damaged = b'{"metadata":{"name":"b","namespace":"default"},"roleRef":7}'
    await server.store.put(key, lambda _: damaged)
    assert (await as_bob(server, "GET", PODS)).code == 403


@pytest.mark.parametrize("name", ["view", "edit", "admin"])
async def test_users_may_read_namespaced_kinds(server: Server, name: str) -> None:
    await created(server, ROLEBINDINGS, binding("b", "ClusterRole", name))
    hidden = set()
    for info in BUILT_IN:
        if info.namespaced and (await as_bob(server, "GET", info.path("default"))).code == 403:
            hidden.add(info.plural)
    expected = {
        "view": {"secrets", "leases", "roles", "rolebindings"},
        "edit": {"roles", "rolebindings"},
    }
    assert hidden == expected.get(name, set())
    cluster_scoped = {info.path() for info in BUILT_IN if not info.namespaced}
    for path in cluster_scoped:
        assert (await as_bob(server, "GET", path)).code == 403


async def test_default_roles_are_completed_at_the_start(server: Server) -> None:
    view = f"{CLUSTERROLES}/system:aggregate-to-view"
    discovery = f"{CLUSTERROLEBINDINGS}/system:discovery"
    own = rule("get", "widgets", "example.com")
    await server.patch(view, {"rules": [own]})
    await server.patch(discovery, {"subjects": []})
    marked = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
    basic = f"{CLUSTERROLES}/system:basic-user"
    await server.patch(basic, {"metadata": {"annotations": marked}, "rules": []})
    await server.delete(f"{CLUSTERROLES}/edit")
    await server.restarted().application.bootstrap()
    rules = (await server.get(view)).body["rules"]
    assert rules[0] == own
    assert len(rules) > 4
    assert (await server.get(discovery)).body["subjects"][0]["name"] == "system:authenticated"
    assert (await server.get(basic)).body["rules"] == []
    assert (await server.get(f"{CLUSTERROLES}/edit")).body["rules"]
    revision = server.store.revision
    await server.restarted().application.bootstrap()
    assert server.store.revision == revision


# --- rights are given by those who have them --------------------------------------------------------------


async def test_role_may_hold_what_its_author_has(writer: Server) -> None:
    assert (await as_bob(writer, "POST", ROLES, role("r", rule("get", "pods")))).code == 201
    answer = await as_bob(writer, "POST", ROLES, role("s", rule("get delete", "pods secrets")))
    assert (answer.code, answer.reason) == (403, "Forbidden")
    for part in ('Resources:["secrets"], Verbs:["get"]', 'Resources:["pods"], Verbs:["delete"]'):
        assert part in answer.message
    more = {"rules": [rule("*", "*", "*")]}
    assert (await as_bob(writer, "PATCH", f"{ROLES}/r", more)).code == 403
    named = {"metadata": {"labels": {"a": "b"}}}
    assert (await as_bob(writer, "PATCH", f"{ROLES}/writer", named)).code == 200


async def test_binding_gives_what_its_author_has(writer: Server) -> None:
    to_eve = {"kind": "User", "name": "eve"}
    for kind, name, code in (
        ("Role", "writer", 201),
        ("ClusterRole", "edit", 403),
        ("Role", "gone", 404),
        ("ClusterRole", "cluster-admin", 403),
    ):
        answer = await as_bob(writer, "POST", ROLEBINDINGS, binding(name, kind, name, **to_eve))
        assert answer.code == (409 if name == "writer" else code), answer.text
    await created(writer, ROLES, role("other", rule("delete", "secrets")))
    await created(writer, ROLEBINDINGS, binding("other", "Role", "other", **to_eve))
    add = {"subjects": [{"kind": "User", "name": "bob"}]}
    assert (await as_bob(writer, "PATCH", f"{ROLEBINDINGS}/other", add)).code == 403


@pytest.mark.parametrize("verb", ["escalate", "bind"])
async def test_verbs_permit_to_give_more(writer: Server, verb: str) -> None:
    group = "rbac.authorization.k8s.io"
    allowed = {**rule(verb, "clusterroles roles", group), "resourceNames": ["edit", "big"]}
    await created(writer, CLUSTERROLES, role("giver", allowed))
    await created(writer, ROLEBINDINGS, binding("giver", "ClusterRole", "giver"))
    made = await as_bob(writer, "POST", ROLES, role("big", rule("*", "*", "*")))
    bound = await as_bob(writer, "POST", ROLEBINDINGS, binding("e", "ClusterRole", "edit"))
    other = await as_bob(writer, "POST", ROLEBINDINGS, binding("a", "ClusterRole", "admin"))
    escalates = verb == "escalate"
    assert made.code == (201 if escalates else 403)
    assert bound.code == (403 if escalates else 201)
    assert other.code == (403)


async def test_aggregation_takes_all_rights(server: Server) -> None:
    rights = rule("*", "clusterroles", "rbac.authorization.k8s.io")
    rights["verbs"] = ["create", "update", "patch"]
    await created(server, CLUSTERROLES, role("author", rights))
    await created(server, CLUSTERROLEBINDINGS, binding("author", "ClusterRole", "author"))
    aggregated = {
        "metadata": {"name": "sum"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    }
    assert (await as_bob(server, "POST", CLUSTERROLES, aggregated)).code == 403
    assert (await server.create(CLUSTERROLES, aggregated)).code == 201


async def test_hostile_role_is_refused_quickly(writer: Server) -> None:
    many = [f"x{number}" for number in range(1000)]
    hostile = {"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}
    answer = await as_bob(writer, "POST", ROLES, role("hostile", hostile))
    assert answer.code == 403
    assert len(answer.text) < 64 * 1024


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "document", "fields"),
    [
        (ROLES, role("a", {"verbs": []}), ["rules[0].apiGroups", "rules[0].resources", "rules[0].verbs"]),
        (ROLES, role("a", {"verbs": ["get"], "nonResourceURLs": ["/x"]}), ["rules[0].nonResourceURLs"]),
        (
            CLUSTERROLES,
            role("a", {**rule("get", "pods"), "nonResourceURLs": ["/x"]}),
            ["rules[0].nonResourceURLs"],
        ),
        (CLUSTERROLES, {"metadata": {"name": "a"}, "aggregationRule": {}}, ["aggregationRule.clusterRoleSelectors"]),
        (ROLEBINDINGS, binding("a", "Pod", "x"), ["roleRef.kind"]),
        (CLUSTERROLEBINDINGS, binding("a", "Role", "x"), ["roleRef.kind"]),
        (ROLEBINDINGS, binding("a", "Role", "x/y"), ["roleRef.name"]),
        (ROLEBINDINGS, binding("a", "Role", "x", kind="Robot", name="x"), ["subjects[0].kind"]),
        (ROLEBINDINGS, binding("a", "Role", "x", kind="ServiceAccount", name="x"), ["subjects[0].namespace"]),
        (ROLEBINDINGS, binding("a", "Role", "x", kind="User", name=""), ["subjects[0].name"]),
        (ROLES, role("a%b"), ["metadata.name"]),
    ],
)  # fmt: skip
async def test_rules_of_fields(
    server: Server, path: str, document: Document, fields: list[str]
) -> None:
    answer = await server.create(path, document)
    assert (answer.code, sorted(answer.fields)) == (422, fields), answer.text


async def test_role_of_a_binding_stays(server: Server) -> None:
    await created(server, ROLEBINDINGS, binding("b", "ClusterRole", "view"))
    stored = (await server.get(f"{ROLEBINDINGS}/b")).body
    assert stored["roleRef"]["apiGroup"] == "rbac.authorization.k8s.io"
    assert stored["subjects"][0]["apiGroup"] == "rbac.authorization.k8s.io"
    answer = await server.patch(f"{ROLEBINDINGS}/b", {"roleRef": {"name": "edit"}})
    assert (answer.code, answer.fields) == (422, ["roleRef"])
