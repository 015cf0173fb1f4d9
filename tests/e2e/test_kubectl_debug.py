"""``kubectl debug``: a program in the namespaces of a pod that runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.kubectl import Kubectl
from tests.e2e.planes import Plane, eventually, pod, processes_with

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module", params=["none", "auto"])
def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Plane]:
    folder = tmp_path_factory.mktemp("debug")
    made = Plane(folder / "data", words=("--isolation", request.param))
    made.start()
    script = "echo shared > $TMPDIR/up; echo own > $GRANGE_ROOT/file; exec sleep 612.5"
    made.grange("apply", "-f", "-", "--wait", stdin=pod("web", "sh", "-c", script))
    yield made
    made.stop()


@pytest.fixture
def kubectl(plane: Plane, tmp_path: Path) -> Kubectl:
    return Kubectl(tmp_path, plane.kubeconfig)


async def test_added_program_sees_its_target(plane: Plane, kubectl: Kubectl) -> None:
    script = "cat $TMPDIR/up; cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    words = ("debug", "web", "-c", "look", "--image", "none", "--target", "main", "-q")
    await kubectl.ok(*words, "--", "sh", "-c", f"{script}; sleep 0.2; exit 7")

    def ended() -> bool:
        found = plane.get("pod", "web")["status"].get("ephemeralContainerStatuses") or [{}]
        return "terminated" in found[0].get("state", {})

    eventually(ended, "the added program ends")
    [status] = plane.get("pod", "web")["status"]["ephemeralContainerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 7
    printed = plane.grange("logs", "web", "-c", "look")
    assert "shared" in printed
    assert "sleep 612.5" in printed
    assert plane.get("pod", "web")["status"]["phase"] == "Running"
    main = plane.get("pod", "web")["status"]["containerStatuses"][0]
    assert (main["ready"], main["restartCount"]) == (True, 0)


async def test_added_program_is_attached_to(kubectl: Kubectl) -> None:
    words = ("debug", "-i", "web", "-c", "type", "--image", "none", "-q", "--", "sh", "-c")
    found = await kubectl.ok(*words, "read line; echo got $line", stdin="typed\n")
    assert "got typed" in found.out


async def test_added_program_ends_with_its_pod(plane: Plane, kubectl: Kubectl) -> None:
    plane.grange("apply", "-f", "-", "--wait", stdin=pod("short", "sleep", "600"))
    words = ("debug", "short", "-c", "stay", "--image", "none", "--target", "main", "-q", "--")
    seconds = f"{60_000 + os.getpid() % 10_000}.5"  # no other process of the run has it
    await kubectl.ok(*words, "sleep", seconds)
    await kubectl.ok(
        "wait",
        "pod/short",
        "--for",
        "jsonpath={.status.ephemeralContainerStatuses[0].state.running}",
    )
    await kubectl.ok("delete", "pod", "short", "--timeout", "240s")
    assert not processes_with(f"sleep {seconds}")
