"""What a pod writes about its progress becomes an annotation."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent import pod_progress
from grange.agent.container_runtime import ContainerID, PodSetup
from grange.agent.runtimes.fake import Script
from grange.agent.runtimes.process.files import Layout
from grange.api.job_status import PROGRESS
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

REPORTING = {"annotations": {PROGRESS: ""}}


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[World]:
    async with world(clock, rng, log) as made:
        made.machine.scripts["trainer"] = Script(files=(("progress", b"1\n\n42.5 epoch 3\n"),))
        yield made


async def reported(there: World) -> str | None:
    return (await there.pod()).metadata.annotations.get(PROGRESS)


def writes(there: World) -> list[tuple[str, str]]:
    return [item for item in there.writes if "/pods/" in item[1]]


async def test_report_of_a_pod_becomes_its_annotation(there: World, clock: Clock) -> None:
    created = await there.create(document(container(program="trainer"), meta=REPORTING))
    await there.until_ready()
    await clock.sleep(2 * pod_progress.INTERVAL_S)
    assert await reported(there) == "42.5 epoch 3"
    uid = created.metadata.uid
    environment = there.machine.environments[ContainerID(uid, "main", 0)]
    assert environment["GRANGE_PROGRESS_FILE"].endswith("/progress")
    before = writes(there)
    await clock.sleep(10 * pod_progress.INTERVAL_S)
    assert writes(there) == before  # the same report is written once
    there.machine.pods[uid].files["progress"] = b"50 epoch 4"
    await clock.sleep(2 * pod_progress.INTERVAL_S)
    assert await reported(there) == "50 epoch 4"


async def test_pod_without_the_annotation_is_not_read(there: World, clock: Clock) -> None:
    created = await there.create(document(container(program="trainer")))
    await there.until_ready()
    await clock.sleep(5 * pod_progress.INTERVAL_S)
    assert await reported(there) is None
    environment = there.machine.environments[ContainerID(created.metadata.uid, "main", 0)]
    assert "GRANGE_PROGRESS_FILE" not in environment


async def test_next_agent_goes_on_reading(there: World, clock: Clock) -> None:
    created = await there.create(document(container(program="trainer"), meta=REPORTING))
    await there.until_ready()
    there.crash_agent()
    there.machine.pods[created.metadata.uid].files["progress"] = b"90"
    there.start_agent()
    await clock.sleep(3 * pod_progress.INTERVAL_S)
    assert await reported(there) == "90"


@pytest.mark.parametrize(
    ("content", "report"),
    [
        (b"", ""),
        (b"10 one\n20 two\n", "20 two"),
        (b"10\r\n", "10"),
        (b"10 \x1b[31mred\x07", "10 [31mred"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
)
def test_report_is_one_line_that_can_be_shown(content: bytes, report: str) -> None:
    assert pod_progress.report_of(content) == report


def test_links_and_pipes_of_a_pod_are_not_opened(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.make_pod(PodSetup("uid", "default", "web", "node-1"), "127.9.0.1")
    own = layout.pod("uid") / "tmp"
    secret = tmp_path / "token"
    secret.write_text("admin")
    (own / "link").symlink_to(secret)
    os.mkfifo(own / "pipe")
    (own / "directory").mkdir()
    (own / "file").write_text("12 fine")
    found = [layout.read_file("uid", name, 100) for name in ("link", "pipe", "directory", "file")]
    assert found == [None, None, None, b"12 fine"]
