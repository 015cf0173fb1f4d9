"""Names of evidence: what programs give stays inside its directory."""

import pytest
from hypothesis import given, strategies as st

from grange.evidence import evidence_paths
from grange.evidence.evidence_paths import EvidenceKey, EvidencePathError


def test_names_of_the_api_stay_as_they_are() -> None:
    assert EvidenceKey("ci", "bench-x7", "0b1c").directory == "ci/bench-x7-0b1c"
    assert evidence_paths.segment("a.b-c_D9") == "a.b-c_D9"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "a\0b", "x" * 300, "-rf", "é"])
def test_unsafe_name_becomes_one_segment(name: str) -> None:
    found = evidence_paths.segment(name)
    assert found != name
    assert "~" in found
    assert len(found) <= 200


@given(st.lists(st.text(max_size=300), unique=True, max_size=20))
def test_segments_are_safe_and_distinct(names: list[str]) -> None:
    found = [evidence_paths.segment(name) for name in names]
    assert len(set(found)) == len(names)
    assert all("/" not in name and not name.startswith(".") and name for name in found)


@pytest.mark.parametrize(
    "path", ["report.json", "a/b/c.txt", "with space", "ünïcode", "..a/b..", "-x"]
)
def test_relative_path_is_accepted(path: str) -> None:
    assert evidence_paths.artifact_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "..", "../x", "a/../b", "a//b", "a/./b", "a/", "a\0b", "a\nb", "a\\b"),
        *("x" * 256, "x/" * 40 + "y", "y" * 2000, ".partial-x", "a/.partial-b", "\u202e", "\ud800"),
        "é" * 200,
    ],
)
def test_unsafe_artifact_is_refused_with_its_name(path: str) -> None:
    with pytest.raises(EvidencePathError, match="artifact "):
        evidence_paths.artifact_path(path)


@pytest.mark.parametrize("uid", ["", "..", "a/b", "a b", "*", "-a", "x" * 65])
def test_malformed_uid_is_refused(uid: str) -> None:
    with pytest.raises(EvidencePathError, match=r"metadata\.uid"):
        evidence_paths.checked_uid(uid)
