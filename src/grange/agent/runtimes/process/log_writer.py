"""The log files of a run as its shim writes them: lines with times, rotated by size.

Part of the shim: imports nothing but the standard library, and little of that.
"""

import os
import time

LOG_FILE = "log"
NEW_LOG_FILE = "log.new"  # until it takes the name of the file that was written before

_LINE_LIMIT = 16384  # a longer line is written in parts, as the CRI log format has it


class LogWriter:
    """Writes lines as ``time stream tag text`` and rotates the file by size.

    Args:
        directory_fd: where the files are: ``log``, then ``log.1`` (newer) to ``log.N`` (older).
        max_bytes: a file that has grown to this is rotated.
        files: how many files there may be.
    """

    def __init__(self, directory_fd: int, *, max_bytes: int, files: int) -> None:
        self._directory = directory_fd
        self._max_bytes = max_bytes
        self._files = files
        self._partial = {"stdout": b"", "stderr": b""}
        self._second = -1
        self._prefix = ""
        self._torn = b""  # what ends a line that was written in part
        self._fd = self._open(LOG_FILE)
        self._size = 0

    def _open(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(name, flags, 0o600, dir_fd=self._directory)

    def _stamp(self) -> bytes:
        second, nanos = divmod(time.time_ns(), 1_000_000_000)
        if second != self._second:
            self._second = second
            self._prefix = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._prefix}.{nanos:09d}Z".encode()

    def feed(self, stream: str, data: bytes) -> None:
        """Take what the program wrote; whole lines go to the file at once."""
        head = b"%s %s " % (self._stamp(), stream.encode())
        *lines, rest = (self._partial[stream] + data).split(b"\n")
        out = []
        for line in lines:
            while len(line) > _LINE_LIMIT:
                out.append(head + b"P " + line[:_LINE_LIMIT] + b"\n")
                line = line[_LINE_LIMIT:]  # noqa: PLW2901  the rest of the same line
            out.append(head + b"F " + line + b"\n")
        while len(rest) >= _LINE_LIMIT:
            out.append(head + b"P " + rest[:_LINE_LIMIT] + b"\n")
            rest = rest[_LINE_LIMIT:]
        self._partial[stream] = rest
        self._write(out)

    def close(self) -> None:
        """Write unfinished lines, tagged as parts, and close the file."""
        for stream, rest in self._partial.items():
            if rest:
                self._write([b"%s %s P %s\n" % (self._stamp(), stream.encode(), rest)])
        os.close(self._fd)

    def _write(self, lines: list[bytes]) -> None:
        data = b""
        for line in lines:
            if self._size + len(data) + len(line) > self._max_bytes and self._size + len(data):
                self._put(data)
                data = b""
                # Lines that a full disk did not take must not push older ones out.
                if self._size and self._size + len(line) > self._max_bytes:
                    self._rotate()
            data += line
        self._put(data)

    def _put(self, data: bytes) -> None:
        """Write; what a full disk does not take is lost, and later lines may not be."""
        data = self._torn + data
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            # The next line that can be written must not continue half of this one.
            if written:
                self._torn = b"" if data[:written].endswith(b"\n") else b"\n"
        else:
            self._torn = b""
        self._size += written

    def _rotate(self) -> None:
        """Begin a new file; the old one grows on where none can be made now."""
        try:
            fd = self._open(NEW_LOG_FILE)
        except OSError:
            return
        try:
            for number in range(self._files - 1, 0, -1):
                self._rename(f"{LOG_FILE}.{number - 1}" if number > 1 else LOG_FILE, number)
            os.replace(
                NEW_LOG_FILE, LOG_FILE, src_dir_fd=self._directory, dst_dir_fd=self._directory
            )
        except OSError:
            os.close(fd)
            return
        os.close(self._fd)
        self._fd = fd
        self._size = 0
        self._torn = b""

    def _rename(self, newer: str, number: int) -> None:
        try:
            os.replace(
                newer,
                f"{LOG_FILE}.{number}",
                src_dir_fd=self._directory,
                dst_dir_fd=self._directory,
            )
        except FileNotFoundError:
            return
