"""The grammar of paths decides what every request does; a misread one would act on another object."""

from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from grange.api.http import Request
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.api.status import ApiError, MethodNotAllowed, NotFound
from grange.apiserver.request_info import Target, parse

SCHEME = Scheme(BUILT_IN)
GRC = "/apis/grange.dev/v1alpha1/namespaces/d/replicationcontrollers"


def read(method: str, path: str, **query: str) -> tuple[str, str, str, str, str]:
    target = parse(Request(method, path, query), SCHEME)
    assert isinstance(target, Target)
    return target.verb, target.info.plural, target.namespace, target.name, target.subresource


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/d/pods", ("list", "pods", "d", "", "")),
        ("GET", "/api/v1/namespaces/d/pods/", ("list", "pods", "d", "", "")),
        ("POST", "/api/v1/namespaces/d/pods", ("create", "pods", "d", "", "")),
        ("DELETE", "/api/v1/namespaces/d/pods", ("deletecollection", "pods", "d", "", "")),
        ("GET", "/api/v1/namespaces/d/pods/p", ("get", "pods", "d", "p", "")),
        ("HEAD", "/api/v1/namespaces/d/pods/p", ("get", "pods", "d", "p", "")),
        ("PUT", "/api/v1/namespaces/d/pods/p", ("update", "pods", "d", "p", "")),
        ("PATCH", "/api/v1/namespaces/d/pods/p/status", ("patch", "pods", "d", "p", "status")),
        ("POST", "/api/v1/bindings", ("create", "pods", "", "", "binding")),
        ("POST", "/api/v1/namespaces/d/pods/p/binding", ("create", "pods", "d", "p", "binding")),
        ("GET", "/api/v1/namespaces/d/pods/p/log", ("get", "pods", "d", "p", "log")),
        ("GET", "/api/v1/namespaces", ("list", "namespaces", "", "", "")),
        ("GET", "/api/v1/namespaces/d", ("get", "namespaces", "", "d", "")),
        ("PUT", "/api/v1/namespaces/d/finalize", ("update", "namespaces", "", "d", "finalize")),
        ("PUT", "/api/v1/namespaces/d/status", ("update", "namespaces", "", "d", "status")),
        ("GET", "/api/v1/nodes/n", ("get", "nodes", "", "n", "")),
        ("PATCH", f"{GRC}/x", ("patch", "replicationcontrollers", "d", "x", "")),
    ],
)
def test_path_names_verb_kind_place_and_part(
    method: str, path: str, expected: tuple[str, ...]
) -> None:
    assert read(method, path) == expected


def test_watch_parameter_applies_to_lists_and_objects() -> None:
    assert read("GET", "/api/v1/pods", watch="true")[0] == "watch"
    assert read("GET", "/api/v1/namespaces/d/pods/p", watch="1")[0] == "watch"
    assert read("GET", "/api/v1/pods", watch="0")[0] == "list"
    assert read("HEAD", "/api/v1/pods", watch="1")[0] == "list"
    assert read("GET", "/api/v1/namespaces/d/pods/p/status", watch="1")[0] == "get"


@pytest.mark.parametrize(
    "path", ["/", "/api", "/apis", "/api/v1", "/apis/grange.dev/v1alpha1", "/readyz", "/openapi/v3"]
)
def test_paths_outside_resources_are_left_to_others(path: str) -> None:
    assert parse(Request("GET", path), SCHEME) is None


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("/api/v1/podz", '"podz" is not in v1, which has configmaps'),
        ("/apis/apps/v1/deployments", "no API apps/v1"),
        ("/api/v1/namespaces/d/nodes", "nothing is at"),
        ("/api/v1/pods/p", "nothing is at"),
        ("/api/v1/namespaces/d/pods/p/status/more", "nothing is at"),
        ("/api/v1/nodes/a/proxy/stats/summary", "nodes/proxy is not served; use kubectl top"),
        ("/api/v1/namespaces/d/pods/p/proxy", "pods/proxy is not served; use kubectl port-f"),
    ],
)
def test_path_of_nothing_is_not_found_and_shows_what_is_there(path: str, reported: str) -> None:
    with pytest.raises(NotFound, match=reported):
        parse(Request("GET", path), SCHEME)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/api/v1/namespaces/d/pods"),
        ("POST", "/api/v1/namespaces/d/pods/p"),
        ("POST", "/api/v1/pods"),
        ("BREW", "/api/v1/namespaces/d/pods"),
    ],
)
def test_method_that_a_path_does_not_take_is_refused(method: str, path: str) -> None:
    with pytest.raises(MethodNotAllowed):
        parse(Request(method, path), SCHEME)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "X"]),
    st.lists(
        st.sampled_from(
            ["api", "apis", "v1", "namespaces", "pods", "d", "", "status", "grange.dev"]
        ),
        max_size=9,
    ),
)
def test_any_path_is_read_or_refused_in_words(method: str, parts: list[str]) -> None:
    with suppress(ApiError):
        parse(Request(method, "/" + "/".join(parts)), SCHEME)
