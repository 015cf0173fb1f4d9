"""Manifests that cannot be read are named."""

from pathlib import Path

import pytest

from grange.cli import manifests


def test_file_of_a_directory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
    (tmp_path / "bad.yaml").write_bytes(b"\x80")
    with pytest.raises(manifests.ManifestError) as caught:
        manifests.read([str(tmp_path)])
    assert str(caught.value) == f"{tmp_path}/bad.yaml: is not UTF-8 text (byte 0)"


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(manifests.ManifestError, match="no such file or directory"):
        manifests.read([str(tmp_path / "none.yaml")])
