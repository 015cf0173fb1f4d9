"""Where the artifacts of pods on this machine are."""

from pathlib import Path

import pytest

from grange.app.evidence_service import PodVolumes


@pytest.mark.parametrize("root", ["pods", "cri/pods"])
def test_artifacts_of_every_runtime_are_found(root: str, tmp_path: Path) -> None:
    place = tmp_path / root / "u-1" / "volumes" / "grange-artifacts"
    place.mkdir(parents=True)
    volumes = PodVolumes(tmp_path)
    assert volumes.directory("u-1") == place
    assert volumes.directory("u-2") is None
    assert volumes.directory("../u-1") == place, "only the last part of a UID counts"
    (tmp_path / root / "u-3" / "volumes").mkdir(parents=True)
    (tmp_path / root / "u-3" / "volumes" / "grange-artifacts").symlink_to("/etc")
    assert volumes.directory("u-3") is None
