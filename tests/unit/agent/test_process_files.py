"""What the process runtime keeps on disk, whatever a program did to it."""

import ctypes
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grange.agent import pod_directory
from grange.agent.container_runtime import (
    ContainerID,
    Mount,
    NameFiles,
    PodSetup,
    Program,
    RuntimeFailedError,
    VolumeFile,
    VolumePlan,
)
from grange.agent.runtimes.process.files import Layout

UID = "8a1c2f0e-0000-4000-8000-000000000001"
UNPRIVILEGED = 65534
PROGRAM = Program(("true",), {})


@pytest.fixture
def layout() -> Iterator[Layout]:
    """Below a directory of a user who is not root: root may write to read-only directories."""
    libc = ctypes.CDLL(None)
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, UNPRIVILEGED, UNPRIVILEGED)
            libc.setfsuid(UNPRIVILEGED)
        yield Layout(Path(name))
        libc.setfsuid(os.geteuid())


def setup(*plans: VolumePlan) -> PodSetup:
    return PodSetup(UID, "default", "web", "node-1", plans)


def config(**content: str) -> VolumePlan:
    files = tuple(
        VolumeFile(path.replace("__", "/"), text.encode()) for path, text in content.items()
    )
    return VolumePlan("config", files, exact=True)


def tree(top: Path) -> dict[str, str]:
    found = (path for path in sorted(top.rglob("*")) if path.is_file() or path.is_symlink())
    return {str(path.relative_to(top)): path.read_text() for path in found}


def attempt(number: int) -> ContainerID:
    return ContainerID(UID, "main", number)


def test_removed_keys_leave_the_volume(layout: Layout) -> None:
    volume = Path(layout.make_pod(setup(config(a="1", b="2", d__e="3")), "").volumes["config"])
    assert tree(volume) == {"a": "1", "b": "2", "d/e": "3"}
    layout.make_pod(setup(config(a="4", d="5")), "")
    assert tree(volume) == {"a": "4", "d": "5"}
    layout.make_pod(setup(config()), "")
    assert tree(volume) == {}


def test_empty_directory_keeps_what_programs_wrote(layout: Layout) -> None:
    volume = Path(layout.make_pod(setup(VolumePlan("data")), "").volumes["data"])
    (volume / "state").write_text("kept")
    layout.make_pod(setup(VolumePlan("data")), "")
    assert tree(volume) == {"state": "kept"}


def test_volume_does_not_follow_links(layout: Layout) -> None:
    """A program may have put links in the place of the volume and of its directories."""
    volume = Path(layout.make_pod(setup(config(d__e="1")), "").volumes["config"])
    elsewhere = layout.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("kept")
    (volume / "d" / "e").unlink()
    (volume / "d").rmdir()
    (volume / "d").symlink_to(elsewhere)
    layout.make_pod(setup(config(d__e="2")), "")
    assert tree(volume) == {"d/e": "2"}
    (volume / "d" / "e").unlink()
    (volume / "d").rmdir()
    volume.rmdir()
    volume.symlink_to(elsewhere)
    layout.make_pod(setup(config(a="3")), "")
    assert tree(volume) == {"a": "3"}
    assert tree(elsewhere) == {"precious": "kept"}


def test_read_only_directories_hold_up_no_restart(layout: Layout) -> None:
    volumes = layout.make_pod(setup(config(a="1")), "").volumes
    layout.make_attempt(attempt(0), PROGRAM, (Mount("config", "/etc/app"),), volumes)
    root = layout.container(UID, "main") / "root"
    (root / "cache" / "deep").mkdir(parents=True)
    (root / "cache" / "deep" / "file").write_text("")
    Path(volumes["config"]).chmod(0o500)
    for place in (root / "cache" / "deep", root / "cache", root, root.parent):
        place.chmod(0o500)
    (layout.pod(UID) / "tmp").chmod(0)
    layout.make_pod(setup(config(a="2")), "")
    layout.make_attempt(attempt(1), PROGRAM, (Mount("config", "/etc/app"),), volumes)
    assert sorted(path.name for path in root.iterdir()) == ["etc"]
    assert (root / "etc" / "app" / "a").read_text() == "2"


@pytest.mark.parametrize("link", [False, True])
def test_root_that_is_no_directory_holds_up_no_restart(layout: Layout, link: bool) -> None:
    layout.make_pod(setup(), "")
    layout.make_attempt(attempt(0), PROGRAM, (), {})
    root = layout.container(UID, "main") / "root"
    root.rmdir()
    if link:
        root.symlink_to("/nowhere")
    else:
        root.write_text("")
    layout.make_attempt(attempt(1), PROGRAM, (), {})
    assert root.is_dir()


def test_removed_pod_leaves_nothing(layout: Layout) -> None:
    layout.make_pod(setup(config(a="1")), "")
    layout.make_attempt(attempt(0), PROGRAM, (), {})
    cache = layout.container(UID, "main") / "root" / "cache"
    cache.mkdir()
    (cache / "file").write_text("")
    cache.chmod(0)
    layout.remove_pod(UID)
    assert layout.pods() == []


