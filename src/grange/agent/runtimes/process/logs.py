"""Reads the log files that shims write, across rotation and while they grow."""

import os
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from grange.agent import logs
from grange.agent.runtime import ContainerID, LogQuery
from grange.agent.runtimes.process.logwriter import LOG_FILE
from grange.base.clock import Clock
from grange.base.offload import Offload

_CHUNK = 262144
_FOLLOW_INTERVAL_S = 0.1  # how soon a follower sees a line; costs a read of nothing while idle


class LogFiles:
    """A position in a rotating log. Everything blocks; one user at a time.

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
        segments = self.segments()
        for path in reversed(segments):
            try:
                if path == segments[-1]:
                    self._open(path)
                    lines = self._take()
                else:
                    lines = path.read_bytes().splitlines()
            except FileNotFoundError:
                break  # rotated away while we looked
            collected = lines + collected
            kept, missing = logs.tail(collected, count)
            if missing == 0:
                return kept
        return logs.tail(collected, count)[0]

    def read(self) -> list[bytes]:
        """More stored lines, up to a quarter of a megabyte; empty at the end for now."""
        while True:
            if self._fd < 0 and not self._open_first():
                return []
            # Look for a newer file before reading: what is written to this one before the
            # rotation is then read before moving on.
            newer = self._newer()
            lines = self._take(_CHUNK)
            if lines:
                return lines
            if newer is None:
                return []
            self._open(newer)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open_first(self) -> bool:
        segments = self.segments()
        if segments:
            self._open(segments[0])
        return bool(segments)

    def _open(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.close()
        self._fd = fd
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

    def _newer(self) -> Path | None:
        """The file after the open one; the oldest if the open one is gone; None for the last."""
        mine = os.fstat(self._fd).st_ino
        segments = self.segments()
        inodes = []
        for path in segments:
            try:
                inodes.append(path.stat().st_ino)
            except FileNotFoundError:
                inodes.append(0)  # renamed while we looked; the next read looks again
        if mine not in inodes:
            return segments[0] if segments and 0 not in inodes else None
        index = inodes.index(mine)
        return segments[index + 1] if index + 1 < len(segments) else None


class ProcessLogs:
    """The logs of process containers.

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
        renderer = logs.Renderer(query)
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
