"""The log files of a shim, where the disk does not do as it should."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grange.agent.runtimes.process import shim
from grange.agent.runtimes.process.log_writer import NEW_LOG_FILE, LogWriter


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def texts(*paths: Path) -> list[str]:
    """What the program wrote, as the files have it in this order."""
    lines = [line for path in paths for line in path.read_text().splitlines()]
    return [line.split(" ", 3)[3] for line in lines]


def feed(writer: LogWriter, *numbers: int) -> None:
    for number in numbers:
        writer.feed("stdout", b"line %d\n" % number)


def test_failed_rotation_loses_no_line(directory: int, tmp_path: Path) -> None:
    (tmp_path / NEW_LOG_FILE).mkdir()  # no new file can be made
    with closing(LogWriter(directory, max_bytes=100, files=3)) as writer:
        feed(writer, *range(1, 6))
        assert texts(tmp_path / "log") == [f"line {number}" for number in range(1, 6)]
        (tmp_path / NEW_LOG_FILE).rmdir()
        feed(writer, 6, 7)
    found = texts(tmp_path / "log.1", tmp_path / "log")
    assert found == [f"line {number}" for number in range(1, 8)]


def test_failed_rotation_leaves_other_descriptors_alone(directory: int, tmp_path: Path) -> None:
    (tmp_path / NEW_LOG_FILE).mkdir()
    writer = LogWriter(directory, max_bytes=100, files=3)
    feed(writer, *range(1, 6))
    with open(tmp_path / "other", "wb") as other:
        feed(writer, *range(6, 11))
        writer.close()
        other.write(b"mine")
    assert (tmp_path / "other").read_bytes() == b"mine"
    assert len(texts(tmp_path / "log")) == 10


def test_full_disk_is_survived(directory: int, tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    with closing(LogWriter(directory, max_bytes=100, files=2)) as writer:
        feed(writer, *range(10))
        writer.feed("stdout", b"unfinished")
    assert not (tmp_path / "log.1").exists()


def test_half_written_line_is_not_continued(directory: int, tmp_path: Path) -> None:
    """A pipe takes part of a write and then no more, as a disk that becomes full does."""
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    room = fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 4096)
    with closing(LogWriter(directory, max_bytes=10**6, files=2)) as writer:
        os.set_blocking(writer._fd, False)
        writer.feed("stdout", b"".join(b"%d %s\n" % (n, b"x" * 300) for n in range(room // 200)))
        writer.feed("stdout", b"lost\n")
        stored = os.read(reader, room)
        assert not stored.endswith(b"\n")
        feed(writer, 1)
        stored += os.read(reader, room)
    os.close(reader)
    lines = stored.decode().split("\n")
    assert lines[-2].endswith(" stdout F line 1")
    assert "lost" not in stored.decode()


def test_state_is_recorded_without_room_for_a_second_file(directory: int, tmp_path: Path) -> None:
    shim.write_state(directory, {"id": "x", "note": "long " * 20}, durable=False)
    (tmp_path / "state.json.tmp").mkdir()
    shim.write_state(directory, {"id": "x", "exit_code": 3}, durable=True)
    assert json.loads((tmp_path / "state.json").read_bytes()) == {"id": "x", "exit_code": 3}