def message_at(layout: Layout, path: str) -> Path:
    layout.make_pod(setup(), "127.1.0.2")
    layout.make_attempt(attempt(0), Program(("true",), {}, message_path=path), (), {})
    return layout.container(UID, "main") / "root" / path.strip("/")


@pytest.mark.parametrize("path", ["/dev/termination-log", "/message"])
def test_message_is_the_last_of_its_file(layout: Layout, path: str) -> None:
    place = message_at(layout, path)
    assert place.read_bytes() == b""
    place.write_bytes(b"0123456789")
    assert layout.read_message(attempt(0), path, 4) == b"6789"


@pytest.mark.parametrize("part", ["dev", "dev/termination-log"])
def test_message_is_not_read_through_links(layout: Layout, part: str) -> None:
    place = message_at(layout, "/dev/termination-log")
    secret = layout.root / "termination-log"
    secret.write_text("secret")
    place.unlink()
    if part == "dev":
        place.parent.rmdir()
        place.parent.symlink_to(layout.root)
    else:
        place.symlink_to(secret)
    assert layout.read_message(attempt(0), "/dev/termination-log", 4) is None


def test_message_that_is_no_regular_file_is_none(layout: Layout) -> None:
    place = message_at(layout, "/dev/termination-log")
    place.unlink()
    os.mkfifo(place)
    assert layout.read_message(attempt(0), "/dev/termination-log", 4) is None


def test_sub_path_that_leads_out_of_its_volume_is_refused(layout: Layout) -> None:
    volumes = layout.make_pod(setup(VolumePlan("data")), "127.1.0.2").volumes
    Path(volumes["data"], "out").symlink_to(layout.root)
    mount = Mount("data", "/data", sub_path="out/made")
    with pytest.raises(RuntimeFailedError, match="cannot make"):
        layout.make_attempt(attempt(0), PROGRAM, (mount,), volumes)
    assert not (layout.root / "made").exists()


def test_sub_path_may_have_links_inside_its_volume(layout: Layout) -> None:
    volumes = layout.make_pod(setup(VolumePlan("data")), "127.1.0.2").volumes
    Path(volumes["data"], "real").mkdir()
    Path(volumes["data"], "link").symlink_to("real")
    mount = Mount("data", "/data", sub_path="link/made")
    layout.make_attempt(attempt(0), PROGRAM, (mount,), volumes)
    assert Path(volumes["data"], "real", "made").is_dir()


def test_volume_of_a_group_is_writable_for_it(layout: Layout) -> None:
    group = os.getegid()
    made = PodSetup(UID, "default", "web", "node-1", (config(a="1"),), fs_group=group)
    volume = Path(layout.make_pod(made, "127.1.0.2").volumes["config"])
    assert volume.stat().st_mode & 0o2070 == 0o2070
    assert (volume / "a").stat().st_mode & 0o060 == 0o060
    assert (volume / "a").stat().st_gid == group


# --- names -----------------------------------------------------------------------------------------


def test_names_are_written_in_place_and_whole(layout: Layout) -> None:
    layout.make_pod(setup(), "127.9.0.5")
    hosts = layout.pod(UID) / "hosts"
    assert "127.9.0.5\tweb\n" in hosts.read_text()
    with hosts.open() as reader:
        layout.write_name_files(UID, NameFiles("a\n", "b\n"))
        layout.make_pod(setup(), "127.9.0.5")  # again for its next container
        assert reader.read() == "a\n"
    assert (hosts.parent / "resolv.conf").read_text() == "b\n"


def test_pod_without_views_has_no_names(layout: Layout) -> None:
    layout.make_pod(setup(), "127.9.0.5", has_names=False)
    assert not (layout.pod(UID) / "hosts").exists()
    layout.make_pod(setup(), "127.9.0.5")  # again, under a runtime with views
    assert "127.9.0.5\tweb\n" in (layout.pod(UID) / "hosts").read_text()


def test_file_is_replaced_whatever_an_earlier_try_left(layout: Layout) -> None:
    layout.make_pod(setup(), "127.9.0.5")
    place = layout.pod(UID)
    (place / "secret").write_text("mine")
    (place / "a.tmp").symlink_to(place / "secret")
    pod_directory.write_atomically(place / "a", b"new", 0o664)
    assert (place / "a").read_bytes() == b"new"
    assert (place / "a").stat().st_mode & 0o777 == 0o664
    assert (place / "secret").read_text() == "mine"
    assert not (place / "a.tmp").is_symlink()


@pytest.mark.parametrize("name", ["hosts", "resolv.conf"])
def test_names_are_written_nowhere_else(layout: Layout, name: str) -> None:
    layout.make_pod(setup(), "127.9.0.5")
    secret = layout.root / "secret"
    secret.write_text("mine")
    place = layout.pod(UID) / name
    for is_link in (True, False):
        place.unlink()
        place.symlink_to(secret) if is_link else os.mkfifo(place)
        layout.write_name_files(UID, NameFiles("a\n", "a\n"))
        assert place.read_text() == "a\n"
    assert secret.read_text() == "mine"
