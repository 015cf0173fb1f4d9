"""The file of the audit log: lines are appended by a thread, and the file is rotated and bounded.

Requests never wait for the disk: lines that it cannot take in time, or at all, are dropped, counted and
logged.
"""

import asyncio
import os
from collections import deque
from pathlib import Path

from grange.app.datadir import keep_older
from grange.app.settings import SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.base.ratelimited import RateLimitedLogger

FILE_MAX_BYTES = 64 * 1024 * 1024
OLDER_FILES = 3
"""That are kept beyond the file: ``.1`` to ``.3``."""

_WAITING_MAX = 10_000


class AuditFile:
    """A file that takes lines.

    Args:
        path: of the file; its directory must be there.
        offload: where it is written.
        clock, log: of the process.
        max_bytes: at which size it is rotated.
    """

    def __init__(
        self,
        path: Path,
        offload: Offload,
        *,
        clock: Clock,
        log: Logger,
        max_bytes: int = FILE_MAX_BYTES,
    ) -> None:
        self._path = path
        self._offload = offload
        self._errors = RateLimitedLogger(log, clock)
        self._max_bytes = max_bytes
        self._waiting: deque[bytes] = deque()
        self._dropped = 0
        self._is_written = asyncio.Event()
        self._size = 0
        self._file = -1

    def open(self) -> None:
        """Open the file.

        Raises:
            SettingsError: it cannot be written.
        """
        try:
            self._open()
        except OSError as error:
            raise SettingsError(
                f"--audit-log {self._path}: cannot be written: {error.strerror or error}; "
                "choose another file"
            ) from error

    def write(self, line: bytes) -> None:
        """Add a line; it is dropped where too many wait for the disk."""
        if len(self._waiting) < _WAITING_MAX:
            self._waiting.append(line)
        else:
            self._dropped += 1
        self._is_written.set()

    async def run(self) -> None:
        """Write what is added, until cancelled."""
        while True:
            await self._is_written.wait()
            self._is_written.clear()
            await self._offload.run(self._flush)

    def close(self) -> None:
        """Write what waits, and close the file; blocks, and nothing else may write then."""
        if self._file >= 0:
            self._flush()
        self._close()

    def _flush(self) -> None:
        dropped, why = self._dropped, "the disk is slower than the requests"
        lines = []
        while self._waiting:  # the other thread only adds
            lines.append(self._waiting.popleft())
        if lines:
            try:
                self._append(b"\n".join(lines) + b"\n")
            except OSError as error:
                self._close()  # opened again, a line that was cut off is ended
                dropped, why = dropped + len(lines), str(error)
        if dropped:
            self._dropped = 0
            self._errors.error("audit events dropped", path=self._path, count=dropped, error=why)

    def _append(self, body: bytes) -> None:
        if self._file < 0:
            self._open()
        if self._size and self._size + len(body) > self._max_bytes:
            self._rotate()
        while body:
            count = os.write(self._file, body)
            self._size += count
            body = body[count:]

    def _rotate(self) -> None:
        keep_older(self._path, OLDER_FILES)
        self._close()
        self._open()

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _open(self) -> None:
        """Open the file at its end; a line that a crash cut off is ended."""
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._file).st_size
        if self._size and os.pread(self._file, 1, self._size - 1) != b"\n":
            self._append(b"\n")
