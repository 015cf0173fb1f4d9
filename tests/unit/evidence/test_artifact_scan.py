"""Artifacts in a directory that a program fills: patterns, links, and what is no file."""

import os
from pathlib import Path

import pytest

from grange.evidence import artifact_scan

FILES = ("a.json", "b.txt", "out/a.json", "out/deep/a.json", "out/deep/[x]", ".hidden")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "artifacts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "artifacts"


def found(root: Path, *patterns: str) -> list[str]:
    return [file.path for file in artifact_scan.find(root, patterns)]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.json", ["a.json"]),
        ("**/*.json", ["a.json", "out/a.json", "out/deep/a.json"]),
        ("out/*", ["out/a.json"]),
        ("out/**", ["out/a.json", "out/deep/[x]", "out/deep/a.json"]),
        ("**/deep/**/a.json", ["out/deep/a.json"]),
        ("/a.json", ["a.json"]),
        ("?.txt", ["b.txt"]),
        ("out/deep/[[]x]", ["out/deep/[x]"]),
        ("**", [".hidden", "a.json", "b.txt", "out/a.json", "out/deep/[x]", "out/deep/a.json"]),
        ("../*", []),
        ("", []),
        ("nothing", []),
        ("*" * 50 + "x", []),
    ],
)
def test_pattern_selects_files(root: Path, pattern: str, expected: list[str]) -> None:
    assert found(root, pattern) == expected


def test_file_of_two_patterns_is_found_once(root: Path) -> None:
    assert found(root, "a.*", "*.json") == ["a.json"]


def test_links_and_pipes_are_refused_with_the_reason(root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    (root / "link").symlink_to(secret)
    (root / "tree").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    refused = {file.path: file.refusal for file in artifact_scan.find(root, ["**"]) if file.refusal}
    link = "it is a symbolic link, which is not followed"
    assert refused == {"link": link, "pipe": "it is no regular file", "tree": link}
    for path in ("link", "tree/secret", "pipe", "out", "nothing", "../secret"):
        with pytest.raises(OSError):  # noqa: PT011  of any kind
            os.close(artifact_scan.open_beneath(root, path))


def test_root_that_is_a_link_is_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    assert found(tmp_path / "link", "**") == []
    assert found(tmp_path / "nothing", "**") == []
    with pytest.raises(OSError):  # noqa: PT011  of any kind
        artifact_scan.open_beneath(tmp_path / "link", "a.json")


def test_file_is_read_below_the_root(root: Path) -> None:
    descriptor = artifact_scan.open_beneath(root, "out/deep/a.json")
    with os.fdopen(descriptor) as file:
        assert file.read() == "out/deep/a.json"


def test_directory_replaced_by_a_link_is_not_entered(root: Path, tmp_path: Path) -> None:
    listed = artifact_scan.find(root, ["**"])
    assert next(listed).path == ".hidden"
    (root / "out").rename(tmp_path / "moved")
    (root / "out").symlink_to(tmp_path / "moved")
    assert [file.path for file in listed if not file.refusal] == ["a.json", "b.txt"]


def test_endless_tree_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifact_scan, "_MOST", 10)
    for number in range(20):
        (tmp_path / f"f{number:02}").touch()
    files = [*artifact_scan.find(tmp_path, ["**"])]
    assert len(files) == 11
    assert files[-1].refusal == "more than 10 files are there"


def test_deep_tree_is_bounded(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("d", *["d"] * 60)
    deep.mkdir(parents=True)
    (deep / "file").touch()
    assert found(tmp_path / "d", "**") == []
