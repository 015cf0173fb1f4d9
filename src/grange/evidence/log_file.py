"""The log of one container as it is kept: lines with times, resumed exactly, of bounded size.

Each line begins with its time in RFC 3339, as the API gives it. A stream that broke is resumed from
the second of the last line, and what is there already is left out. Where a log exceeds its limit, the
beginning and the end are kept. Everything here blocks.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from grange.evidence.evidence_paths import PARTIAL

_FRACTION = 9  # digits
_CHUNK = 1024 * 1024
_LONGEST_LINE = 1024 * 1024
_TIME = 64  # bytes, at most
_TIME_FACTOR = 8  # what times make of a log with short lines


def sort_key(stamp: bytes) -> bytes:
    """A time in a form that compares as bytes: RFC 3339 in UTC drops zeros of the fraction."""
    whole, _, fraction = stamp.removesuffix(b"Z").partition(b".")
    return whole + b"." + fraction.ljust(_FRACTION, b"0")


def without_times(lines: bytes) -> bytes:
    """The text of lines as the program wrote them."""
    return b"\n".join(line.partition(b" ")[2] for line in lines.split(b"\n"))


class LogFile:
    """A log that is being written.

    Args:
        path: of the file; its directory is there.
        limit: bytes; of a longer log the first half of it and the end are kept.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self.path = path
        self._half = max(4, limit // 2)
        self._older, self._newer, self._count = (
            path.with_name(f"{PARTIAL}{path.name}.{part}") for part in ("older", "newer", "dropped")
        )
        self._dropped = int(self._count.read_bytes() or 0) if self._count.exists() else 0
        self._rest = b""
        self._last = b""  # time of the last line
        self._same = 0  # lines at that time
        self._skip_until = b""  # while a stream is resumed
        self._skip = 0
        self._read_end()

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return sum(_size(place) for place in (self.path, self._older, self._newer))

    @property
    def since(self) -> str:
        """The time to resume from; empty for the beginning."""
        return self._last.decode(errors="replace")

    @property
    def newest(self) -> bytes:
        """The time of the newest line, which may be unfinished; empty where there is none."""
        stamp, blank, _ = self._rest.partition(b" ")
        return stamp if blank else self._last

    @property
    def dropped(self) -> int:
        """Bytes in the middle that are not kept."""
        return self._dropped

    def resume(self) -> None:
        """A new stream begins, with lines from ``since`` on: an unfinished line comes again."""
        self._rest = b""
        self._skip_until, self._skip = sort_key(self._last) if self._last else b"", self._same

    def feed(self, data: bytes) -> None:
        """Append a piece of the stream; whole lines are written."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        lines = [part for line in whole for part in _parts(line)]
        # A line without an end must not fill the memory.
        *more, self._rest = _parts(self._rest)
        self._append([line + b"\n" for line in (*lines, *more) if self._is_new(line)])

    def finish(self) -> None:
        """The container ended: write an unfinished line, and put the parts together."""
        if self._rest and self._is_new(self._rest):
            self._append([self._rest + b"\n"])
        self._rest = b""
        if not (self._older.exists() or self._newer.exists()):
            return
        with self.path.open("ab") as target:
            if self._dropped:
                target.write(f"{self.since} … {self._dropped} bytes are not kept …\n".encode())
            for part in (self._older, self._newer):
                with suppress(FileNotFoundError), part.open("rb") as source:
                    shutil.copyfileobj(source, target, _CHUNK)
        for part in (self._older, self._newer, self._count):
            part.unlink(missing_ok=True)

    def tail(self, limit: int) -> bytes:
        """The last bytes of the text, without times, from the beginning of a line on."""
        found = b""
        wanted = _TIME_FACTOR * limit + _TIME
        for place in (self._newer, self._older, self.path):
            if len(found) < wanted:
                found = _end(place, wanted - len(found)) + found
        text = without_times(found)
        if len(text) <= limit:
            return text
        return text[-limit - 1 :].partition(b"\n")[2] or text[-limit:]

    def _is_new(self, line: bytes) -> bool:
        stamp = line.partition(b" ")[0]
        if self._skip_until:
            key = sort_key(stamp)
            if key < self._skip_until:
                return False
            if key == self._skip_until and self._skip > 0:
                self._skip -= 1
                return False
            self._skip_until = b""
        self._same = self._same + 1 if stamp == self._last else 1
        self._last = stamp
        return True

    def _append(self, lines: list[bytes]) -> None:
        size = _size(self.path)
        is_whole = not (self._newer.exists() or self._older.exists())
        begin: list[bytes] = []
        for at, line in enumerate(lines):
            size += len(line)
            if not is_whole or size > self._half:
                self._append_to_end(lines[at:])
                break
            begin.append(line)
        if begin:
            _write(self.path, b"".join(begin))

    def _append_to_end(self, lines: list[bytes]) -> None:
        """Two parts take turns: together they hold a quarter to a half of the limit."""
        most = self._half // 2
        size = _size(self._newer)
        waiting: list[bytes] = []
        for line in lines:
            if size + len(line) > most:
                _write(self._newer, b"".join(waiting))
                waiting = []
                self._turn()
                size = 0
            if len(line) > most:
                self._drop(len(line) - most)
                line = line[: most - 1] + b"\n"  # noqa: PLW2901  the part that is kept
            waiting.append(line)
            size += len(line)
        _write(self._newer, b"".join(waiting))

    def _turn(self) -> None:
        self._drop(_size(self._older))
        if self._newer.exists():
            self._newer.replace(self._older)

    def _drop(self, count: int) -> None:
        if count:
            self._dropped += count
            self._count.write_bytes(b"%d" % self._dropped)

    def _read_end(self) -> None:
        """Continue a file that an earlier process began."""
        place = next((p for p in (self._newer, self._older) if p.exists()), self.path)
        end = _end(place, 2 * _LONGEST_LINE)
        *lines, unfinished = end.split(b"\n")
        if unfinished:  # the process ended within a write
            os.truncate(place, _size(place) - len(unfinished))
        for line in lines:
            self._is_new(line)


def _parts(line: bytes) -> list[bytes]:
    """A line in parts of one length, each with its time: a resumed stream has the same parts."""
    if len(line) <= _LONGEST_LINE:
        return [line]
    stamp, _, text = line.partition(b" ")
    step = max(1, _LONGEST_LINE - len(stamp) - 1)
    return [stamp + b" " + text[at : at + step] for at in range(0, len(text), step)]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _write(path: Path, data: bytes) -> None:
    if data:
        with path.open("ab") as file:
            file.write(data)


def _end(path: Path, limit: int) -> bytes:
    """The last bytes of a file, from the beginning of a line on where it is longer."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # The byte before the cut shows whether it lies at the beginning of a line.
            start = max(0, size - limit - 1)
            file.seek(start)
            data = file.read()
    except FileNotFoundError:
        return b""
    return data.partition(b"\n")[2] if start else data
