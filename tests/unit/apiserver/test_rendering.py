"""Answers for people: indented JSON, and YAML, of the same content."""

import json

import pytest
import yaml
from tests.unit.apiserver.server import CONFIGMAPS, PODS, TABLE, Server, configmap, pod

from grange.api.http import ADMIN, JSON, YAML, Request, Response
from grange.apiserver.rendering import BLOCK_YAML_MAX_BYTES, INDENTED_MAX_BYTES, render


async def asked(server: Server, path: str, agent: str = "", **query: str) -> Response:
    headers = {"accept": JSON, "user-agent": agent} if agent else {"accept": JSON}
    return await server.application.handle(Request("GET", path, query, headers, b"", ADMIN))


@pytest.mark.parametrize(
    ("agent", "query", "indented"),
    [
        ("", {}, False),
        ("", {"pretty": "true"}, True),
        ("", {"pretty": "1"}, True),
        ("curl/8.0", {}, True),
        ("Mozilla/5.0 (X11)", {}, True),
        ("curl/8.0", {"pretty": "false"}, False),
        ("kubectl/v1.36.0", {}, False),
    ],
)
async def test_json_is_indented_for_people(
    server: Server, agent: str, query: dict[str, str], indented: bool
) -> None:
    await server.made(CONFIGMAPS, configmap(a="b"))
    plain = await asked(server, f"{CONFIGMAPS}/settings")
    answer = await asked(server, f"{CONFIGMAPS}/settings", agent, **query)
    assert json.loads(answer.body) == json.loads(plain.body)
    assert answer.body.startswith(b'{\n  "apiVersion": "v1",\n') == indented
    assert answer.content_type == JSON


@pytest.mark.parametrize(
    "path", [CONFIGMAPS, f"{CONFIGMAPS}/settings", f"{CONFIGMAPS}/none", "/api"]
)
async def test_answers_are_given_in_yaml(server: Server, path: str) -> None:
    await server.made(CONFIGMAPS, configmap(a="yes", b="2026-01-01", c="caf\u00e9\n"))
    plain = await server.get(path)
    answer = await server.get(path, accept=YAML)
    assert answer.code == plain.code
    assert answer.response.content_type == YAML
    assert yaml.safe_load(answer.text) == plain.body
    assert "{" not in answer.text.replace("{}", "")


@pytest.mark.parametrize("accept", [f"{JSON},{YAML}", "*/*", TABLE, f"{YAML};q=0,{JSON}"])
async def test_json_is_preferred_where_it_comes_first(server: Server, accept: str) -> None:
    assert (await server.get(CONFIGMAPS, accept=accept)).response.content_type == JSON


async def test_large_yaml_is_written_as_json_which_it_is(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap(a="x" * BLOCK_YAML_MAX_BYTES))
    answer = await server.get(f"{CONFIGMAPS}/settings", accept=YAML)
    assert answer.response.content_type == YAML
    assert yaml.safe_load(answer.text) == json.loads(answer.text)


async def test_writes_take_and_give_yaml(server: Server) -> None:
    text = yaml.safe_dump(pod()).encode()
    made = await server.ask("POST", PODS, text, accept=YAML, media=YAML)
    assert made.code == 201
    written = yaml.safe_load(made.text)
    assert (written["kind"], written["metadata"]["name"]) == ("Pod", "web")
    twice = await server.ask("POST", PODS, text, accept=YAML, media=YAML)
    assert yaml.safe_load(twice.text)["reason"] == "AlreadyExists"


def test_very_large_answers_stay_compact() -> None:
    body = b'{"a":"' + b"x" * INDENTED_MAX_BYTES + b'"}'
    for headers, query in (({"accept": JSON}, {"pretty": "true"}), ({"accept": YAML}, {})):
        response = Response(200, body)
        render(Request("GET", "/", query, headers), response)
        assert response.body is body
