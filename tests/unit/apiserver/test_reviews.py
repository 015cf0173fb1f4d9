"""Questions that a caller asks about itself."""

from typing import Any

import pytest
from tests.unit.apiserver.server import Answer, Server

from grange.api.http import ADMIN, ANONYMOUS, User

BOB = User("bob", ("system:authenticated",))
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def may(server: Server, user: User, **spec: Any) -> Answer:
    body = {"kind": "SelfSubjectAccessReview", "spec": spec}
    return await server.ask("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", body, user=user)


async def test_caller_learns_who_it_is(server: Server) -> None:
    for user in (ADMIN, BOB):
        answer = await server.ask("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, user=user)
        assert (answer.code, answer.body["kind"]) == (201, "SelfSubjectReview")
        reported = {"username": user.name, "groups": list(user.groups)}
        assert answer.body["status"] == {"userInfo": reported}


@pytest.mark.parametrize(
    ("user", "asked", "allowed"),
    [
        (ADMIN, {"verb": "*", "resource": "*", "group": "*"}, True),
        (ADMIN, {"verb": "create", "resource": "pods", "namespace": "default"}, True),
        (BOB, {"verb": "create", "resource": "pods", "namespace": "default"}, False),
        (BOB, {"verb": "get", "resource": "leases", "group": "coordination.k8s.io"}, False),
        (
            BOB,
            {"verb": "create", "resource": "selfsubjectreviews", "group": "authentication.k8s.io"},
            True,
        ),
        (ANONYMOUS, {}, None),
    ],
)
async def test_caller_learns_what_it_may_do(
    server: Server, user: User, asked: dict[str, str], allowed: bool | None
) -> None:
    answer = await may(server, user, resourceAttributes=asked)
    if allowed is None:
        assert (answer.code, answer.reason) == (403, "Forbidden")
    else:
        assert (answer.code, answer.body["status"]["allowed"]) == (201, allowed)
        assert answer.body["spec"] == {"resourceAttributes": asked}


async def test_caller_learns_which_paths_it_may_ask_for(server: Server) -> None:
    for path, allowed in (("/version", True), ("/apis/apps", True), ("/metrics", False)):
        answer = await may(server, BOB, nonResourceAttributes={"path": path, "verb": "get"})
        assert answer.body["status"]["allowed"] is allowed


async def test_review_asks_one_thing(server: Server) -> None:
    both: dict[str, Any] = {"resourceAttributes": {}, "nonResourceAttributes": {}}
    for spec in ({}, both):
        answer = await may(server, ADMIN, **spec)
        assert (answer.code, answer.fields) == (422, ["spec"])
    answer = await may(server, ADMIN, resourceAttributes={"verb": 7})
    assert (answer.code, answer.fields) == (422, ["spec.resourceAttributes.verb"])
    body = {"kind": "SelfSubjectReview"}
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    assert (await server.ask("POST", path, body)).code == 400


async def test_rules_of_the_caller_are_listed(server: Server) -> None:
    path = f"{AUTHORIZATION}/selfsubjectrulesreviews"
    answer = await server.ask("POST", path, {"spec": {"namespace": "default"}}, user=ADMIN)
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    assert every in answer.body["status"]["resourceRules"]
    answer = await server.ask("POST", path, {"spec": {"namespace": "default"}}, user=BOB)
    status = answer.body["status"]
    assert [rule["resources"] for rule in status["resourceRules"]] == [
        ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        ["selfsubjectreviews"],
    ]
    [discovery, _] = status["nonResourceRules"]
    assert {"/version", "/openapi/*"} <= {*discovery["nonResourceURLs"]}
    assert status["incomplete"] is False
    assert (await server.ask("POST", path, {"spec": {}})).code == 400


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (f"{AUTHENTICATION}/selfsubjectreviews", {}),
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", {"resourceAttributes": {}}),
        (f"{AUTHORIZATION}/selfsubjectrulesreviews", {"namespace": "default"}),
        ("/api/v1/namespaces/default/serviceaccounts/default/token", {}),
    ],
)
async def test_status_that_a_client_sends_is_not_looked_at(
    server: Server, path: str, spec: dict[str, Any]
) -> None:
    body = {"metadata": {}, "status": {}, **({"spec": spec} if spec else {})}
    answer = await server.create(path, body)
    assert answer.code == 201, answer.text
    assert answer.body["status"]


async def test_reviews_are_created_and_nothing_else(server: Server) -> None:
    for path in (
        f"{AUTHENTICATION}/selfsubjectreviews",
        f"{AUTHORIZATION}/selfsubjectrulesreviews",
    ):
        assert (await server.ask("GET", path)).code == 405
    groups = [item["name"] for item in (await server.get("/apis")).body["groups"]]
    assert {"authentication.k8s.io", "authorization.k8s.io"} <= set(groups)
    resources = (await server.get(AUTHENTICATION)).body["resources"]
    assert [(each["name"], each["verbs"]) for each in resources] == [
        ("selfsubjectreviews", ["create"]),
        ("tokenreviews", ["create"]),
    ]
    assert (await server.get(f"{AUTHENTICATION}/tokenreviews")).code == 405
