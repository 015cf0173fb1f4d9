"""Pulls from a registry by a real containerd: what a pod shows while they last and when they fail.

Collected where there is one: on a Debian system as root (see ``conftest``).
"""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.planes import Plane, eventually
from tests.support import containerd, image_registry
from tests.support.containerd import BUSYBOX, Containerd
from tests.support.image_registry import ImageRegistry

pytestmark = pytest.mark.e2e

FOREVER = ("/bin/sleep", "2147483647")
USER, PASSWORD = "puller", "word-of-the-registry"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Containerd]:
    with containerd.running(tmp_path_factory.mktemp("containerd")) as made:
        yield made


@pytest.fixture(scope="module")
def plane(daemon: Containerd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    directory = tmp_path_factory.mktemp("plane") / "data"
    made = Plane(directory, words=("--cri-socket", str(daemon.socket)))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def registry() -> Iterator[ImageRegistry]:
    with image_registry.serving() as made:
        yield made


@pytest.fixture
def closed_registry() -> Iterator[ImageRegistry]:
    with image_registry.serving(f"{USER}:{PASSWORD}") as made:
        yield made


def apply(plane: Plane, name: str, image: str, **spec: Any) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": image}],
            **spec,
        },
    }
    plane.grange("apply", "-f", "-", stdin=json.dumps(body))


def put_secret(plane: Plane, name: str, registry: ImageRegistry, password: str) -> None:
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    config = json.dumps({"auths": {registry.address: {"auth": auth}}})
    body = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(config.encode()).decode()},
    }
    plane.grange("apply", "-f", "-", stdin=json.dumps(body))


def waiting(plane: Plane, name: str) -> dict[str, str]:
    statuses = plane.get("pod", name)["status"].get("containerStatuses") or [{}]
    found: dict[str, str] = statuses[0].get("state", {}).get("waiting") or {}
    return found


def failed_with(plane: Plane, name: str, *words: str) -> bool:
    found = waiting(plane, name)
    is_shown = found.get("reason") in {"ErrImagePull", "ImagePullBackOff"}
    return is_shown and all(word in found.get("message", "") for word in words)


def events(plane: Plane, name: str) -> str:
    found = plane.get("events")["items"]
    return "\n".join(
        f"{item['reason']} {item['message']}"
        for item in found
        if item["involvedObject"].get("name") == name
    )


def test_missing_image_shows_its_remedy_and_stops_no_other(
    plane: Plane, registry: ImageRegistry
) -> None:
    apply(plane, "other", registry.add("here:1", FOREVER))
    plane.grange("wait", "pod/other", "--for", "condition=Ready")
    apply(plane, "missing", f"{registry.address}/absent:1")
    words = ("not found", "check the image's name and tag")
    eventually(lambda: failed_with(plane, "missing", *words), "the remedy is shown")
    eventually(lambda: "check the image's name and tag" in events(plane, "missing"), "an event")
    assert "check the image's name and tag" in plane.grange("why", "pod/missing")
    apply(
        plane,
        "next",
        BUSYBOX,
        containers=[{"name": "main", "image": BUSYBOX, "command": [*FOREVER]}],
    )
    plane.grange("wait", "pod/next", "--for", "condition=Ready")
    [other] = plane.get("pod", "other")["status"]["containerStatuses"]
    assert (other["ready"], other["restartCount"]) == (True, 0)
    plane.grange("delete", "pod/other", "pod/missing", "pod/next")


def test_refused_pull_succeeds_with_credentials(
    plane: Plane, closed_registry: ImageRegistry
) -> None:
    image = closed_registry.add("closed:1", FOREVER)
    apply(plane, "anonymous", image)
    eventually(lambda: failed_with(plane, "anonymous", "imagePullSecrets"), "a Secret is asked for")
    put_secret(plane, "wrong", closed_registry, "guessed")
    apply(plane, "wrong", image, imagePullSecrets=[{"name": "wrong"}])
    eventually(lambda: failed_with(plane, "wrong", "check the credentials"), "they are wrong")
    put_secret(plane, "right", closed_registry, PASSWORD)
    apply(plane, "right", image, imagePullSecrets=[{"name": "wrong"}, {"name": "right"}])
    plane.grange("wait", "pod/right", "--for", "condition=Ready")
    assert "Pulled Successfully pulled image" in events(plane, "right")
    shown = json.dumps(plane.get("pods")) + json.dumps(plane.get("events"))
    assert PASSWORD not in shown
    plane.grange("delete", "pod/anonymous", "pod/wrong", "pod/right")


def test_slow_pull_shows_how_far_it_is(plane: Plane, registry: ImageRegistry) -> None:
    registry.gate.clear()
    apply(plane, "slow", registry.add("slow:1", FOREVER))
    shown = " MiB"
    eventually(lambda: shown in waiting(plane, "slow").get("message", ""), "the progress is shown")
    found = waiting(plane, "slow")
    assert found["reason"] == "ContainerCreating"
    assert f'pulling image "{registry.address}/slow:1" for ' in found["message"]
    registry.gate.set()
    plane.grange("wait", "pod/slow", "--for", "condition=Ready")
    plane.grange("delete", "pod/slow")


def test_registry_that_is_away_is_named_with_a_remedy(plane: Plane) -> None:
    apply(plane, "away", "127.0.0.1:1/away:1")
    words = ("connection refused", "check the registry's name")
    eventually(lambda: failed_with(plane, "away", *words), "the remedy is shown")
    plane.grange("delete", "pod/away")
