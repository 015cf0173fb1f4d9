"""Every field of a pod is honoured, warned about or refused, and the table states which."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.api.documents import container, controller, pod

from grange.api import codec, schema, unsupported
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.pod_fields import FIELDS, TOKEN_MOUNT, Field, Support
from grange.api.schema import builtin
from grange.api.validation import validate

Document = dict[str, Any]
SPEC: Document = {"$ref": "#/definitions/io.k8s.api.core.v1.PodSpec"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
OTHERS = {"boolean": True, "integer": 7, "number": 7.0, "string": "other"}


def leaves(part: Document, path: str = "") -> Iterator[tuple[str, Document]]:
    """Every field that has no fields inside, with its schema."""
    found = builtin().resolve(part)
    if found.get("type") == "array":
        yield from leaves(found["items"], f"{path}[]")
    elif properties := found.get("properties"):
        for name, below in properties.items():
            yield from leaves(below, f"{path}.{name}" if path else name)
    else:
        yield path, found


LEAVES = dict(leaves(SPEC))


def sample(path: str, leaf: Document) -> Document:
    """A pod spec in which this one field is set, to a value that is no default."""
    value: Any = OTHERS.get(leaf.get("type", ""), {"cpu": "1"})
    if path.endswith((".allowPrivilegeEscalation", "hostUsers")):
        value = False
    if path.endswith("[]"):
        path, value = path.removesuffix("[]"), [value]
    for name in reversed(path.split(".")):
        value = {name.removesuffix("[]"): [value] if name.endswith("[]") else value}
    spec: Document = value
    if path.endswith("s[].image"):
        spec[path.partition("[")[0]][0]["command"] = ["serve"]
    return spec


def field_of(path: str) -> Field | None:
    """The entry that covers a path, the longest that there is."""
    while path:
        found = FIELDS.get(path)
        if found is not None:
            return found
        path = path[:-2] if path.endswith("[]") else path.rpartition(".")[0]
    return None


def indexed(path: str) -> str:
    return f"spec.{path.removesuffix('[]').replace('[]', '[0]')}"


def test_table_names_every_field_of_the_schema() -> None:
    assert len(LEAVES) > 500
    assert [path for path in LEAVES if field_of(path) is None] == []


def test_table_names_no_field_that_the_schema_lacks() -> None:
    parts = {
        prefix
        for path in LEAVES
        for end in range(len(path) + 1)
        if (prefix := path[:end]) and path[end : end + 1] in {"", ".", "["}
    }
    parts |= {f"{path}[]" for path in parts if f"{path}[]" in "\n".join(LEAVES)}
    assert [path for path in FIELDS if path not in parts] == []


@pytest.mark.parametrize("path", LEAVES)
def test_field_is_warned_about_as_the_table_states(path: str) -> None:
    entry = field_of(path)
    assert entry is not None
    found = unsupported.find(sample(path, LEAVES[path]), "spec")
    if entry.support in {Support.WARNED, Support.BY_NODE} and not entry.covered_by:
        assert [field for _, field in found] == [entry]
        assert indexed(path).startswith(found[0][0])
        [text] = unsupported.warnings(found)
        assert text == f"{found[0][0]}: {entry.warning}"
    else:
        assert found == []


def test_refused_fields_are_refused() -> None:
    refused = {path for path, entry in FIELDS.items() if entry.support is Support.REFUSED}
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
    added = {"restartPolicy": "Always", "restartPolicyRules": [rule]}
    assert refused == {f"ephemeralContainers[].{field}" for field in added}
    old = container()
    document = codec.clone(old)
    document["spec"]["ephemeralContainers"] = [{"name": "added", "command": ["sh"], **added}]
    causes = [(cause.field, cause.message) for cause in validate(document, old, POD)]
    assert causes == [
        (f"spec.ephemeralContainers[0].{field}", "Forbidden: ephemeral containers run once")
        for field in added
    ]


def test_covering_field_is_in_the_table() -> None:
    covered = {entry.covered_by for entry in FIELDS.values()} - {""}
    assert covered == {"image"}


def test_defaults_and_the_token_need_no_warning() -> None:
    mount = {"name": "token", "mountPath": TOKEN_MOUNT, "readOnly": True}
    document = container(image="nginx", volumeMounts=[mount])
    document["spec"]["volumes"] = [{"name": "token", "emptyDir": {}}]
    document["spec"]["containers"][0].pop("command")
    schema.apply_defaults(document, POD)
    assert unsupported.find(document["spec"], "spec") == []


OF_CONTAINERS: Document = {
    "privileged": True,
    "seccompProfile": {"type": "RuntimeDefault"},
    "readOnlyRootFilesystem": True,
}
"""What containers from images have on every node that runs images."""
IMAGES = {"grange.dev/images": "true"}


def warned_fields(**spec: Any) -> list[str]:
    return [path.rpartition(".")[2] for path, _ in unsupported.find(spec, "spec")]


@pytest.mark.parametrize(
    ("image", "spec", "warned"),
    [
        pytest.param("nginx", {"nodeSelector": IMAGES}, [], id="images selected"),
        pytest.param("nginx", {"runtimeClassName": "cri"}, [], id="class cri"),
        pytest.param("nginx", {}, ["image", *OF_CONTAINERS], id="any node"),
        pytest.param("", {"nodeSelector": IMAGES}, list(OF_CONTAINERS), id="no image"),
        pytest.param(
            "nginx",
            {"nodeSelector": IMAGES, "runtimeClassName": "process"},
            ["image", *OF_CONTAINERS],
            id="class process",
        ),
    ],
)
def test_warnings_follow_the_runtime(image: str, spec: Document, warned: list[str]) -> None:
    main = {"name": "main", "image": image or None, "command": ["x"]}
    found = warned_fields(containers=[{**main, "securityContext": OF_CONTAINERS}], **spec)
    assert sorted(found) == sorted(warned)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({}, "on a node without grange.dev/images=true the container waits"),
        ({"nodeSelector": IMAGES}, ""),
        ({"runtimeClassName": "cri"}, ""),
        ({"runtimeClassName": "process"}, "the pod runs as processes of its node"),
        ({"initContainers": [{"name": "a", "command": ["x"]}]}, "the pod runs as processes of"),
    ],
)
def test_command_is_needed_by_processes_only(spec: Document, why: str) -> None:
    spec = {"containers": [{"name": "main", "image": "nginx"}], **spec}
    found = unsupported.command_warnings(spec, "spec")
    assert len(found) == bool(why)
    assert all(text.startswith("spec.containers[0].command: needed") for text in found)
    assert why in "".join(found)


def test_warnings_are_one_for_each_cause() -> None:
    security = {
        "seLinuxOptions": {"level": "x"},
        "procMount": "Unmasked",
        "windowsOptions": {"hostProcess": True},
    }
    containers = [{"name": name, "securityContext": security} for name in "abc"]
    found = list(unsupported.warnings(unsupported.find({"containers": containers}, "spec")))
    at = "spec.containers[{}].securityContext.{}"
    assert [text.partition(": ")[0] for text in found] == [
        ", ".join(
            at.format(index, name)
            for index, name in (
                (0, "seLinuxOptions"),
                (0, "procMount"),
                (1, "seLinuxOptions"),
                (1, "procMount"),
            )
        )
        + " and 2 more",
        ", ".join(at.format(index, "windowsOptions") for index in range(3)),
    ]


def test_new_pod_lists_the_fields_in_a_condition() -> None:
    document = pod(hostUsers=False, os={"name": "windows"})
    schema.apply_defaults(document, POD)
    assert len(list(POD.review(document, None, NOW))) == 2
    assert document["status"]["conditions"] == [
        {
            "type": "grange.dev/UnsupportedFields",
            "status": "True",
            "reason": "FieldsNotHonoured",
            "message": "no effect: spec.hostUsers, spec.os",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    changed = {**document, "metadata": {"labels": {"a": "b"}}}
    assert list(POD.review(changed, document, NOW)) == []


def test_specs_of_one_template_are_looked_at_once() -> None:
    reviewer = unsupported.Reviewer()
    for node in ("a", "b"):
        assert reviewer.review(pod(hostUsers=False, nodeName=node)["spec"]).warnings
    assert reviewer.looks == 1
    assert (
        reviewer.review(pod(resourceClaims=[1])["spec"]).message == "no effect: spec.resourceClaims"
    )
    assert reviewer.review(pod()["spec"]) == ((), "")
    assert reviewer.looks == 3


def test_template_is_warned_about_when_it_changes() -> None:
    made = controller()
    made["spec"]["template"]["spec"]["hostUsers"] = False
    [text] = REPLICATIONCONTROLLER.review(made, None, NOW)
    assert text.startswith("spec.template.spec.hostUsers: ")
    assert list(REPLICATIONCONTROLLER.review(made, made, NOW)) == []
