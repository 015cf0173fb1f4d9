"""Artifacts of one session: written within a budget, and named where they are not kept.

An artifact appears under its name when it is whole. What is being written counts against the budget
of its component, so that uploads side by side cannot exceed it. Everything here blocks.
"""

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from grange.base.errors import GrangeError
from grange.evidence import private_files
from grange.evidence.evidence_paths import artifact_path, segment
from grange.evidence.session_record import KeptFile

_MOST_SKIPPED = 200  # names for one component


class ArtifactError(GrangeError):
    """An artifact cannot be kept; the message names it and the cause."""


class ArtifactTooLarge(ArtifactError):
    """It is beyond a limit: it is not kept, and that is recorded."""


@dataclass(slots=True)
class _Budget:
    used: int  # bytes of whole files and of those that are being written
    files: int
    writers: int = 0


class ArtifactStore:
    """The artifacts below one session's directory.

    Args:
        root: of all evidence.
        directory: of the session.
        most_files: of one component.
        free_bytes: that stay free on the disk.
    """

    def __init__(self, root: Path, directory: Path, *, most_files: int, free_bytes: int) -> None:
        self._root = root
        self._directory = directory
        self._most_files = most_files
        self._free_bytes = free_bytes
        self._budgets: dict[Path, _Budget] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being written."""
        return not self._budgets

    def open(
        self, attempt: int, component: str, path: str, *, limit: int, size: int | None = None
    ) -> "ArtifactFile":
        """A file for an artifact; use it in a ``with`` block, and commit it at its end.

        Args:
            attempt: of the session.
            component: whose artifact it is.
            path: relative to the component's directory.
            limit: bytes of all artifacts of the component.
            size: bytes that are announced; None where that is not known.

        Raises:
            ArtifactTooLarge: it is beyond a limit.
            EvidencePathError: the path leaves the directory.
            ArtifactError: the disk does not allow it.
        """
        relative = artifact_path(path)
        place = self._place(attempt, component)
        target = place / relative
        budget = self._budgets.get(place) or _usage(place)
        replaced = target.stat().st_size if target.is_file() else None
        why = ""
        if replaced is None and budget.files >= self._most_files:
            why = f"the component has {budget.files} artifacts, the most that are kept"
        elif why := self._excess(budget, limit, (size or 0) - (replaced or 0)):
            why = f"it has {size} bytes, but {why}"
        if why:
            self.skip(attempt, component, KeptFile(relative, size or 0, why))
            raise ArtifactTooLarge(f"artifact {path!r} is not kept: {why}; write less")
        file = ArtifactFile(self, (attempt, component, relative), limit)
        try:
            private_files.make_directory(target.parent, self._root)
            file.begin(target)
        except OSError as error:
            raise _cannot("write", relative, error) from error
        budget.writers += 1
        budget.files += replaced is None
        self._budgets[place] = budget
        return file

    def skip(self, attempt: int, component: str, file: KeptFile) -> None:
        """Record that an artifact is not kept; the reason is its ``note``.

        Raises:
            ArtifactError: the disk does not allow it.
        """
        place = self._skipped(attempt, component)
        try:
            private_files.make_directory(place.parent, self._root)
            lines = place.read_bytes().splitlines() if place.exists() else []
            if len(lines) < _MOST_SKIPPED:
                with place.open("ab") as names:
                    names.write(msgspec.json.encode(file) + b"\n")
        except OSError as error:
            raise _cannot("record", file.path, error) from error

    def listed(self, attempt: int, component: str) -> list[KeptFile]:
        """The artifacts of a component: those that are kept, then those that are not."""
        place = self._place(attempt, component)
        prefix = place.relative_to(self._directory).as_posix()
        kept = [
            KeptFile(f"{prefix}/{path.relative_to(place).as_posix()}", path.stat().st_size)
            for path in private_files.files(place)
        ]
        names = {file.path for file in kept}
        skipped: dict[str, KeptFile] = {}
        with suppress(OSError):
            for line in self._skipped(attempt, component).read_bytes().splitlines():
                with suppress(msgspec.MsgspecError):
                    found = msgspec.json.decode(line, type=KeptFile)
                    skipped[found.path] = found
        lost = (file for path, file in sorted(skipped.items()) if f"{prefix}/{path}" not in names)
        return [*kept, *lost]

    def _place(self, attempt: int, component: str) -> Path:
        return self._directory / "artifacts" / str(attempt) / segment(component)

    def _skipped(self, attempt: int, component: str) -> Path:
        return self._directory / "skipped" / str(attempt) / segment(component)

    def _excess(self, budget: _Budget, limit: int, more: int) -> str:
        """Why so many more bytes cannot be written; empty where they can."""
        if more <= 0:
            return ""
        if budget.used + more > limit:
            left = max(0, limit - budget.used)
            return f"{left} of the {limit} bytes of its component are left"
        free = self._free()
        return f"the disk has {max(0, free)} bytes to spare" if more > free else ""

    def _free(self) -> int:
        place = self._root
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free - self._free_bytes

    def grow(self, name: tuple[int, str, str], limit: int, written: int, more: int) -> None:
        """Take bytes from the budget for a file that is being written.

        Raises:
            ArtifactTooLarge: they are not there.
        """
        attempt, component, relative = name
        budget = self._budgets[self._place(attempt, component)]
        if why := self._excess(budget, limit, more):
            why = f"it has more than {written} bytes, but {why}"
            self.skip(attempt, component, KeptFile(relative, written + more, why))
            raise ArtifactTooLarge(f"artifact {relative!r} is not kept: {why}; write less")
        budget.used += more

    def end(self, name: tuple[int, str, str]) -> None:
        """A file is whole or given up; the budget is counted again when none is being written."""
        place = self._place(name[0], name[1])
        budget = self._budgets[place]
        budget.writers -= 1
        if budget.writers == 0:
            del self._budgets[place]


class ArtifactFile:
    """An artifact that is being written.

    Args:
        store: that it belongs to.
        name: attempt, component and path.
        limit: bytes of all artifacts of the component.
    """

    def __init__(self, store: ArtifactStore, name: tuple[int, str, str], limit: int) -> None:
        self._store = store
        self._name = name
        self._limit = limit
        self._size = 0
        self._descriptor = -1
        self._partial = Path()
        self._target = Path()

    def begin(self, target: Path) -> None:
        """Open the file that is renamed to ``target`` when it is whole."""
        self._target = target
        self._descriptor, self._partial = private_files.open_partial(target.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the file up unless it was committed."""
        self.close()

    def write(self, data: bytes) -> None:
        """Append.

        Raises:
            ArtifactTooLarge: a limit is reached.
            ArtifactError: the disk does not allow it.
        """
        self._store.grow(self._name, self._limit, self._size, len(data))
        self._size += len(data)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise _cannot("write", self._name[2], error) from error

    def commit(self) -> KeptFile:
        """Put the file under its name.

        Raises:
            ArtifactError: the disk does not allow it.
        """
        try:
            os.fsync(self._descriptor)
            self._partial.replace(self._target)
        except OSError as error:
            raise _cannot("write", self._name[2], error) from error
        finally:
            self.close()
        return KeptFile(self._name[2], self._size)

    def close(self) -> None:
        """Give the file up unless it was committed; idempotent."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self._partial.unlink(missing_ok=True)
        self._store.end(self._name)


def _usage(place: Path) -> _Budget:
    sizes = [path.stat().st_size for path in private_files.files(place)]
    return _Budget(sum(sizes), len(sizes))


def _cannot(what: str, path: str, error: OSError) -> ArtifactError:
    why = error.strerror or str(error)
    return ArtifactError(
        f"cannot {what} artifact {path!r}: {why}; check the directory of evidence and its disk"
    )
