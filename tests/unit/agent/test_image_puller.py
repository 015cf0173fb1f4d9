"""Containers from images: when an image is pulled, with which credentials, and what is shown meanwhile."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent import pull_remedies
from grange.agent.image_store import ImageInfo, PullProgress
from grange.agent.runtimes.fake import FakeImages
from grange.api.kinds import POD, SECRET
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

HERE, AWAY, LATEST = "here:1", "away:1", "away:latest"


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[World]:
    """A node whose machine has one image, and a registry with two more."""
    async with world(clock, rng, log, agent=False) as made:
        images = FakeImages(clock, pull_s=3.0)
        images.here[HERE] = ImageInfo("sha256:1", user=1000)
        images.registry = {AWAY: ImageInfo("sha256:2"), LATEST: ImageInfo("sha256:3")}
        made.machine.images = images
        made.start_agent()
        yield made


def images_of(there: World) -> FakeImages:
    assert there.machine.images is not None
    return there.machine.images


def of_image(image: str, policy: str = "IfNotPresent", **fields: Any) -> dict[str, Any]:
    return document(container(image=image, imagePullPolicy=policy, **fields))


async def waiting(there: World) -> tuple[str, str]:
    state = (await there.main()).state.waiting
    return (state.reason, state.message) if state is not None else ("", "")


async def test_an_image_that_is_here_is_not_pulled(there: World) -> None:
    await there.create(of_image(HERE))
    assert await there.until_ready() < 0.5
    assert images_of(there).pulls == []
    [start] = there.machine.programs
    assert start.image is not None
    assert start.image.reference == HERE
    assert "PATH" not in start.env  # the image's own
    assert start.env["GRANGE_ROOT"] == ""  # its files are at the paths that it names
    assert start.env["POD_NAME"] == "web"


async def test_an_image_is_pulled_and_the_pod_shows_it(there: World) -> None:
    await there.create(of_image(AWAY))
    await there.clock.sleep(1.0)
    assert await waiting(there) == ("ContainerCreating", f'pulling image "{AWAY}"')
    assert await there.until_ready() < 3.5
    reasons = [reason for reason, _ in await there.events()]
    assert [item for item in reasons if item.startswith("Pull")] == ["Pulling", "Pulled"]
    assert "Failed" not in reasons


async def test_slow_pull_shows_its_progress(there: World) -> None:
    images = images_of(there)
    images.pull_s = 60.0
    images.transferred = PullProgress(3 * 2**20, 10 * 2**20)
    await there.create(of_image(AWAY))
    await there.clock.sleep(14.0)
    shown = f'pulling image "{AWAY}" for 10 s: 3.0 of 10.0 MiB'
    assert await waiting(there) == ("ContainerCreating", shown)
    images.transferred = None
    await there.clock.sleep(7.0)
    assert (await waiting(there))[1] == f'pulling image "{AWAY}" for 20 s'
    assert await there.until_ready() < 61.0


@pytest.mark.parametrize(
    ("answer", "given", "remedy"),
    [
        ("dial tcp 127.0.0.1:1: connect: connection refused", False, "check the registry's name"),
        ("r.example/a:1: not found", False, "check the image's name and tag"),
        ("unexpected status code 401 Unauthorized", False, "name a Secret with credentials"),
        ("unexpected status code 401 Unauthorized", True, "check the credentials in the Secrets"),
        ("x509: certificate signed by unknown authority", True, "configure the registry"),
        ("no match for platform in manifest: not found", False, "for the architecture"),
        ("write /x: no space left on device", False, "free space"),
    ],
)
def test_failed_pull_has_a_remedy(answer: str, given: bool, remedy: str) -> None:
    found = pull_remedies.with_remedy(answer, gave_credentials=given)
    assert found.startswith(f"{answer}; ")
    assert remedy in found


def test_unknown_answer_is_shown_as_it_is() -> None:
    assert pull_remedies.with_remedy("it broke", gave_credentials=False) == "it broke"


async def test_always_pulls_once_for_each_start(there: World) -> None:
    await there.create(of_image(LATEST, "Always", command=["badly"]))
    await there.clock.sleep(3.9)  # 3 s of pulling, and it runs for 1 s
    assert len(images_of(there).pulls) == len(there.machine.starts) == 1
    await there.clock.sleep(60.0)
    starts = len(there.machine.starts)
    assert starts >= 3
    assert len(images_of(there).pulls) in {starts, starts + 1}


async def test_never_reports_that_it_is_missing(there: World) -> None:
    await there.create(of_image(AWAY, "Never"))
    await there.clock.sleep(30.0)
    reason, message = await waiting(there)
    assert reason == "ErrImageNeverPull"
    assert "bring it to the node" in message
    assert images_of(there).pulls == []


async def test_a_refused_pull_backs_off_and_recovers(there: World) -> None:
    images = images_of(there)
    images.failure = "registry is away"
    await there.create(of_image(AWAY))
    seen = set()
    for _ in range(120):
        await there.clock.sleep(0.5)
        seen.add((await waiting(there))[0])
    assert {"ContainerCreating", "ErrImagePull", "ImagePullBackOff"} <= seen
    assert "registry is away" in (await waiting(there))[1]
    # 3 s of pulling each, with waits of 10 s, 20 s and 40 s between them.
    assert len(images.pulls) == 3
    images.failure = ""
    assert await there.until_ready() < 50.0


async def test_a_name_that_is_none_is_called_so(there: World) -> None:
    await there.create(of_image("not an image"))
    await there.clock.sleep(1.0)
    assert (await waiting(there))[0] == "InvalidImageName"


async def test_credentials_of_the_pod_are_tried_in_turn(there: World) -> None:
    for name, user in (("first", "wrong"), ("second", "right")):
        text = json.dumps({"auths": {"r.example": {"username": user, "password": user}}})
        data = {".dockerconfigjson": base64.b64encode(text.encode()).decode()}
        body = {"metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson", "data": data}
        await there.client.create(SECRET, body, "default")
    images = images_of(there)
    images.registry["r.example/app:1"] = ImageInfo("sha256:4")
    images.passwords["r.example/app:1"] = "right"
    asked = of_image("r.example/app:1")
    names = ("missing", "first", "second")
    asked["spec"]["imagePullSecrets"] = [{"name": name} for name in names]
    await there.create(asked)
    assert await there.until_ready() < 7.0
    assert images.pulls == [("r.example/app:1", "wrong"), ("r.example/app:1", "right")]
    everything = json.dumps(await there.events()) + str(there.machine.environments)
    assert "right" not in everything


async def test_a_deleted_pod_does_not_wait_for_its_image(there: World) -> None:
    images_of(there).registry["slow:1"] = ImageInfo("sha256:5")
    await there.create(of_image("slow:1"))
    await there.clock.sleep(0.5)
    assert images_of(there).pulls
    await there.client.delete(POD, "web", "default")
    await there.clock.sleep(0.5)
    assert not await there.exists()
    await there.clock.sleep(10.0)
    assert "slow:1" not in images_of(there).here


async def test_a_pod_without_images_runs_as_processes(there: World) -> None:
    await there.create(document(container()))
    assert await there.until_ready() < 0.5
    [start] = there.machine.programs
    assert start.image is None
    assert start.env["PATH"]


async def test_the_runtime_class_process_ignores_images(there: World) -> None:
    asked = of_image(AWAY, command=["forever"])
    asked["spec"]["runtimeClassName"] = "process"
    await there.create(asked)
    assert await there.until_ready() < 0.5
    assert there.machine.programs[0].image is None
    assert images_of(there).pulls == []


@pytest.mark.parametrize(
    ("name", "image", "reason", "text"),
    [
        ("gvisor", HERE, "CreateContainerConfigError", "use process or cri, or leave it out"),
        ("cri", "", "CreateContainerConfigError", "a container names no image"),
    ],
)
async def test_runtime_class_that_cannot_be_had_keeps_the_pod_waiting(
    there: World, name: str, image: str, reason: str, text: str
) -> None:
    asked = of_image(image)
    asked["spec"]["runtimeClassName"] = name
    await there.create(asked)
    await there.clock.sleep(2)
    assert there.machine.programs == []
    found = await waiting(there)
    assert found[0] == reason
    assert text in found[1]


async def test_runtime_class_cri_runs_images(there: World) -> None:
    asked = of_image(HERE)
    asked["spec"]["runtimeClassName"] = "cri"
    await there.create(asked)
    assert await there.until_ready() < 0.5
    assert there.machine.programs[0].image is not None


async def test_a_process_stays_one_when_images_come(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await there.create(of_image(HERE, command=["badly"]))
        await there.clock.sleep(2.0)
        there.crash_agent()
        images = there.machine.images = FakeImages(clock)
        images.here[HERE] = ImageInfo("sha256:1")
        there.start_agent()
        before = len(there.machine.programs)
        await there.clock.sleep(60.0)
        assert len(there.machine.programs) > before
        assert all(program.image is None for program in there.machine.programs)


@pytest.mark.parametrize(
    ("context", "runs"),
    [({"runAsNonRoot": True}, True), ({"runAsNonRoot": True, "runAsUser": 0}, False), ({}, True)],
)
async def test_run_as_non_root_asks_the_image(
    there: World, context: dict[str, Any], runs: bool
) -> None:
    """The image's user is 1000."""
    await there.create(of_image(HERE, securityContext=context))
    await there.clock.sleep(1.0)
    assert bool(there.machine.starts) is runs
    if not runs:
        assert "it would run as root" in (await waiting(there))[1]
