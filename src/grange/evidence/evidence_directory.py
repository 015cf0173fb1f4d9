"""The directory that evidence is kept in: layout, limits and retention.

::

    <root>/<namespace>/<name>-<uid>/        0700
        session.json                        the record, when the session has ended
        logs/<attempt>/<pod>/<container>.log
        artifacts/<attempt>/<component>/…
        skipped/<attempt>/<component>       artifacts that were not kept, as JSON lines

Everything here blocks and is called through an ``Offload``.
"""

import shutil
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from grange.api import timestamps
from grange.base.errors import GrangeError
from grange.evidence import evidence_paths, private_files, session_record
from grange.evidence.artifact_store import ArtifactStore
from grange.evidence.evidence_paths import EvidenceKey, artifact_path, segment
from grange.evidence.log_file import LogFile
from grange.evidence.session_record import KeptFile, RecordError, SessionRecord

RECORD = "session.json"


class EvidenceError(GrangeError):
    """Evidence cannot be kept or read; the message names it and the cause."""


@dataclass(frozen=True, slots=True)
class EvidenceLimits:
    """What may be kept.

    Attributes:
        log_bytes: of one container; its beginning and its end are kept.
        artifacts: files of one component.
        free_bytes: that stay free on the disk.
        abandoned_s: after how long evidence without a record is deleted.
    """

    log_bytes: int = 256 * 1024 * 1024
    artifacts: int = 1000
    free_bytes: int = 1024 * 1024 * 1024
    abandoned_s: float = 7 * 24 * 3600


class EvidenceDirectory:
    """Evidence below one root.

    Args:
        root: made when it is first written to.
        limits: what may be kept.
    """

    def __init__(self, root: Path, limits: EvidenceLimits | None = None) -> None:
        self.root = root
        self.limits = limits or EvidenceLimits()
        self._stores: dict[EvidenceKey, ArtifactStore] = {}

    def path(self, key: EvidenceKey) -> Path:
        """The directory of a session."""
        return self.root / key.directory

    def find(self, uid: str) -> Path | None:
        """The directory of the session with a UID.

        Raises:
            EvidencePathError: the UID is malformed.
        """
        suffix = f"-{evidence_paths.checked_uid(uid)}"
        for directory in self._sessions():
            if directory.name.endswith(suffix):
                return directory
        return None

    def write_record(self, key: EvidenceKey, record: SessionRecord) -> None:
        """Write the record of a session, replacing an earlier one.

        Raises:
            EvidenceError: the disk does not allow it.
        """
        directory = self.path(key)
        try:
            private_files.make_directory(directory, self.root)
            private_files.write_atomically(directory / RECORD, session_record.encode(record))
        except OSError as error:
            raise _cannot("write the record of", key.name, error) from error

    def read_record(self, directory: Path) -> SessionRecord:
        """The record in a session's directory.

        Raises:
            EvidenceError: there is none.
            RecordError: it is damaged.
        """
        try:
            return session_record.decode((directory / RECORD).read_bytes())
        except OSError as error:
            raise _cannot("read the record in", directory.name, error) from error

    def find_record(self, directory: Path) -> SessionRecord | None:
        """The record in a session's directory; None where there is none or it is damaged."""
        try:
            return self.read_record(directory)
        except (EvidenceError, RecordError):
            return None

    def records(self) -> Iterator[SessionRecord]:
        """The records of all sessions that have one; damaged ones are left out."""
        for directory in self._sessions():
            if (record := self.find_record(directory)) is not None:
                yield record

    def open_log(self, key: EvidenceKey, attempt: int, pod: str, container: str) -> LogFile:
        """The log of a container, open for what follows what it has.

        Raises:
            EvidenceError: the disk does not allow it.
        """
        directory = self.path(key) / "logs" / str(attempt) / segment(pod)
        try:
            private_files.make_directory(directory, self.root)
            return LogFile(directory / f"{segment(container)}.log", self.limits.log_bytes)
        except OSError as error:
            raise _cannot("write the log of", f"{pod}/{container}", error) from error

    def artifact_store(self, key: EvidenceKey) -> ArtifactStore:
        """The artifacts of a session; one store while anything is written to it."""
        for other in [other for other, store in self._stores.items() if store.is_idle]:
            del self._stores[other]
        if key not in self._stores:
            self._stores[key] = ArtifactStore(
                self.root,
                self.path(key),
                most_files=self.limits.artifacts,
                free_bytes=self.limits.free_bytes,
            )
        return self._stores[key]

    def files(self, directory: Path) -> list[KeptFile]:
        """Every file of a session's directory, by path."""
        return [
            KeptFile(path.relative_to(directory).as_posix(), path.stat().st_size)
            for path in private_files.files(directory)
            if path.relative_to(directory).parts[0] != "skipped"
        ]

    def open_file(self, directory: Path, path: str) -> BinaryIO:
        """A file of a session's directory, open for reading.

        Raises:
            EvidencePathError: the path leaves the directory.
            EvidenceError: there is no such file.
        """
        relative = artifact_path(path)
        target = directory / relative
        try:
            # A link was put there by hand: it may lead anywhere.
            if not target.resolve(strict=True).is_relative_to(directory.resolve()):
                raise FileNotFoundError(2, "No such file or directory")
            if not target.is_file():
                raise FileNotFoundError(2, "No such file")
            return target.open("rb")
        except OSError as error:
            raise _cannot("read", path, error) from error

    def prune(self, now: datetime, active: Collection[str] = ()) -> list[Path]:
        """Delete the evidence whose time is over.

        Args:
            now: the time.
            active: UIDs of sessions that have not ended.

        Returns:
            The directories that were deleted.
        """
        deleted = []
        for directory in [*self._sessions()]:
            if any(directory.name.endswith(f"-{uid}") for uid in active):
                continue
            if self._is_over(directory, now):
                shutil.rmtree(directory, ignore_errors=True)
                if not directory.exists():
                    deleted.append(directory)
                with suppress(OSError):
                    directory.parent.rmdir()  # only where nothing is left in it
        return deleted

    def _is_over(self, directory: Path, now: datetime) -> bool:
        record = self.find_record(directory)
        keep_s = self.limits.abandoned_s if record is None else float(record.retention_seconds)
        end = None if record is None else session_record.instant(record.completion_time)
        if end is None:
            try:
                end = timestamps.from_seconds(directory.stat().st_mtime)
            except OSError:
                return False
        return now >= timestamps.shift(end, keep_s)

    def _sessions(self) -> Iterator[Path]:
        for namespace in private_files.directories(self.root):
            yield from private_files.directories(namespace)


def _cannot(what: str, name: str, error: OSError) -> EvidenceError:
    why = error.strerror or str(error)
    return EvidenceError(
        f"cannot {what} {name}: {why}; check the directory of evidence and its disk"
    )
