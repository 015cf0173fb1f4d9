"""What ``run`` is asked for becomes a GangJob."""

import sys
from typing import Any

import pytest

from grange.api.meta import Document
from grange.jobs.job_options import InvalidRun, RoleOptions, RunOptions, job_document


def train() -> None:
    """The work of these tests."""


def document(work: Any = train, **given: Any) -> Document:
    replicas, roles = given.pop("replicas", None), given.pop("roles", None)
    return job_document(work, replicas, roles, RunOptions(**given))  # type: ignore[typeddict-item]  # by name


def container(found: Document, role: str = "worker") -> Document:
    template = found["spec"]["replicaSpecs"][role]["template"]
    made: Document = template["spec"]["containers"][0]
    return made


def test_function_becomes_a_role_of_workers() -> None:
    found = document(replicas=3)
    assert found["metadata"] == {"generateName": "train-", "namespace": "default"}
    role = found["spec"]["replicaSpecs"]["worker"]
    assert (role["replicas"], role["restartPolicy"]) == (3, "Never")
    assert role["template"]["metadata"]["annotations"] == {"grange.dev/function": "train"}
    assert container(found)["command"][0] == sys.executable
    assert "image" not in container(found)
    assert found["spec"]["runPolicy"] == {"ttlSecondsAfterFinished": 86_400}
    assert "failurePolicy" not in found["spec"]


def test_options_have_their_fields() -> None:
    found = document(
        ["python", "train.py"],
        name="digits",
        namespace="ml",
        image="python:3.13",
        env={"LEVEL": "1"},
        resources={"cpu": "2"},
        framework="PyTorch",
        retries=2,
        queue="team-a",
        deadline_s=60,
        keep_s=0,
        overrides={"spec": {"runPolicy": {"cleanPodPolicy": "All"}}},
    )
    assert found["metadata"] == {"name": "digits", "namespace": "ml"}
    assert container(found) == {
        "name": "main",
        "command": ["python", "train.py"],
        "image": "python:3.13",
        "resources": {"requests": {"cpu": "2"}},
        "env": [{"name": "LEVEL", "value": "1"}],
    }
    assert found["spec"]["framework"] == "PyTorch"
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 2}
    assert found["spec"]["runPolicy"] == {
        "ttlSecondsAfterFinished": 0,
        "activeDeadlineSeconds": 60,
        "schedulingPolicy": {"queue": "team-a"},
        "cleanPodPolicy": "All",
    }
    assert container(document(image="x"))["command"][0] == "python3"
    assert container(document(python="/opt/py"))["command"][0] == "/opt/py"


def test_roles_have_work_of_their_own_or_the_jobs() -> None:
    found = document(
        roles={
            "server": RoleOptions(2, work=["serve"], completes=False),
            "worker": 4,
            "chief": RoleOptions(leader=True, depends_on={"server": "Ready"}),
        }
    )
    specs = found["spec"]["replicaSpecs"]
    assert list(specs) == ["server", "worker", "chief"]
    assert container(found, "server")["command"] == ["serve"]
    assert "metadata" not in specs["server"]["template"]
    assert container(found, "worker") == container(found, "chief")
    assert [specs[role]["replicas"] for role in specs] == [2, 4, 1]
    assert specs["server"]["completes"] is False
    assert specs["chief"]["leader"] is True
    assert specs["chief"]["dependsOn"] == [{"role": "server", "condition": "Ready"}]


@pytest.mark.parametrize(
    ("work", "given", "problem"),
    [
        ("python train.py", {}, "give the words of a command as a list"),
        ([], {}, "no command"),
        (["nice", 5], {}, "no command"),
        (None, {}, "roles[worker].work: required"),
        (train, {"replicas": 2, "roles": {"worker": 2}}, "replicas: not together with roles"),
    ],
)
def test_contradictions_are_rejected(work: Any, given: Any, problem: str) -> None:
    with pytest.raises(InvalidRun) as caught:
        document(work, **given)
    assert problem in str(caught.value)


def test_names_come_from_the_work() -> None:
    def name(work: Any) -> str:
        return str(document(work)["metadata"]["generateName"])

    assert name(["/usr/bin/Train_All.sh"]) == "train-all-sh-"
    assert name(["7zip"]) == "job-7zip-"
    assert name(["—"]) == "job-"
    assert len(name(["x" * 90])) == 41
