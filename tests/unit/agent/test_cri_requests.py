"""What a container runtime is asked for, by the fields of the pod."""

from pathlib import Path
from typing import Any

import pytest
from tests.unit.agent.builders import pod

from grange.agent import security_context
from grange.agent.container_runtime import (
    ContainerID,
    ImageProgram,
    PodSetup,
    Program,
    SharedProcesses,
)
from grange.agent.runtimes.cri import cri_requests

TARGET = ContainerID("uid", "main", 0)


def setup(**fields: Any) -> PodSetup:
    return PodSetup("uid", "default", "web", "node-1", from_images=True, **fields)


def of_sandbox(made: PodSetup) -> dict[str, Any]:
    config = cri_requests.sandbox_config(
        made, owner="me", attempt=0, address="127.0.0.9", logs=Path("logs")
    )
    found: dict[str, Any] = config["linux"]["security_context"]
    return found


def of_container(made: PodSetup, *, joined: str = "", **security: Any) -> dict[str, Any]:
    program = Program(("sh",), {}, image=ImageProgram("web:1", (), 0, security))
    config = cri_requests.container_config(
        TARGET, program, (), owner="me", setup=made, joined=joined
    )
    found: dict[str, Any] = config["linux"]["security_context"]
    return found


@pytest.mark.parametrize("privileged", [True, False])
def test_sandbox_is_privileged_as_its_pod(privileged: bool) -> None:
    assert of_sandbox(setup(privileged=privileged))["privileged"] is privileged


def test_pod_is_privileged_if_one_container_is() -> None:
    plain: dict[str, Any] = {"name": "a", "image": "x"}
    asking = {**plain, "name": "b", "securityContext": {"privileged": True}}
    assert security_context.is_privileged(pod(containers=[plain, asking]))
    assert security_context.is_privileged(pod(containers=[plain], initContainers=[asking]))
    assert not security_context.is_privileged(pod(containers=[plain]))


@pytest.mark.parametrize(
    ("shared", "pid"),
    [(SharedProcesses.NONE, 1), (SharedProcesses.POD, 0), (SharedProcesses.NODE, 2)],
)
def test_processes_are_shared_as_asked_for(shared: SharedProcesses, pid: int) -> None:
    made = setup(shared_processes=shared, host_ipc=True)
    expected = {"network": 2, "pid": pid, "ipc": 2}
    assert of_sandbox(made)["namespace_options"] == expected
    assert of_container(made)["namespace_options"] == expected


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({}, SharedProcesses.NONE),
        ({"shareProcessNamespace": True}, SharedProcesses.POD),
        ({"hostPID": True}, SharedProcesses.NODE),
    ],
)
def test_pod_asks_for_shared_processes(fields: dict[str, Any], shared: SharedProcesses) -> None:
    assert security_context.shared_processes(pod(**fields)) is shared


def test_joined_container_shares_its_targets_processes() -> None:
    own = {"network": 2, "pid": 3, "ipc": 0, "target_id": "other"}
    assert of_container(setup(), joined="other")["namespace_options"] == own
    of_pod = setup(shared_processes=SharedProcesses.POD)
    assert of_container(of_pod, joined="other")["namespace_options"]["pid"] == 0
