"""Which credentials go to which registry."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from grange.agent.registry_credentials import CONFIG, CONFIG_JSON, of_secret, split


def secret(auths: Any, key: str = CONFIG_JSON) -> dict[str, str]:
    document = {"auths": auths} if key == CONFIG_JSON else auths
    return {key: base64.b64encode(json.dumps(document).encode()).decode()}


def entry(user: str) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:p".encode()).decode()}


@pytest.mark.parametrize(
    ("reference", "host", "path"),
    [
        ("nginx", "docker.io", "library/nginx"),
        ("nginx:1.27", "docker.io", "library/nginx"),
        ("me/app@sha256:00", "docker.io", "me/app"),
        ("index.docker.io/me/app", "docker.io", "me/app"),
        ("localhost/app:1", "localhost", "app"),
        ("registry.example:5000/team/app:v1@sha256:00", "registry.example:5000", "team/app"),
    ],
)
def test_references_name_a_registry(reference: str, host: str, path: str) -> None:
    assert split(reference) == (host, path)


@pytest.mark.parametrize(
    ("place", "reference", "fits"),
    [
        ("https://index.docker.io/v1/", "nginx", True),
        ("docker.io", "me/app", True),
        ("registry.example", "registry.example/app", True),
        ("registry.example", "registry.example:5000/app", False),
        ("registry.example", "registry.example.evil/app", False),
        ("*.example", "eu.example/app", True),
        ("registry.example/team", "registry.example/team/app", True),
        ("registry.example/team", "registry.example/teams/app", False),
        ("registry.example", "nginx", False),
    ],
)
def test_credentials_go_to_their_registry_only(place: str, reference: str, fits: bool) -> None:
    found = of_secret(secret({place: entry("me")}), reference)
    assert [item.username for item in found] == (["me"] if fits else [])


def test_the_closest_match_is_tried_first() -> None:
    auths = {
        "r.example": entry("all"),
        "r.example/team/app": entry("app"),
        "r.example/team": entry("team"),
    }
    found = of_secret(secret(auths), "r.example/team/app:1")
    assert [item.username for item in found] == ["app", "team", "all"]


def test_both_formats_are_read() -> None:
    plain = {"r.example": {"username": "me", "password": "secret"}}
    for key in (CONFIG_JSON, CONFIG):
        [found] = of_secret(secret(plain, key), "r.example/app")
        assert (found.username, found.password) == ("me", "secret")
        assert "secret" not in repr(found)
    [token] = of_secret(secret({"r.example": {"identitytoken": "t"}}), "r.example/app")
    assert (token.username, token.identity_token) == ("", "t")


@given(
    st.dictionaries(st.sampled_from([CONFIG_JSON, CONFIG, "other"]), st.text(max_size=40)),
    st.text(max_size=40),
)
def test_nonsense_gives_no_credentials(data: dict[str, str], reference: str) -> None:
    assert of_secret(data, reference) == []


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda item: (
            st.lists(item, max_size=3) | st.dictionaries(st.text(max_size=8), item, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_any_document_in_a_secret_is_survived(document: Any) -> None:
    text = base64.b64encode(json.dumps(document).encode()).decode()
    assert of_secret({CONFIG_JSON: text, CONFIG: text}, "r.example/app") == []
