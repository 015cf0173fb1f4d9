"""What a pod may leave out, as Kubernetes 1.36 fills it in."""

import copy
from typing import Any

import pytest
from tests.unit.api.documents import container, pod

from grange.api import schema
from grange.api.defaults.podspec import pull_policy
from grange.api.kinds import POD
from grange.api.validation import validate

Document = dict[str, Any]


def complete(document: Document) -> Document:
    assert schema.check(document, POD) == []
    schema.apply_defaults(document, POD)
    spec: Document = document["spec"]
    return spec


def test_pod_has_what_clients_read_without_a_look() -> None:
    spec = complete(container(image="nginx"))
    assert {key: spec[key] for key in spec if key not in ("containers", "tolerations")} == {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccount": "default",
        "serviceAccountName": "default",
        "terminationGracePeriodSeconds": 30,
    }
    assert spec["containers"] == [
        {
            "name": "main",
            "command": ["serve"],
            "image": "nginx",
            "imagePullPolicy": "Always",
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]


def test_container_without_image_has_no_pull_policy() -> None:
    assert "imagePullPolicy" not in complete(pod())["containers"][0]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("registry.example:5000/nginx", "Always"),
        ("registry.example:5000/a/nginx:1.27", "IfNotPresent"),
        ("nginx@sha256:0f0f", "IfNotPresent"),
        ("nginx:1.27@sha256:0f0f", "IfNotPresent"),
        ("nginx:latest@sha256:0f0f", "Always"),
    ],
)
def test_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"serviceAccount": "old"}, "old"),
        ({"serviceAccountName": "new"}, "new"),
        ({"serviceAccountName": "new", "serviceAccount": "old"}, "new"),
    ],
)
def test_service_account_has_two_names(fields: Document, name: str) -> None:
    spec = complete(pod(**fields))
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == (name, name)


def test_probe_and_volume_sources_are_completed() -> None:
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    given = container(livenessProbe={"grpc": {"port": 1}})
    given["spec"]["volumes"] = [
        {"name": "a", "hostPath": {"path": "/a"}},
        {"name": "b", "downwardAPI": {"items": [{"path": "n", **copy.deepcopy(field)}]}},
    ]
    spec = complete(given)
    assert spec["containers"][0]["livenessProbe"]["grpc"] == {"port": 1, "service": ""}
    assert spec["volumes"][0]["hostPath"] == {"path": "/a", "type": ""}
    item = spec["volumes"][1]["downwardAPI"]["items"][0]
    assert item["fieldRef"] == {"apiVersion": "v1", "fieldPath": "metadata.name"}


def test_pod_stored_with_fewer_defaults_can_be_changed() -> None:
    """What a release before this one stored gets the new defaults with its next write."""
    old = pod()
    new = copy.deepcopy(old)
    complete(new)
    assert validate(new, old, POD) == []
    new["spec"]["hostname"] = "other"
    assert [cause.field for cause in validate(new, old, POD)] == ["spec.hostname"]
