"""One declaration of a flag gives option, setting, ``--detach`` and the reference page."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from grange.app import flags
from grange.app.daemon import command_line
from grange.app.node_pools import PoolSize
from grange.app.settings import ListenAddress, Settings
from grange.app.up import command as up


@dataclass(frozen=True, slots=True)
class Extended(Settings):
    """The settings with one flag more."""

    greeting: str = field(
        default="hello",
        metadata=flags.flag("--greeting", "Printed at the start.", "Not logged.", metavar="TEXT"),
    )


def parsed(source: type[Settings], *words: str) -> Settings:
    """The settings that a command makes of the words."""
    made: list[Settings] = []

    @click.command()
    @flags.options(source)
    def command(**options: Any) -> None:
        made.append(source(**{"data_dir": Path("/d"), **flags.given(source, options)}))

    outcome = CliRunner().invoke(command, words)
    assert outcome.exit_code == 0, outcome.output
    return made[0]


def test_new_flag_is_one_declaration() -> None:
    """What docs/explanation/architecture.md promises for a flag of ``grange up``."""
    settings = parsed(Extended, "--greeting", "good day")
    assert settings == Extended(Path("/d"), greeting="good day")
    assert command_line(settings)[-2:] == ["--greeting", "good day"]
    assert parsed(Extended) == Extended(Path("/d"))

    command = flags.options(Extended)(click.command("up")(lambda: None))
    assert "--greeting TEXT" in CliRunner().invoke(command, ["--help"]).output
    row = "| `--greeting TEXT` | `hello` | Printed at the start. Not logged. |"
    assert row in list(flags.rows(command, Extended))
    assert "--greeting" not in {name for option in up.params for name in option.opts}


@pytest.mark.parametrize(
    "settings",
    [
        Settings(Path("/d")),
        Settings(
            Path("/with space"),
            listen=ListenAddress("::1", 0),
            tls_names=("a.example", "b.example"),
            insecure_listen=True,
            nodes=3,
            pools=(PoolSize("drivers", 1), PoolSize("gone", 0)),
            remove_nodes=True,
            disable=frozenset({"agent", "scheduler"}),
            scheduler_config=Path("/c.yaml"),
            no_context=True,
            log_level="debug",
            log_json=True,
        ),
    ],
    ids=["defaults", "everything"],
)
def test_child_gets_the_same_settings(settings: Settings) -> None:
    assert parsed(Settings, *flags.words(settings)) == settings


def test_secret_is_passed_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(Path("/d"), alert_webhook="https://host/secret")
    assert "secret" not in " ".join(flags.words(settings))
    assert "secret" not in repr(settings)
    for name, value in flags.variables(settings).items():
        monkeypatch.setenv(name, value)
    assert parsed(Settings, *flags.words(settings)) == settings


def test_paths_are_those_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = parsed(Settings, "--data-dir", "data", "--scheduler-config", "c.yaml")
    assert (found.data_dir, found.scheduler_config) == (tmp_path / "data", tmp_path / "c.yaml")


def test_partial_options_have_the_defaults_of_the_fields() -> None:
    found: dict[str, Any] = {}

    @click.command()
    @flags.options(Settings, "log_level", "log_json")
    def command(**options: Any) -> None:
        found.update(options)

    assert CliRunner().invoke(command, []).exit_code == 0
    assert found == {"log_level": "warning", "log_json": False}


def test_no_switch_is_another_name_of_no_context() -> None:
    assert parsed(Settings, "--no-switch") == parsed(Settings, "--no-context")
    assert parsed(Settings, "--no-switch").no_context


def test_roles_are_completed_after_a_comma() -> None:
    option = next(item for item in up.params if item.name == "disable")
    found = option.type.shell_complete(click.Context(up), option, "agent,s")
    assert [item.value for item in found] == ["agent,scheduler"]
