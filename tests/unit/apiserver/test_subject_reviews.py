"""Questions about other users, and about tokens."""

from typing import Any

import pytest
from tests.unit.apiserver.server import Answer, Server

from grange.api.http import ADMIN, User
from grange.apiserver.account_tokens import AUDIENCE

BOB = User("bob", ("system:authenticated",))
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
SUBJECT = f"{AUTHORIZATION}/subjectaccessreviews"
LOCAL = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
TOKENS_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCOUNT_REQUESTS = "/api/v1/namespaces/default/serviceaccounts/default/token"
GET_PODS = {"verb": "get", "resource": "pods", "namespace": "default"}


async def ask(server: Server, path: str, sender: User = ADMIN, /, **spec: Any) -> Answer:
    return await server.ask("POST", path, {"spec": spec}, user=sender)


@pytest.mark.parametrize("path", [SUBJECT, LOCAL])
async def test_access_of_a_subject_is_reviewed(server: Server, path: str) -> None:
    for groups, allowed in (["dev"], False), (["system:masters"], True):
        answer = await ask(server, path, user="x", groups=groups, resourceAttributes=GET_PODS)
        assert (answer.code, answer.body["status"]["allowed"]) == (201, allowed)
    assert (await ask(server, path, BOB, user="x", resourceAttributes=GET_PODS)).code == 403
    answer = await ask(server, path, resourceAttributes=GET_PODS)
    assert (answer.code, answer.fields) == (422, ["spec.user"])


async def test_local_review_is_about_its_namespace(server: Server) -> None:
    other = {**GET_PODS, "namespace": "kube-system"}
    answer = await ask(server, LOCAL, user="x", resourceAttributes=other)
    assert (answer.code, answer.fields) == (422, ["spec.resourceAttributes.namespace"])
    path = {"path": "/metrics", "verb": "get"}
    answer = await ask(server, LOCAL, user="x", nonResourceAttributes=path)
    assert (answer.code, answer.fields) == (422, ["spec.resourceAttributes"])
    body = {"metadata": {"namespace": "kube-system"}, "spec": {"user": "x"}}
    assert (await server.ask("POST", LOCAL, body)).code == 400
    assert (await server.ask("GET", LOCAL)).code == 405


async def token_for(server: Server, *audiences: str) -> str:
    spec = {"audiences": [*audiences]} if audiences else {}
    answer = await server.create(ACCOUNT_REQUESTS, {"spec": spec})
    return str(answer.body["status"]["token"])


async def test_token_is_reviewed_for_its_audiences(server: Server) -> None:
    status = (await ask(server, TOKENS_PATH, token=await token_for(server))).body["status"]
    assert (status["authenticated"], status["audiences"]) == (True, [AUDIENCE])
    assert status["user"]["username"] == "system:serviceaccount:default:default"
    vault = await token_for(server, "vault")
    assert not (await ask(server, TOKENS_PATH, token=vault)).body["status"]["authenticated"]
    status = (await ask(server, TOKENS_PATH, token=vault, audiences=["web", "vault"])).body[
        "status"
    ]
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])


@pytest.mark.parametrize("token", ["wrong", "a.b.c", "\u00e9", "x" * 10_000])
async def test_unknown_token_is_not_authenticated(server: Server, token: str) -> None:
    answer = await ask(server, TOKENS_PATH, token=token)
    assert (answer.code, answer.body["status"]["authenticated"]) == (201, False)


async def test_token_review_needs_a_token_and_the_right(server: Server) -> None:
    assert (await ask(server, TOKENS_PATH, token="")).code == 400
    assert (await ask(server, TOKENS_PATH, token=7)).code == 422
    assert (await ask(server, TOKENS_PATH, BOB, audiences=[])).code == 403
