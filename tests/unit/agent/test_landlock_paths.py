"""What a program may reach under Landlock: everything but what is hidden."""

import os
from pathlib import Path

import pytest

from grange.agent.runtimes.process import landlock


def made(top: Path) -> tuple[str, str]:
    """A tree with a hidden directory, and what is to be shown in it."""
    shown = top / "home" / "user" / "data" / "pods" / "own"
    shown.mkdir(parents=True)
    for name in ("etc", "home/other", "home/user/work"):
        (top / name).mkdir()
    return str(top / "home" / "user" / "data"), str(shown)


def test_everything_but_the_hidden_is_reachable(tmp_path: Path) -> None:
    hidden, shown = made(tmp_path)
    found = sorted(landlock.reachable(str(tmp_path), [hidden], [shown]))
    rest = [str(tmp_path / name) for name in ("etc", "home/other", "home/user/work")]
    assert found == sorted([*rest, shown])


def test_way_through_a_directory_that_cannot_be_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /home is on many machines: mode 0711."""
    hidden, shown = made(tmp_path)
    listed = os.listdir

    def refused(path: str) -> list[str]:
        if path == str(tmp_path / "home"):
            raise PermissionError(path)
        return listed(path)

    monkeypatch.setattr(os, "listdir", refused)
    found = sorted(landlock.reachable(str(tmp_path), [hidden], [shown]))
    assert found == sorted([str(tmp_path / "etc"), str(tmp_path / "home/user/work"), shown])
