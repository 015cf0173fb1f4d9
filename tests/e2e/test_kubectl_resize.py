"""``kubectl patch --subresource resize``: other resources for a pod that runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl import Kubectl
from tests.e2e.planes import Plane, eventually, pod

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    made = Plane(tmp_path_factory.mktemp("resize") / "data")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def kubectl(plane: Plane, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, plane.kubeconfig)


def apply(plane: Plane, name: str, **container: Any) -> None:
    made = json.loads(pod(name, "sleep", "1000"))
    resources = {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"cpu": "1"}}
    made["spec"]["containers"][0] |= {"resources": resources, **container}
    plane.grange("apply", "-f", "-", "--wait", stdin=json.dumps(made))


def patch(**resources: Any) -> str:
    return json.dumps({"spec": {"containers": [{"name": "main", "resources": resources}]}})


def main(plane: Plane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = plane.get("pod", name)["status"]["containerStatuses"][0]
    return found


async def test_resources_of_a_running_pod_change(plane: Plane, kubectl: Kubectl) -> None:
    apply(plane, "web")
    change = patch(requests={"cpu": "20m"}, limits={"cpu": "500m"})
    await kubectl.ok("patch", "pod", "web", "--subresource", "resize", "-p", change)

    def changed() -> bool:
        return bool(main(plane, "web")["resources"]["limits"]["cpu"] == "500m")

    eventually(changed, "the limit is in force")
    status = main(plane, "web")
    assert status["allocatedResources"] == {"cpu": "20m", "memory": "8Mi"}
    assert status["restartCount"] == 0
    refused = await kubectl("patch", "pod", "web", "-p", change.replace("20m", "30m"))
    assert refused.code != 0
    assert "through the subresource resize only" in refused.err


async def test_resize_restarts_the_container_that_asks(plane: Plane, kubectl: Kubectl) -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    apply(plane, "restarts", resizePolicy=policy)
    change = patch(limits={"cpu": "250m"})
    await kubectl.ok("patch", "pod", "restarts", "--subresource", "resize", "-p", change)
    eventually(lambda: main(plane, "restarts")["restartCount"] == 1, "the restart")
    await kubectl.ok("wait", "pod/restarts", "--for", "condition=Ready", "--timeout", "120s")
    assert main(plane, "restarts")["resources"]["limits"]["cpu"] == "250m"


async def test_resize_beyond_the_node_is_shown(plane: Plane, kubectl: Kubectl) -> None:
    apply(plane, "greedy")
    change = patch(requests={"cpu": "4000"}, limits={"cpu": "4000"})
    await kubectl.ok("patch", "pod", "greedy", "--subresource", "resize", "-p", change)
    await kubectl.ok(
        "wait", "pod/greedy", "--for", "condition=PodResizePending", "--timeout", "120s"
    )
    found = plane.get("pod", "greedy")["status"]["conditions"]
    [pending] = [item for item in found if item["type"] == "PodResizePending"]
    assert pending["reason"] == "Infeasible"
    assert main(plane, "greedy")["allocatedResources"]["cpu"] == "10m"
    assert "ResizeInfeasible" in (await kubectl.ok("describe", "pod", "greedy")).out
