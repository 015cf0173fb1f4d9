"""Reads container logs that are files, across rotation and while they grow."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from grange.agent import container_logs
from grange.agent.container_runtime import ContainerID, LogQuery
from grange.base.clock import Clock
from grange.base.offload import Offload

LOG_FILE = "log"
"""In the directory of an attempt; after a rotation ``log.1`` is the file before it."""

_CHUNK = 262144
_SNAPSHOT_TRIES = 20
_FOLLOW_INTERVAL_S = 0.1  # how soon a follower sees a line; costs a read of nothing while idle


class LogFiles:
    """A position in a rotating log. Everything blocks; one user at a time.

    A name means another file after every rotation, so that files are opened first and then known
    by what they are.

    Args:
        directory: where ``log``, ``log.1``, … are.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._fd = -1
        self._rest = b""

    def segments(self) -> list[Path]:
        """The files there are, oldest first."""
        found = []
        for path in self._directory.glob(f"{LOG_FILE}*"):
            number = path.name.removeprefix(LOG_FILE).removeprefix(".") or "0"
            if number.isdigit():
                found.append((-int(number), path))
        return [path for _, path in sorted(found)]

    def read_tail(self, count: int) -> list[bytes]:
        """The stored lines of the last ``count`` lines; the position is then at the end."""
        collected: list[bytes] = []
        with ExitStack() as stack:
            found = self._opened(stack)
            for fd in reversed(found):
                if fd == found[-1]:
                    self._move_to(fd)
                    lines = self._take()
                else:
                    with open(os.dup(fd), "rb") as segment:
                        lines = segment.read().splitlines()
                collected = lines + collected
                kept, missing = container_logs.tail(collected, count)
                if missing == 0:
                    return kept
        return container_logs.tail(collected, count)[0]

    def read(self) -> list[bytes]:
        """More stored lines, up to a quarter of a megabyte; empty at the end for now."""
        while True:
            if self._fd >= 0 and (lines := self._take(_CHUNK)):
                return lines
            if self._is_newest():
                return []
            with ExitStack() as stack:
                newer = self._newer(self._opened(stack))
                if newer is None:
                    return []
                # What was written to this file before the rotation is read before moving on.
                if self._fd >= 0 and (lines := self._take(_CHUNK)):
                    return lines
                self._move_to(newer)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _opened(self, stack: ExitStack) -> list[int]:
        """The files there are, opened until the stack is left, oldest first; none is missing.

        Raises:
            OSError: no descriptor is left.
        """
        for _ in range(_SNAPSHOT_TRIES):
            with ExitStack() as opening:
                found = []
                for path in self.segments():
                    with suppress(FileNotFoundError):
                        found.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                        opening.callback(os.close, found[-1])
                # Without a rotation meanwhile the names still mean the same files.
                if [os.fstat(fd).st_ino for fd in found] == self._inodes():
                    stack.push(opening.pop_all())
                    return found
        return []  # the next read looks again

    def _inodes(self) -> list[int]:
        try:
            return [path.stat().st_ino for path in self.segments()]
        except FileNotFoundError:
            return [0]  # renamed while we looked

    def _is_newest(self) -> bool:
        try:
            newest = (self._directory / LOG_FILE).stat().st_ino
        except FileNotFoundError:
            return False
        return self._fd >= 0 and os.fstat(self._fd).st_ino == newest

    def _newer(self, found: list[int]) -> int | None:
        """The file after the open one; the oldest if that is gone; None for the last."""
        inodes = [os.fstat(fd).st_ino for fd in found]
        mine = os.fstat(self._fd).st_ino if self._fd >= 0 else 0
        index = inodes.index(mine) + 1 if mine in inodes else 0
        return found[index] if index < len(found) else None

    def _move_to(self, fd: int) -> None:
        self.close()
        self._fd = os.dup(fd)
        self._rest = b""

    def _take(self, limit: int = -1) -> list[bytes]:
        pieces = [self._rest]
        while limit < 0 or len(pieces) < 2:
            data = os.read(self._fd, _CHUNK)
            if not data:
                break
            pieces.append(data)
        *lines, self._rest = b"".join(pieces).split(b"\n")
        return lines


class FileLogs:
    """The logs of containers whose attempts have a directory each.

    Args:
        directory: where an attempt's files are.
        finished: whether an attempt has ended, so that its log is complete.
    """

    def __init__(
        self,
        *,
        directory: Callable[[ContainerID], Path],
        finished: Callable[[ContainerID], bool],
        clock: Clock,
        offload: Offload,
    ) -> None:
        self._directory = directory
        self._finished = finished
        self._clock = clock
        self._offload = offload

    async def read(self, target: ContainerID, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """The log of one attempt in pieces; ends at once where there is none."""
        files = LogFiles(self._directory(target))
        renderer = container_logs.Renderer(query)
        try:
            if query.tail_lines is not None:
                wanted = query.tail_lines
                lines = await self._offload.run(lambda: files.read_tail(wanted))
                if text := renderer.render(lines):
                    yield text
            while not renderer.full:
                complete = self._finished(target)  # asked first: nothing is written after it
                lines = await self._offload.run(files.read)
                if lines:
                    if text := renderer.render(lines):
                        yield text
                elif complete or not query.follow:
                    return
                else:
                    await self._clock.sleep(_FOLLOW_INTERVAL_S)
        finally:
            files.close()
