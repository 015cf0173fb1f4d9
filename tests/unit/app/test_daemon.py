"""Starting in the background, as far as it goes without a process."""

from pathlib import Path

import pytest

from grange.app import process
from grange.app.daemon import AlreadyServed, command_line, start_detached
from grange.app.datadir import DataDirectoryUnusable
from grange.app.settings import Settings
from grange.base.clock import Clock


async def test_a_directory_that_is_served_is_refused_and_its_log_stays(
    tmp_path: Path, clock: Clock
) -> None:
    (tmp_path / "up.log").write_text("what the server prints\n")
    process.record(tmp_path, "https://127.0.0.1:1")
    with pytest.raises(AlreadyServed, match=r"https://127\.0\.0\.1:1.*grange down --data-dir"):
        await start_detached(Settings(data_dir=tmp_path, no_context=True), clock)
    assert (tmp_path / "up.log").read_text() == "what the server prints\n"


async def test_log_that_cannot_be_written_is_one_clear_error(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "up.log").symlink_to(tmp_path / "none" / "up.log")
    with pytest.raises(DataDirectoryUnusable, match=r"cannot write .*up\.log: No such file"):
        await start_detached(Settings(data_dir=tmp_path, no_context=True), clock)


def test_address_with_a_possible_secret_is_not_an_argument(tmp_path: Path) -> None:
    """Anybody can read the words of a process; its environment is its owner's."""
    settings = Settings(data_dir=tmp_path, alert_webhook="https://host/secret")
    assert "secret" not in " ".join(command_line(settings))
    assert "secret" not in repr(settings)
