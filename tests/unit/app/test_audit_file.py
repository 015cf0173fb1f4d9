"""The file of the audit log: bounded, rotated, and never in the way of a request."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from grange.app.audit_file import AuditFile
from grange.app.settings import SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Inline
from grange.base.tasks import Nursery
from grange.sim.pytest_plugin import Records


@pytest.fixture
async def written(tmp_path: Path, clock: Clock, log: Logger) -> AsyncIterator[AuditFile]:
    """A file of at most 40 bytes that is being written."""
    file = AuditFile(tmp_path / "audit.log", Inline(), clock=clock, log=log, max_bytes=40)
    file.open()
    async with Nursery("test") as nursery:
        nursery.start(file.run(), name="audit log")
        yield file
        nursery.cancel()
    file.close()


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def files(directory: Path) -> dict[str, list[str]]:
    return {path.name: lines(path) for path in directory.iterdir()}


async def test_lines_are_appended_for_the_owner_alone(
    written: AuditFile, clock: Clock, tmp_path: Path
) -> None:
    written.write(b"one")
    written.write(b"two")
    await clock.sleep(1)
    written.write(b"three")
    await clock.sleep(1)
    path = tmp_path / "audit.log"
    assert lines(path) == ["one", "two", "three"]
    assert mode(path) == 0o600


async def test_file_is_rotated_and_the_oldest_goes(
    written: AuditFile, clock: Clock, tmp_path: Path
) -> None:
    for number in range(12):
        written.write(b"%020d" % number)  # two of them are too much
        await clock.sleep(1)
    found = files(tmp_path)
    assert sorted(found) == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    assert found["audit.log"] == [f"{11:020d}"]
    assert found["audit.log.3"] == [f"{8:020d}"]


@pytest.fixture
def torn(tmp_path: Path) -> Path:
    path = tmp_path / "audit.log"
    path.write_text('whole\n{"half')
    return path


async def test_line_that_a_crash_cut_off_is_ended(torn: Path, clock: Clock, log: Logger) -> None:
    path = torn
    file = AuditFile(path, Inline(), clock=clock, log=log)
    file.open()
    file.write(b"next")
    file.close()
    assert lines(path) == ["whole", '{"half', "next"]


def block(path: Path) -> None:
    """Put a directory where the oldest file would be, which no file can replace."""
    path.with_name("audit.log.3").mkdir()
    path.with_name("audit.log.2").touch()


def unblock(path: Path) -> None:
    path.with_name("audit.log.3").rmdir()


async def test_lost_disk_drops_events_and_returns(
    written: AuditFile, clock: Clock, tmp_path: Path, records: Records
) -> None:
    path = tmp_path / "audit.log"
    block(path)
    for _ in range(3):
        written.write(b"x" * 30)
        await clock.sleep(1)
    unblock(path)
    written.write(b"after")
    await clock.sleep(1)
    assert lines(path) == ["x" * 30, "after"]
    dropped = [facts["count"] for event, facts in records if event == "audit events dropped"]
    assert dropped == [1, 1]


async def test_file_that_cannot_be_written_is_refused(
    tmp_path: Path, clock: Clock, log: Logger
) -> None:
    file = AuditFile(tmp_path / "none" / "audit.log", Inline(), clock=clock, log=log)
    with pytest.raises(SettingsError, match=r"--audit-log .*: No such file .*; choose another"):
        file.open()


async def test_lines_that_wait_are_bounded(
    tmp_path: Path, clock: Clock, log: Logger, records: Records
) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path, Inline(), clock=clock, log=log)
    file.open()
    for _ in range(10_001):
        file.write(b"x")
    file.close()
    assert len(lines(path)) == 10_000
    assert [facts["count"] for _, facts in records] == [1]
