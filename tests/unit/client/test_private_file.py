"""Files that several programs write are never half written and never written by two at once."""

import fcntl
import os
from pathlib import Path

import pytest

from grange.client.errors import KubeconfigError
from grange.client.private_file import locked, replace


def test_replace_is_private_even_if_the_old_file_was_not(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o644)
    replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["f"]


def test_lock_is_there_while_held_and_gone_after(tmp_path: Path) -> None:
    path = tmp_path / "f"
    with locked(path):
        assert (tmp_path / "f.lock").exists()
    assert os.listdir(tmp_path) == []


def test_lock_is_released_by_an_exception(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "f"):
        raise ZeroDivisionError
    with locked(tmp_path / "f"):
        pass


def test_lock_of_another_program_is_respected(tmp_path: Path) -> None:
    """kubectl makes an empty file and holds no kernel lock."""
    (tmp_path / "f.lock").write_bytes(b"")
    with pytest.raises(KubeconfigError, match=r"f\.lock exists"), locked(tmp_path / "f"):
        pass
    assert (tmp_path / "f.lock").exists()


def test_lock_left_by_a_killed_grange_is_taken_over(tmp_path: Path) -> None:
    """The kernel lock died with its process; only the file is left."""
    with locked(tmp_path / "f"):
        left = (tmp_path / "f.lock").read_bytes()
    (tmp_path / "f.lock").write_bytes(left)
    with locked(tmp_path / "f"):
        pass
    assert os.listdir(tmp_path) == []


def test_held_lock_cannot_be_had_by_another_descriptor(tmp_path: Path) -> None:
    with locked(tmp_path / "f"):
        number = os.open(tmp_path / "f.lock", os.O_RDWR)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(number)


def test_unwritable_directory_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KubeconfigError, match="cannot lock"), locked(tmp_path / "file" / "f"):
        pass
