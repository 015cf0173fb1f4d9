"""Every help text of the command line, as it is printed, and every example in it."""

import re
import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from grange.app import main
from grange.cli.command import Command, LazyGroup, Section
from grange.cli.main import group

ESCAPES = re.compile(r"\\[a-z]|[\x00-\x09\x0b-\x1f\x7f]")
# Verbs without -o json, and why.
WITHOUT_JSON = {
    "completion": "prints a script",
    "test open": "opens a browser; grange test report -o json prints the record",
    "exec": "prints what the command prints",
    "attach": "prints what the container prints",
    "cp": "prints nothing",
    "agent": "serves until it is stopped",
    "controllers": "serves until it is stopped; --log-json is for its log",
}


def commands(
    command: click.Command, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command of the tree with the words that name it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, (*words, name))


ALL = dict(commands(group(main.VERBS, "0")))
LEAVES = {words: item for words, item in ALL.items() if not isinstance(item, click.Group)}


def resolved(line: str) -> tuple[click.Command, list[str]]:
    """The command that a line of a shell calls, and the rest of its words."""
    words = shlex.split(line)
    assert words.pop(0) == "grange", line
    command = ALL[()]
    while isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words.pop(0))
        assert found is not None, line
        command = found
    return command, words


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_is_plain_text_and_explains_every_option(words: tuple[str, ...]) -> None:
    outcome = CliRunner().invoke(ALL[()], [*words, "--help"], prog_name="grange")
    assert outcome.exit_code == 0, outcome.output
    assert not ESCAPES.search(outcome.output), outcome.output
    assert "``" not in outcome.output
    assert max(map(len, outcome.output.splitlines())) <= 100
    for option in ALL[words].params:
        if isinstance(option, click.Option):
            assert option.help, (words, option.opts)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_help_shows_examples_that_can_be_parsed(words: tuple[str, ...]) -> None:
    command = LEAVES[words]
    assert isinstance(command, Command)
    assert command.examples
    shown = CliRunner().invoke(ALL[()], [*words, "--help"], prog_name="grange").output
    for example in command.examples:
        assert f"  {example}\n" in shown
        line = example.removeprefix('eval "$(').removesuffix(')"')
        called, rest = resolved(re.split(r" [|>] ", line)[0])
        assert called is command, example
        called.make_context(words[-1], rest).close()


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_verb_prints_json(words: tuple[str, ...]) -> None:
    outputs = [item for item in LEAVES[words].params if item.name == "output"]
    if (name := " ".join(words)) in WITHOUT_JSON:
        assert not outputs, f"{name} can be taken off the list"
        return
    assert outputs[0].opts == ["-o", "--output"]
    names = [item.value for item in outputs[0].type.shell_complete(CONTEXT, outputs[0], "js")]
    assert "json" in names


CONTEXT = click.Context(ALL[()])


def test_verbs_are_listed_by_section() -> None:
    shown = CliRunner().invoke(ALL[()], ["--help"], prog_name="grange").output
    heads = [line.removesuffix(":") for line in shown.splitlines() if line.endswith(":")]
    assert heads == ["Options", *Section]
    program = ALL[()]
    assert isinstance(program, LazyGroup)
    for name in program.list_commands(CONTEXT):
        assert f"\n  {name} " in shown


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("aply -f web.yaml", "Did you mean 'apply'?"),
        ("rc pause-transfer web", "'pause-transfers'"),
        ("rc rollout udno web", "Did you mean 'undo'?"),
        ("get pods --selecter a=b", "'--selector'"),
        ("cordon node-1", "Use `kubectl cordon`"),
    ],
)
def test_misspelled_words_are_corrected(words: str, meant: str) -> None:
    outcome = CliRunner().invoke(ALL[()], shlex.split(words), prog_name="grange")
    assert outcome.exit_code == 2
    assert meant in outcome.output


def test_every_verb_is_walked() -> None:
    assert {("up",), ("install",), ("rc", "rollout", "status"), ("farm", "resume")} <= ALL.keys()


def test_replaced_verbs_work_and_are_not_shown() -> None:
    for old, new in (
        ("lock-transfers", "pause-transfers"),
        ("unlock-transfers", "resume-transfers"),
    ):
        assert resolved(f"grange rc {old} web")[0] is resolved(f"grange rc {new} web")[0]
        shown = CliRunner().invoke(ALL[()], ["rc", "--help"]).output
        assert (old not in shown, new in shown) == (True, True)
