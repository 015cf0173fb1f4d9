"""The data directory is its owner's alone, and remembers how many nodes there were."""

import io
import os
import signal
import sys
from pathlib import Path

import click
import pytest

from grange.app import pki, process
from grange.app.daemon import command_line, default_interrupt, rotate
from grange.app.datadir import (
    REMEMBERED,
    DataDirectoryUnusable,
    make_directory,
    remember_nodes,
    remembered_nodes,
)
from grange.app.down import meant
from grange.app.locations import default_data_dir
from grange.app.settings import Settings, SettingsError
from grange.app.up import chosen_nodes, merged_line, next_steps
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.environment import Environment
from grange.client import kubeconfig_contexts


@pytest.fixture(autouse=True)
def private(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)


def test_new_directory_is_private(tmp_path: Path) -> None:
    made = tmp_path / "a" / "b"
    make_directory(made)
    make_directory(made)
    assert made.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_directory_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    made = tmp_path / "data"
    made.mkdir()
    made.chmod(mode)
    with pytest.raises(DataDirectoryUnusable, match=r"data can be written by others; run chmod"):
        make_directory(made)


def test_directory_below_one_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(DataDirectoryUnusable, match=r"shared, which everybody can write"):
        make_directory(shared / "data")
    (tmp_path / "link").symlink_to(shared / "data")
    with pytest.raises(DataDirectoryUnusable, match=r"shared, which everybody can write"):
        make_directory(tmp_path / "link")
    shared.chmod(0o1777)  # with the sticky bit only the owner of an entry can replace it
    make_directory(shared / "data")


def test_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    made = Path("/usr")  # root's, which is another user unless we are root
    if os.geteuid() == 0:
        made = tmp_path / "data"
        made.mkdir(mode=0o700)
        os.chown(made, 12345, -1)
    with pytest.raises(DataDirectoryUnusable, match=r"belongs to another user \(uid \d+\)"):
        make_directory(made)


def test_unwritable_record_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / process.FILE).mkdir()
    with pytest.raises(DataDirectoryUnusable, match=r"cannot write .*up\.json: Is a directory"):
        process.record(tmp_path, "https://127.0.0.1:1")
    with pytest.raises(DataDirectoryUnusable, match=r"cannot read .*up\.json: Is a directory"):
        process.find(tmp_path)
    process.forget(tmp_path)


def test_number_of_nodes_is_remembered(tmp_path: Path) -> None:
    assert remembered_nodes(tmp_path) is None
    assert chosen_nodes(tmp_path, None, remove=False) == 1
    assert chosen_nodes(tmp_path, 0, remove=False) == 0, "refused later, as no number of nodes"
    remember_nodes(tmp_path, 4)
    assert chosen_nodes(tmp_path, None, remove=False) == 4
    assert chosen_nodes(tmp_path, 6, remove=False) == 6
    with pytest.raises(SettingsError, match=r"--nodes 3: .* has 4 nodes; .* add --remove-nodes"):
        chosen_nodes(tmp_path, 3, remove=False)
    assert chosen_nodes(tmp_path, 3, remove=True) == 3
    (tmp_path / REMEMBERED).write_text("{")
    assert remembered_nodes(tmp_path) is None


def test_logs_of_earlier_starts_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    rotate(log)
    for number in range(6):
        log.write_text(f"start {number}")
        rotate(log)
        log.touch()  # a start that printed nothing
        rotate(log)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {
        "up.log": "",
        "up.log.1": "start 5",
        "up.log.2": "start 4",
        "up.log.3": "start 3",
    }


def test_children_do_not_import_from_the_current_directory(tmp_path: Path) -> None:
    words = command_line(Settings(data_dir=tmp_path, no_context=True, remove_nodes=True))
    assert words[1:4] == ["-P", "-m", "grange"]
    assert "--remove-nodes" in words
    assert pki.certificates_command(tmp_path, ("localhost",))[1:3] == ["-P", "-m"]


def test_children_can_be_interrupted_where_we_ignore_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with default_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_down_means_what_the_current_context_names(tmp_path: Path, clock: Clock) -> None:
    config, home = tmp_path / "config", tmp_path / "demo"
    env = Environment(
        clock=clock,
        rng=Stream(1),
        log=Logger("test"),
        kubeconfig=(config,),
        interactive=False,
        color=False,
        width=80,
        run=lambda _: None,
    )
    environment = {"HOME": str(tmp_path)}
    default = tmp_path / ".local" / "share" / "grange"
    assert meant(env, environment) == default
    kubeconfig_contexts.merge(config, "demo", "https://g", b"", "t", switch=False, home=str(home))
    assert meant(env, environment) == home
    named = {**environment, "GRANGE_DATA_DIR": str(tmp_path / "other")}
    assert meant(env, named) == tmp_path / "other"
    config.write_text("")
    assert meant(env, environment) == default


@pytest.mark.parametrize("interactive", [False, True])
def test_down_refuses_a_foreign_context_without_terminal(
    tmp_path: Path, clock: Clock, interactive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("current-context: prod\ncontexts: [{name: prod, context: {cluster: prod}}]\n")
    env = Environment(
        clock=clock,
        rng=Stream(1),
        log=Logger("test"),
        kubeconfig=(config,),
        interactive=interactive,
        color=False,
        width=80,
        run=lambda _: None,
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO())  # no terminal
    environment = {"HOME": str(tmp_path)}
    default = tmp_path / ".local" / "share" / "grange"
    with pytest.raises(click.UsageError, match=rf"prod, is not .* --data-dir {default} "):
        meant(env, environment)
    named = {**environment, "GRANGE_DATA_DIR": str(tmp_path / "other")}
    assert meant(env, named) == tmp_path / "other"


@pytest.mark.parametrize(
    ("reach", "default", "named"),
    [("", True, False), ("--context grange", True, True), ("", False, True)],
)
def test_next_steps_name_a_directory_down_would_not_find(
    reach: str, default: bool, named: bool
) -> None:
    line = next_steps(reach, Path("/d"), default=default, terminal=False)
    assert line.endswith("grange down --data-dir /d" if named else "grange down")


def test_context_has_the_name_of_the_directory(tmp_path: Path) -> None:
    assert Settings(data_dir=tmp_path / "demo").context == "demo"
    assert Settings(data_dir=default_data_dir({"HOME": str(tmp_path)})).context == "grange"
    line = merged_line("demo", tmp_path / "config", current=False)
    assert "kubectl config use-context demo" in line
