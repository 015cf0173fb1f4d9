"""What stands in for kinds that are not served: every manifest that is made is one that is taken."""

import pytest

from grange.api import alternatives, codec, schema
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.api.validation import validate

SCHEME = Scheme(BUILT_IN)
TEMPLATE: Document = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "img"}]},
}
DEPLOYMENT: Document = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "team", "labels": {"a": "b"}, "uid": "u"},
    "spec": {
        "replicas": 3,
        "paused": True,
        "minReadySeconds": 5,
        "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": TEMPLATE,
    },
}


def instead(document: Document) -> Document:
    """The manifest to use, which must be valid."""
    _, made = alternatives.advise_on_document(SCHEME, document)
    assert made is not None
    info = SCHEME.kind(made["apiVersion"], made["kind"])
    assert info is not None
    checked = codec.clone(made)
    assert schema.check(checked, info) == []
    schema.apply_defaults(checked, info)
    checked["metadata"].setdefault("namespace", "default")
    assert validate(checked, None, info) == []
    return made


def test_deployment_becomes_a_replication_controller() -> None:
    assert instead(DEPLOYMENT) == {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "metadata": {"name": "web", "namespace": "team", "labels": {"a": "b"}},
        "spec": {
            "replicas": 3,
            "template": TEMPLATE,
            "rollout": {"maxSurge": 1, "minReadySeconds": 5, "paused": True},
        },
    }


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("apps/v1", "ReplicaSet"),
        ("apps/v1beta1", "Deployment"),
        ("v1", "ReplicationController"),
        ("apps/v1", "StatefulSet"),
    ],
)
def test_other_controllers_become_one_too(version: str, kind: str) -> None:
    spec = {"replicas": 2, "template": TEMPLATE}
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    assert instead(document)["spec"] == spec


def test_daemon_set_has_one_pod_on_each_node() -> None:
    document = {**DEPLOYMENT, "kind": "DaemonSet", "spec": {"template": TEMPLATE}}
    assert instead(document)["spec"]["placement"] == "OnePerNode"


@pytest.mark.parametrize(("version", "kind"), [("apps/v1", "Deployment"), ("apps/v1", "DaemonSet")])
def test_advice_names_the_containers_without_command(version: str, kind: str) -> None:
    containers = [
        {"name": "main", "image": "img"},
        {"name": "own", "image": "img", "command": ["x"]},
    ]
    init = [{"name": "first", "image": "img"}]
    spec = {"containers": containers, "initContainers": init}
    document = {"apiVersion": version, "kind": kind, "spec": {"template": {"spec": spec}}}
    advice, _ = alternatives.advise_on_document(SCHEME, document)
    assert advice.endswith(
        "; nodes here run programs of the machine, not images: name one in command of containers "
        "first, main"
    )


def test_advice_on_programs_has_nothing_to_add() -> None:
    spec = {"containers": [{"name": "own", "image": "img", "command": ["x"]}]}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"template": {"spec": spec}},
    }
    advice, _ = alternatives.advise_on_document(SCHEME, document)
    assert advice == "use ReplicationController in grange.dev/v1alpha1"


@pytest.mark.parametrize("kind", ["Ingress", "CustomResourceDefinition"])
def test_some_have_advice_and_no_manifest(kind: str) -> None:
    groups = {
        "Ingress": "networking.k8s.io/v1",
        "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    }
    document = {"apiVersion": groups[kind], "kind": kind}
    advice, made = alternatives.advise_on_document(SCHEME, document)
    assert advice
    assert made is None


def test_kind_of_another_version_is_named() -> None:
    document = {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget"}
    advice, _ = alternatives.advise_on_document(SCHEME, document)
    assert advice == "PodDisruptionBudget is served in policy/v1"
    document = {"apiVersion": "batch/v1beta1", "kind": "CronJob"}
    assert alternatives.advise_on_document(SCHEME, document)[0] == "CronJob is served in batch/v1"


@pytest.mark.parametrize("spec", [None, "x", {"template": None}, {"strategy": 3, "template": []}])
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_manifests_that_make_no_sense_are_survived(kind: str, spec: object) -> None:
    document = {"apiVersion": "apps/v1", "kind": kind, "metadata": spec, "spec": spec}
    assert alternatives.advise_on_document(SCHEME, document)[0]


def test_nothing_is_reported_of_what_is_not_known() -> None:
    document = {"apiVersion": "example.com/v1", "kind": "Widget"}
    assert alternatives.advise_on_document(SCHEME, document) == ("", None)
    assert alternatives.advise_on_resource(SCHEME, "example.com", "widgets") == ""
    assert alternatives.advise_on_word("widgets") == ""
