"""The data directory: one owner at a time, and private."""

import errno
import os
import stat
from pathlib import Path

import pytest

from grange.store.directory import DataDirectory
from grange.store.errors import StorageFull, StoreBusy, StoreError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_is_made_private(tmp_path: Path) -> None:
    directory = DataDirectory.acquire(tmp_path / "some" / "where")
    assert mode(tmp_path / "some" / "where") == 0o700
    assert mode(directory.database) == 0o600
    assert mode(directory.path / "store.lock") == 0o600
    directory.release()


def test_directory_narrows_the_mode_of_an_existing_database(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch(0o644)
    DataDirectory.acquire(tmp_path).release()
    assert mode(tmp_path / "store.db") == 0o600


def test_directory_is_open_once_and_names_the_holder(tmp_path: Path) -> None:
    first = DataDirectory.acquire(tmp_path)
    with pytest.raises(StoreBusy, match=rf"in use by process {os.getpid()}: stop it or choose"):
        DataDirectory.acquire(tmp_path)
    first.release()
    first.release()
    DataDirectory.acquire(tmp_path).release()


def test_directory_that_is_a_file_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(StoreError, match=f"{path} cannot hold data .* choose another"):
            DataDirectory.acquire(path)


def test_directory_that_cannot_be_made_is_refused() -> None:
    with pytest.raises(StoreError, match="/proc/grange cannot hold data"):
        DataDirectory.acquire(Path("/proc/grange"))


def test_database_path_that_is_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").mkdir()
    with pytest.raises(StoreError, match=r"store\.db"):
        DataDirectory.acquire(tmp_path)
    (tmp_path / "store.db").rmdir()
    DataDirectory.acquire(tmp_path).release()


def test_full_disk_is_reported_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "ftruncate", refuse)
        with pytest.raises(StorageFull, match="free space"):
            DataDirectory.acquire(tmp_path)
    DataDirectory.acquire(tmp_path).release()
