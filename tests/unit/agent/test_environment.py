"""The environment of a container."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.agent.builders import container, pod

from grange.agent import container_env, references
from grange.agent.container_env import EnvContext, expand
from grange.agent.errors import NotCreatableError
from grange.agent.references import Sources

FACTS = EnvContext(
    pod_ip="127.1.2.3",
    host_ip="127.0.0.1",
    node_name="node-1",
    allocatable={"cpu": "4", "memory": "8Gi"},
    base={"PATH": "/bin", "LANG": "C.UTF-8"},
    own={"GRANGE_ROOT": "/data/root"},
)
FOUND = Sources(
    "default",
    {
        ("ConfigMap", "cfg"): {"a": b"1", "b": b"two", "bin": b"\xff", "nul": b"a\0b"},
        ("Secret", "sec"): {"token": b"t"},
        ("ConfigMap", "gone"): None,
    },
)


def build(*env: dict[str, Any], found: Sources = FOUND, **fields: Any) -> dict[str, str]:
    view = pod(
        container(env=list(env), **fields),
        meta={"labels": {"app": "web", "b": "2"}, "annotations": {"note": 'a "quoted" word'}},
        serviceAccountName="robot",
    )
    return container_env.build(view, view.spec.containers[0], found, FACTS)


def ref(kind: str, name: str, key: str, **fields: Any) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {f"{kind}KeyRef": {"name": name, "key": key, **fields}}}


def field_ref(path: str) -> dict[str, Any]:
    return {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}


# --- expansion -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain", "plain"),
        ("$(A)", "1"),
        ("x$(A)y$(B)z", "x1ytwoz"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$$$$(A)", "$$(A)"),
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("cost: 5$$", "cost: 5$"),
        ("$()", "$()"),
        ("$(A B)", "$(A B)"),
    ],
)
def test_references_are_replaced_and_dollars_escape(text: str, expanded: str) -> None:
    assert expand(text, {"A": "1", "B": "two"}) == expanded


NAMES = st.text("AB_", min_size=1, max_size=3)


@given(st.text("$()AB xy", max_size=20))
@settings(max_examples=300, deadline=None)
def test_doubling_every_dollar_gives_the_text_itself(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"A": "1", "B": "2"}) == text


@given(st.text(max_size=30), st.dictionaries(NAMES, st.text("$()AB1", max_size=5)))
@settings(max_examples=300, deadline=None)
def test_values_are_never_expanded_again(text: str, variables: Mapping[str, str]) -> None:
    """A value that looks like a reference is data."""
    if "$" not in text:
        assert expand(text, variables) == text
    for name, value in variables.items():
        assert expand(f"<$({name})>", variables) == f"<{value}>"


def test_only_what_was_defined_before_is_known() -> None:
    env = build(
        {"name": "A", "value": "$(B)"},
        {"name": "B", "value": "2"},
        {"name": "C", "value": "$(B)-$(POD_IP)"},
    )
    assert (env["A"], env["C"]) == ("$(B)", "2-127.1.2.3")


def test_program_and_arguments_are_expanded() -> None:
    view = pod(container(program="run", args=["--ip=$(POD_IP)", "$$(X)"])).spec.containers[0]
    assert container_env.command_of(view, {"POD_IP": "1"}) == ("run", "--ip=1", "$(X)")
    empty = pod({"name": "main", "command": [""]}).spec.containers[0]
    with pytest.raises(NotCreatableError, match=r'container "main" names no program'):
        container_env.command_of(empty, {})


@pytest.mark.parametrize("image", ["", "nginx:1.27"])
def test_container_without_command_needs_an_image_runtime(image: str) -> None:
    view = pod({"name": "main", "image": image, "args": ["x"]}).spec.containers[0]
    with pytest.raises(NotCreatableError, match=r"set command to a program") as raised:
        container_env.command_of(view, {})
    assert (raised.value.reason, raised.value.lasting) == ("ImageRuntimeUnavailable", True)


# --- where values come from ------------------------------------------------------------------------


def test_every_container_is_given_who_and_where_it_is() -> None:
    env = build()
    assert env["POD_NAME"] == env["HOSTNAME"] == "web"
    assert env["POD_NAMESPACE"] == "default"
    assert env["POD_IP"] == "127.1.2.3"
    assert env["NODE_NAME"] == "node-1"
    assert env["GRANGE_ROOT"] == "/data/root"
    assert env["PATH"] == "/bin"
    assert set(env) == {
        "PATH", "LANG", "HOSTNAME", "POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP",
        "HOST_IP", "NODE_NAME", "GRANGE_ROOT",
    }  # fmt: skip


def test_the_manifest_has_the_last_word() -> None:
    groups = [{"configMapRef": {"name": "cfg"}}]
    text = Sources("default", {("ConfigMap", "cfg"): {"PATH": b"/cfg", "LANG": b"cfg"}})
    env = build({"name": "PATH", "value": "/mine"}, found=text, envFrom=groups)
    assert (env["PATH"], env["LANG"]) == ("/mine", "cfg")


def test_whole_maps_come_with_their_prefix() -> None:
    text = Sources("default", {("ConfigMap", "cfg"): {"a": b"1"}, ("Secret", "sec"): {"a": b"2"}})
    groups = [
        {"prefix": "CFG_", "configMapRef": {"name": "cfg"}},
        {"prefix": "SEC_", "secretRef": {"name": "sec"}},
        {"configMapRef": {"name": "nowhere", "optional": True}},
    ]
    env = build(found=text, envFrom=groups)
    assert (env["CFG_a"], env["SEC_a"]) == ("1", "2")


def test_single_keys() -> None:
    assert build(ref("configMap", "cfg", "b"))["X"] == "two"
    assert build(ref("secret", "sec", "token"))["X"] == "t"
    assert "X" not in build(ref("configMap", "cfg", "none", optional=True))
    assert "X" not in build(ref("configMap", "gone", "a", optional=True))


@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        (ref("configMap", "cfg", "none"), 'env X: there is no key "none" in ConfigMap "cfg"'),
        (ref("configMap", "gone", "a"), 'there is no ConfigMap "gone" in namespace "default"'),
        (ref("secret", "none", "a"), 'there is no Secret "none"'),
        (ref("configMap", "cfg", "bin"), "is not text"),
        (ref("configMap", "cfg", "nul"), "NUL byte"),
        (field_ref("status.phase"), 'fieldPath "status.phase" is not supported'),
        ({"name": "X", "valueFrom": {}}, "no source that is known"),
        (
            {"name": "X", "valueFrom": {"resourceFieldRef": {"resource": "limits"}}},
            'resourceFieldRef to "limits"',
        ),
    ],
)
def test_what_is_missing_is_named(variable: dict[str, Any], expected: str) -> None:
    with pytest.raises(NotCreatableError, match=r'container "main"') as caught:
        build(variable)
    assert expected in caught.value.message
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.labels['app']", "web"),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'app="web"\nb="2"'),
        ("metadata.annotations", 'note="a \\"quoted\\" word"'),
        ("metadata.annotations['note']", 'a "quoted" word'),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "127.1.2.3"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert build(field_ref(path))["X"] == value


@pytest.mark.parametrize(
    ("selector", "value"),
    [
        ({"resource": "requests.cpu", "divisor": "1m"}, "250"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "limits.cpu"}, "4"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "64"),
        ({"resource": "requests.memory"}, "0"),
        ({"resource": "limits.memory", "containerName": "main", "divisor": "0"}, "67108864"),
    ],
)
def test_requests_and_limits_are_numbers(selector: dict[str, str], value: str) -> None:
    """A limit that is not set is what the node has."""
    resources = {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}
    variable = {"name": "X", "valueFrom": {"resourceFieldRef": selector}}
    assert build(variable, resources=resources)["X"] == value


def test_what_a_pod_refers_to() -> None:
    volumes = [
        {"name": "a", "configMap": {"name": "cfg"}},
        {"name": "b", "secret": {"secretName": "sec", "optional": True}},
        {"name": "c", "projected": {"sources": [{"secret": {"name": "p"}}, {"downwardAPI": {}}]}},
        {"name": "d", "emptyDir": {}},
    ]
    view = pod(container(env=[ref("secret", "s", "k"), {"name": "Y"}]), volumes=volumes)
    assert [str(item) for item in references.of_volumes(view)] == [
        'ConfigMap "cfg"', 'Secret "sec"', 'Secret "p"',
    ]  # fmt: skip
    assert [str(item) for item in references.of_container(view.spec.containers[0])] == [
        'Secret "s"'
    ]
