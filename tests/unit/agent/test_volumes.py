"""Volumes as plans of files, and where they may appear."""

from typing import Any

import pytest
from tests.unit.agent.builders import container, pod

from grange.agent import volumes
from grange.agent.container_env import EnvContext
from grange.agent.container_runtime import Mount, VolumePlan
from grange.agent.errors import NotCreatableError
from grange.agent.references import Sources

FOUND = Sources(
    "default",
    {
        ("ConfigMap", "cfg"): {"b.conf": b"B", "a.conf": b"A"},
        ("Secret", "sec"): {"key": b"K"},
    },
)


def plan(volume: dict[str, Any]) -> VolumePlan:
    view = pod(volumes=[{"name": "v", **volume}], meta={"labels": {"app": "web"}})
    (made,) = volumes.plan(view, FOUND, EnvContext(pod_ip="127.1.2.3"))
    return made


def files(volume: dict[str, Any]) -> dict[str, tuple[bytes, int]]:
    return {file.path: (file.content, file.mode) for file in plan(volume).files}


def test_an_empty_directory_has_no_files() -> None:
    assert plan({"emptyDir": {}}) == VolumePlan("v")


def test_a_config_map_is_a_file_a_key() -> None:
    found = files({"configMap": {"name": "cfg"}})
    assert found == {"a.conf": (b"A", 0o644), "b.conf": (b"B", 0o644)}


def test_a_secret_is_private_unless_its_mode_is_set() -> None:
    assert files({"secret": {"secretName": "sec"}}) == {"key": (b"K", 0o600)}
    wide = {"secret": {"secretName": "sec", "defaultMode": 0o640}}
    assert files(wide) == {"key": (b"K", 0o640)}


def test_items_choose_keys_paths_and_modes() -> None:
    items = [{"key": "a.conf", "path": "etc/x", "mode": 0o400}]
    assert files({"configMap": {"name": "cfg", "items": items}}) == {"etc/x": (b"A", 0o400)}


def test_what_is_optional_may_be_missing() -> None:
    assert files({"configMap": {"name": "none", "optional": True}}) == {}
    items = [{"key": "none", "path": "x"}]
    assert files({"configMap": {"name": "cfg", "optional": True, "items": items}}) == {}


def test_the_downward_api_writes_fields() -> None:
    items = [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        {"path": "cpu", "resourceFieldRef": {"resource": "requests.cpu", "containerName": "main"}},
    ]
    found = files({"downwardAPI": {"items": items}})
    assert found == {"labels": (b'app="web"', 0o644), "cpu": (b"0", 0o644)}


def test_a_projection_is_all_of_its_sources() -> None:
    sources = [
        {"configMap": {"name": "cfg", "items": [{"key": "a.conf", "path": "one/a"}]}},
        {"secret": {"name": "sec"}},
        {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    found = files({"projected": {"sources": sources, "defaultMode": 0o600}})
    assert found == {"one/a": (b"A", 0o600), "key": (b"K", 0o600), "n": (b"web", 0o600)}


def test_a_host_path_is_used_as_it_is() -> None:
    made = plan({"hostPath": {"path": "/srv/data", "type": "Directory"}})
    assert (made.host_path, made.host_path_type) == ("/srv/data", "Directory")


@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({}, "knows emptyDir"),
        ({"hostPath": {"path": "data"}}, "not absolute"),
        ({"configMap": {"name": "none"}}, 'no ConfigMap "none"'),
        (
            {"configMap": {"name": "cfg", "items": [{"key": "none", "path": "x"}]}},
            'no key "none"',
        ),
        (
            {"configMap": {"name": "cfg", "items": [{"key": "a.conf", "path": "../x"}]}},
            "stay inside",
        ),
        ({"configMap": {"name": "cfg", "items": [{"key": "a.conf", "path": "/x"}]}}, "stay inside"),
        ({"projected": {"sources": [{"serviceAccountToken": {}}]}}, "serviceAccountToken"),
    ],
)
def test_what_cannot_be_made_is_named(volume: dict[str, Any], expected: str) -> None:
    with pytest.raises(NotCreatableError, match='volume "v"') as caught:
        plan(volume)
    assert expected in caught.value.message


def mounts(*given: dict[str, Any]) -> tuple[Mount, ...]:
    names: list[dict[str, Any]] = [{"name": name, "emptyDir": {}} for name in ("v", "w-1")]
    view = pod(container(volumeMounts=list(given)), volumes=names)
    return volumes.mounts(view, view.spec.containers[0])


def test_mounts_and_their_variables() -> None:
    found = mounts(
        {"name": "v", "mountPath": "/etc/app", "readOnly": True},
        {"name": "w-1", "mountPath": "data", "subPath": "part"},
    )
    assert found == (Mount("v", "/etc/app", "", True), Mount("w-1", "data", "part"))
    assert volumes.variables({"v": "/p/v", "w-1": "/p/w"}, found) == {
        "GRANGE_VOLUME_V": "/p/v",
        "GRANGE_VOLUME_W_1": "/p/w",
    }


def test_siblings_whose_names_begin_alike_do_not_overlap() -> None:
    mounts({"name": "v", "mountPath": "/data"}, {"name": "w-1", "mountPath": "/data-2"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{"name": "x", "mountPath": "/a"}], "no such volume"),
        ([{"name": "v", "mountPath": "/../a"}], "must not lead out"),
        ([{"name": "v", "mountPath": "/a", "subPath": "../b"}], "must not lead out"),
        ([{"name": "v", "mountPath": "/a", "subPath": "/b"}], "must not lead out"),
        ([{"name": "v", "mountPath": "/"}], "names no place"),
        ([{"name": "v", "mountPath": "/a"}, {"name": "w-1", "mountPath": "/a/b"}], "overlap"),
        ([{"name": "v", "mountPath": "/a"}, {"name": "w-1", "mountPath": "a/"}], "overlap"),
    ],
)
def test_impossible_mounts_are_refused(given: list[dict[str, Any]], expected: str) -> None:
    with pytest.raises(NotCreatableError, match=expected):
        mounts(*given)


EXPRESSION = container(
    volumeMounts=[{"name": "v", "mountPath": "/logs", "subPathExpr": "$(POD_NAME)/$$(X)"}]
)


def test_sub_path_expression_is_expanded() -> None:
    view = pod(EXPRESSION, volumes=[{"name": "v", "emptyDir": {}}])
    found = volumes.mounts(view, view.spec.containers[0])
    (made,) = volumes.expanded(found, {"POD_NAME": "web"}, "main")
    assert made.sub_path == "web/$(X)"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, "there is no variable POD_NAME"),
        ({"POD_NAME": ".."}, "must not lead out"),
        ({"POD_NAME": "/x"}, "must not"),
    ],
)
def test_sub_path_expression_must_lead_to_a_place(env: dict[str, str], expected: str) -> None:
    view = pod(EXPRESSION, volumes=[{"name": "v", "emptyDir": {}}])
    found = volumes.mounts(view, view.spec.containers[0])
    with pytest.raises(NotCreatableError, match=expected):
        volumes.expanded(found, env, "main")
