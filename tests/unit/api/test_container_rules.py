"""Rules of a container's restarts, and of variables from files."""

from typing import Any

import pytest
from tests.unit.api.documents import container, pod

from grange.api.kinds import POD
from grange.api.validation import validate

Document = dict[str, Any]
C = "spec.containers[0]"
FILE = f"{C}.env[0].valueFrom.fileKeyRef"
RULE: Document = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
PROBE = {"tcpSocket": {"port": 80}}


def faults(document: Document) -> list[tuple[str, str]]:
    return [(cause.field, cause.message) for cause in validate(document, None, POD)]


def rules(*items: Document) -> Document:
    return container(restartPolicy="Never", restartPolicyRules=list(items))


def codes(operator: str, *values: int) -> Document:
    return {**RULE, "exitCodes": {"operator": operator, "values": list(values)}}


def file_key(**fields: str) -> Document:
    reference = {"volumeName": "shared", "path": "env", "key": "NAME", **fields}
    made = container(env=[{"name": "A", "valueFrom": {"fileKeyRef": reference}}])
    made["spec"]["volumes"] = [{"name": "shared", "emptyDir": {}}]
    return made


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (
            container(restartPolicy="Sometimes"),
            "restartPolicy",
            'Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            container(restartPolicyRules=[RULE]),
            "restartPolicy",
            "Required value: must be set where there are restartPolicyRules",
        ),
        (rules(*[RULE] * 21), "restartPolicyRules", "Invalid value: 21: at most 20 rules"),
        (
            rules({**RULE, "action": "Ignore"}),
            "restartPolicyRules[0].action",
            'Unsupported value: "Ignore": supported values: "Restart"',
        ),
        (
            rules(RULE, {"action": "Restart"}),
            "restartPolicyRules[1].exitCodes",
            "Required value: a rule needs exit codes",
        ),
        (
            rules(codes("Is", 1)),
            "restartPolicyRules[0].exitCodes.operator",
            'Unsupported value: "Is": supported values: "In", "NotIn"',
        ),
        (
            rules(codes("NotIn", *range(256))),
            "restartPolicyRules[0].exitCodes.values",
            "Invalid value: 256: at most 255 values",
        ),
    ],
)
def test_restart_rules_are_checked(document: Document, field: str, message: str) -> None:
    assert faults(document) == [(f"{C}.{field}", message)]


@pytest.mark.parametrize(
    ("document", "field", "message"),
    [
        (file_key(volumeName="none"), "volumeName", 'Not found: "none"'),
        (file_key(volumeName=""), "volumeName", "Required value"),
        (file_key(path="a/../b"), "path", "Invalid value: \"a/../b\": must not contain '..'"),
        (file_key(path="/a"), "path", 'Invalid value: "/a": must be a relative path'),
        (file_key(path=""), "path", "Required value"),
        (file_key(key=""), "key", "Required value"),
    ],
)
def test_references_to_files_are_checked(document: Document, field: str, message: str) -> None:
    assert faults(document) == [(f"{FILE}.{field}", message)]


def test_right_rules_and_references_have_no_faults() -> None:
    assert faults(rules(RULE, codes("NotIn", 0, 1))) == []
    assert faults(container(restartPolicy="OnFailure")) == []
    assert faults(file_key(path="deep/env")) == []
    init = {"name": "i", "command": ["x"], "restartPolicy": "Never", "restartPolicyRules": [RULE]}
    assert faults(pod(initContainers=[init])) == []


def test_only_sidecars_among_init_containers_have_probes() -> None:
    for policy, found in (("OnFailure", ["spec.initContainers[0].readinessProbe"]), ("Always", [])):
        init = {"name": "i", "command": ["x"], "restartPolicy": policy, "readinessProbe": PROBE}
        assert [field for field, _ in faults(pod(initContainers=[init]))] == found
