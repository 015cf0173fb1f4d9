"""Text of others cannot command the terminal, and documents stay exact."""

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, strategies as st
from tests.support.controller_world import world
from tests.unit.cli.sessions import session

import grange.cli
from grange.api.kinds import CONFIGMAP
from grange.api.meta import Document
from grange.base import controls
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import progress, readiness, terminal
from grange.cli.printers import documents, table

ROOM = Path(grange.cli.__file__).parent
TITLE = "\x1b]0;owned\x07"
HOSTILE = st.text(st.characters(codec="utf-8") | st.sampled_from("\x1b\x07\r\x7f\x80\x85\x9b\n\t"))


def commands_in(text: str) -> list[str]:
    """Its control characters and marks of direction, but line breaks and tabs."""
    marks = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    return [
        c for c in text if (ord(c) < 32 or 127 <= ord(c) < 160 or c in marks) and c not in "\n\t"
    ]


@given(text=HOSTILE)
def test_control_characters_are_removed_and_plain_text_kept(text: str) -> None:
    shown = controls.escape(text)
    assert not commands_in(shown)
    assert not commands_in(terminal.cell(text))
    assert not set("\n\t") & set(terminal.cell(text))
    assert controls.escape(shown) == shown
    if not commands_in(text):
        assert shown == text


def test_marks_of_direction_are_shown_as_escapes() -> None:
    """They reorder what follows on the line, file names and commands among it."""
    assert controls.escape("a\u202egpj.exe\u2069 \u00e9") == "a\\u202egpj.exe\\u2069 \u00e9"


def test_control_characters_are_shown_as_escapes() -> None:
    assert controls.escape("a\x1b[2Jb\x9bc\r\n\td\x7f") == "a\\x1b[2Jb\\x9bc\\r\n\td\\x7f"
    assert terminal.cell("a\nb\tc") == "a\\nb\\tc"


@given(text=HOSTILE)
def test_json_and_yaml_are_exact_and_hold_no_control_characters(text: str) -> None:
    document: Document = {"data": {"key": text, "list": [text]}}
    for output, parse in (("json", msgspec.json.decode), ("yaml", yaml.safe_load)):
        shown = documents.render(output, [(CONFIGMAP, document)], single=True)
        assert not commands_in(shown)
        assert parse(shown) == document


def test_tables_hold_one_line_for_each_row() -> None:
    lines = table.render([["NAME", "MESSAGE"], ["a\nb", f"{TITLE}text"]])
    assert lines == ["NAME   MESSAGE", "a\\nb   \\x1b]0;owned\\x07text"]


def test_document_is_exact_where_there_is_no_terminal() -> None:
    text = f"{TITLE}\x1b[31mred\r\n"

    @click.command()
    def verb() -> None:
        terminal.write(text)
        terminal.echo(text)

    assert CliRunner().invoke(verb).stdout_bytes == (
        text.encode() + b"\\x1b]0;owned\\x07\\x1b[31mred\\r\n\n"
    )


def test_errors_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.show(click.ClickException(f"pod {TITLE}"))
    assert capsys.readouterr().err == "Error: pod \\x1b]0;owned\\x07\n"


async def test_board_shows_one_line_without_commands(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        rows = progress.Progress(session(there).env)
        rows.add("grc/web")
        rows.update("grc/web", readiness.WaitState(done=False, text=f"{TITLE}a\nb"))
        assert rows.rows["grc/web"].state.text == "\\x1b]0;owned\\x07a\\nb"
        assert len(capsys.readouterr().err.splitlines()) == 1


async def test_state_that_reads_the_same_is_printed_once(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        rows = progress.Progress(session(there).env)
        rows.add("pod/a")
        for again_s in (2.0, 1.9, None):
            state = readiness.WaitState(done=False, text="ready, for less", again_s=again_s)
            rows.update("pod/a", state)
        rows.update("pod/a", readiness.WaitState(done=True, text="ready, for less"))
        assert len(capsys.readouterr().err.splitlines()) == 2


def calls(tree: ast.AST) -> Iterator[str]:
    """The names of everything that is called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


@pytest.mark.parametrize(
    "path", sorted(ROOM.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOM))
)
def test_verbs_print_in_one_place(path: Path) -> None:
    """Logs are bytes as programs wrote them, as with kubectl; rich draws rows that are escaped."""
    found = set(calls(ast.parse(path.read_text())))
    raw = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stdout.buffer.write"}
    allowed = {"terminal.py": {"click.echo", "sys.stdout.buffer.write"}}
    assert found & raw <= allowed.get(path.name, set())
