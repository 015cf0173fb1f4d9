"""Archives of grange cp: what is packed comes out, elsewhere and under another name, and no further."""

import io
import os
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest

from grange.cli.file_archive import CopyFailed, PodPath, pack, read_path, unpack


def packed(path: Path, name: str, skipped: list[str] | None = None) -> io.BytesIO:
    return io.BytesIO(b"".join(pack(path, name, (skipped or []).append)))


def archive(*members: tarfile.TarInfo) -> io.BytesIO:
    found = io.BytesIO()
    with tarfile.open(fileobj=found, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    found.seek(0)
    return found


def member(name: str, link: str = "", kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = (
        (tarfile.SYMTYPE if link and kind == tarfile.REGTYPE else kind),
        link,
    )
    return found


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("web:a/b", PodPath("web", "a/b")),
        ("grc/web:/a", PodPath("grc/web", "/a")),
        ("web:", PodPath("web", ".")),
        ("./web:a", Path("web:a")),
        ("/srv/a:b", Path("/srv/a:b")),
        ("notes.txt", Path("notes.txt")),
    ],
)
def test_words_are_paths_here_or_in_a_pod(word: str, found: object) -> None:
    assert read_path(word) == found


@pytest.mark.parametrize(
    ("path", "parent", "name"),
    [("a", ".", "a"), ("/a/b/", "/a", "b"), (".", ".", "."), ("/", "/", "."), ("a/b", "a", "b")],
)
def test_paths_in_pods_have_parent_and_name(path: str, parent: str, name: str) -> None:
    assert (PodPath("web", path).parent, PodPath("web", path).name) == (parent, name)


def test_directory_comes_out_under_another_name(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "tool").write_bytes(b"x" * 70_001)
    (source / "inner" / "tool").chmod(0o755)
    (source / ("long" * 60)).write_text("umläut")
    (source / "link").symlink_to("inner/tool")
    target = tmp_path / "out"
    assert unpack(packed(source, "made"), "made", target, print) == 5
    assert (target / "inner" / "tool").read_bytes() == b"x" * 70_001
    assert os.access(target / "inner" / "tool", os.X_OK)
    assert (target / ("long" * 60)).read_text() == "umläut"
    assert (target / "link").readlink() == Path("inner/tool")


def test_whole_directories_become_the_target(tmp_path: Path) -> None:
    found = archive(member(".", kind=tarfile.DIRTYPE), member("./a"))
    assert unpack(found, ".", tmp_path / "out", print) == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


@pytest.mark.parametrize("name", ["../a", "/etc/a", "made/../../a", "other", "madeup"])
def test_members_outside_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(CopyFailed, match="it is not in made"):
        unpack(archive(member(name)), "made", tmp_path / "in" / "out", print)
    with pytest.raises(CopyFailed, match="it is not in made"):
        hard = member("made", link=name, kind=tarfile.LNKTYPE)
        unpack(archive(hard), "made", tmp_path / "in" / "out", print)
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


@pytest.mark.parametrize("link", ["/etc", "..", "../../x", "a/../../other"])
def test_links_to_outside_are_skipped(tmp_path: Path, link: str) -> None:
    skipped: list[str] = []
    root = member("made", kind=tarfile.DIRTYPE)
    assert (
        unpack(archive(root, member("made/l", link)), "made", tmp_path / "o", skipped.append) == 1
    )
    assert skipped == ["o/l"]


def test_nothing_is_written_through_links(tmp_path: Path) -> None:
    """A link within the target comes last, so its name holds a directory by then."""
    members = (
        member("made", kind=tarfile.DIRTYPE),
        member("made/d", kind=tarfile.DIRTYPE),
        member("made/l", "d"),
        member("made/l/file"),
    )
    with suppress(CopyFailed):
        unpack(archive(*members), "made", tmp_path / "out", print)
    assert not (tmp_path / "out" / "d" / "file").exists()


def test_special_files_are_skipped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    skipped: list[str] = []
    list(pack(tmp_path, "made", skipped.append))
    assert skipped == [str(tmp_path / "pipe")]
    assert (
        unpack(archive(member("made", kind=tarfile.FIFOTYPE)), "made", tmp_path / "o", print) == 0
    )


def test_files_that_shrink_keep_their_place(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    pieces = pack(tmp_path, "made", print)
    first = [next(pieces), next(pieces), next(pieces)]
    (tmp_path / "a").write_bytes(b"")
    with tarfile.open(fileobj=io.BytesIO(b"".join([*first, *pieces]))) as tar:
        assert [item.size for item in tar] == [0, 100_000]


def test_damaged_archives_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CopyFailed, match="cannot unpack made"):
        unpack(io.BytesIO(b"garbage" * 100), "made", tmp_path / "out", print)


def test_files_that_cannot_be_read_are_errors(tmp_path: Path) -> None:
    with pytest.raises(CopyFailed, match=r"cannot read .*missing"):
        list(pack(tmp_path / "missing", "made", print))
