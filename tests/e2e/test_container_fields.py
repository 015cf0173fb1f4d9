"""Restart rules of containers and variables from files, with programs that run."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually, pod

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("fields") / "data")
    made.start()
    yield made
    made.stop()


def ended(plane: Plane, name: str, phase: str) -> dict[str, Any]:
    eventually(lambda: plane.get("pod", name)["status"]["phase"] == phase, phase)
    found: dict[str, Any] = plane.get("pod", name)["status"]["containerStatuses"][0]
    return found


def test_exit_code_decides_about_the_restart(plane: Plane) -> None:
    script = "test -e $TMPDIR/again && exit 7; touch $TMPDIR/again; exit 42"
    made = json.loads(pod("retries", "sh", "-c", script))
    made["spec"]["restartPolicy"] = "Never"
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}
    made["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    assert "Warning" not in plane.grange("apply", "-f", "-", stdin=json.dumps(made))
    status = ended(plane, "retries", "Failed")
    assert status["restartCount"] == 1
    assert status["state"]["terminated"]["exitCode"] == 7
    assert status["lastState"]["terminated"]["exitCode"] == 42


def test_program_has_the_variable_that_a_file_gives(plane: Plane) -> None:
    made = json.loads(pod("takes", "sh", "-c", 'echo "taken: $TAKEN"'))
    made["spec"]["restartPolicy"] = "Never"
    made["spec"]["volumes"] = [{"name": "shared", "emptyDir": {}}]
    script = "echo \"NAME='from a file'\" > $GRANGE_VOLUME_SHARED/env"
    mount = {"name": "shared", "mountPath": "/shared"}
    first = {"name": "first", "command": ["sh", "-c", script], "volumeMounts": [mount]}
    made["spec"]["initContainers"] = [first]
    reference = {"volumeName": "shared", "path": "env", "key": "NAME"}
    variable = {"name": "TAKEN", "valueFrom": {"fileKeyRef": reference}}
    made["spec"]["containers"][0]["env"] = [variable]
    assert "Warning" not in plane.grange("apply", "-f", "-", stdin=json.dumps(made))
    ended(plane, "takes", "Succeeded")
    assert "taken: from a file" in plane.grange("logs", "takes")
