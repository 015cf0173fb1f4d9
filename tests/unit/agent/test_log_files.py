"""Reading a log while it is rotated: nothing is missed and nothing comes twice."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grange.agent.attempt_logs import LogFiles
from grange.agent.runtimes.process.log_writer import LogWriter


class Racing(LogFiles):
    """Something happens between a look at the directory and what follows from it."""

    def __init__(self, directory: Path, happens: Callable[[], None]) -> None:
        super().__init__(directory)
        self._happens = happens

    def segments(self) -> list[Path]:
        found = super().segments()
        self._happens()
        return found


class Program:
    """Writes numbered lines, ten to a file, when it is asked to."""

    def __init__(self, writer: LogWriter) -> None:
        self._writer = writer
        self.count = 0
        self.budget = 0

    def write(self, lines: int) -> None:
        for _ in range(lines):
            self.count += 1
            self._writer.feed("stdout", b"%04d\n" % self.count)

    def race(self) -> None:
        if self.budget > 0:
            self.budget -= 1
            self.write(10)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    directory = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    line = len(b"2026-01-01T00:00:00.000000000Z stdout F 0001\n")
    with closing(LogWriter(directory, max_bytes=10 * line, files=30)) as writer:
        yield Program(writer)
    os.close(directory)


def numbers(lines: list[bytes]) -> list[int]:
    return [int(line.split()[-1]) for line in lines]


@pytest.mark.parametrize("races", [1, 2, 5])
def test_follower_misses_nothing_while_files_are_renamed(
    program: Program, tmp_path: Path, races: int
) -> None:
    seen: list[int] = []
    with closing(Racing(tmp_path, program.race)) as files:
        program.write(25)
        for _ in range(8):
            program.budget = races
            while lines := files.read():
                seen += numbers(lines)
    assert seen == list(range(1, program.count + 1))


@pytest.mark.parametrize("races", [0, 1, 3])
def test_tail_has_every_line_once(program: Program, tmp_path: Path, races: int) -> None:
    program.write(95)
    program.budget = races
    with closing(Racing(tmp_path, program.race)) as files:
        found = numbers(files.read_tail(40))
        assert found == list(range(found[-1] - 39, found[-1] + 1))
        while lines := files.read():
            found += numbers(lines)
    assert found[-1] == program.count
    assert found == list(range(found[0], program.count + 1))


def test_reader_closes_what_it_opens(program: Program, tmp_path: Path) -> None:
    program.write(95)
    before = len(os.listdir("/proc/self/fd"))
    with closing(LogFiles(tmp_path)) as files:
        files.read_tail(3)
        while files.read():
            pass
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before
