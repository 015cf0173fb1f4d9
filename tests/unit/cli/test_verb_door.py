"""A verb is one file and one line of a table: an example is built, used and removed."""

import re
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from grange.cli.command import Section, Verb
from grange.cli.main import group

MODULE = "example_greet"
FILE = '''
"""``grange greet``: greet a user."""

import click

from grange.cli import options, terminal
from grange.cli.command import Command
from grange.cli.printers import documents


@click.command(cls=Command, examples=("grange greet Ada", "grange greet Ada -o json"))
@click.argument("name")
@options.output(documents.REPORT)
def command(name: str, output: str) -> None:
    """Greet NAME."""
    if output:
        terminal.write(documents.report(output, {"greeted": name}))
    else:
        terminal.echo(f"Hello, {name}.")
'''


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> click.Command:
    (tmp_path / f"{MODULE}.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    return group({"greet": Verb(Section.INSPECT, MODULE, "Greet a user.")}, "0")


def test_new_verb_is_one_file_and_one_line(program: click.Command) -> None:
    """What docs/explanation/architecture.md promises for a verb."""
    run = CliRunner().invoke
    shown = run(program, ["--help"], prog_name="grange").output
    assert re.search(r"\n  greet +Greet a user\.\n", shown.partition("Inspect:")[2])
    assert "Examples:\n  grange greet Ada\n" in run(program, ["greet", "--help"]).output
    assert run(program, ["greet", "Ada"]).output == "Hello, Ada.\n"
    assert run(program, ["greet", "Ada", "-o", "jsonpath={.greeted}"]).output == "Ada"
    assert "'greet'" in run(program, ["greett"]).output
    completions = ShellComplete(program, {}, "grange", "_GRANGE_COMPLETE").get_completions
    assert [item.value for item in completions([], "gr")] == ["greet"]


def test_verbs_are_not_imported_for_the_list(program: click.Command) -> None:
    assert CliRunner().invoke(program, ["--help"]).exit_code == 0
    assert MODULE not in sys.modules
