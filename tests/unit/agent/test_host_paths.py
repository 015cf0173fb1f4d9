"""Paths of the machine are volumes where that is allowed."""

from pathlib import Path

import pytest

from grange.agent import host_paths
from grange.agent.container_runtime import VolumePlan
from grange.agent.errors import NotCreatableError


def volume(path: Path) -> list[VolumePlan]:
    return [VolumePlan("own"), VolumePlan("data", host_path=str(path))]


def test_any_path_is_allowed_by_default() -> None:
    host_paths.check(volume(Path("/etc")), ())


def test_paths_below_an_allowed_one_are_allowed(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "sub", tmp_path / "a" / ".." / "sub"):
        host_paths.check(volume(path), ["/srv/none", str(tmp_path)])


@pytest.mark.parametrize("name", ["../other", "..", "link/x", "../allowed-too"])
def test_other_paths_are_refused(tmp_path: Path, name: str) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    (allowed / "link").symlink_to("/etc")
    with pytest.raises(
        NotCreatableError, match=r'volume "data": hostPath .* is not allowed'
    ) as found:
        host_paths.check(volume(allowed / name), [str(allowed)])
    assert found.value.lasting


def test_link_to_an_allowed_directory_is_allowed_by_its_own_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    host_paths.check(volume(tmp_path / "real" / "x"), [str(tmp_path / "link")])
