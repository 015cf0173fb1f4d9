"""Every help text of the command line, as it is printed."""

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from grange.app import main
from grange.cli.main import group

ESCAPES = re.compile(r"\\[a-z]|[\x00-\x09\x0b-\x1f\x7f]")


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


def test_every_verb_is_walked() -> None:
    assert {("up",), ("install",), ("rc", "rollout", "status"), ("farm", "resume")} <= ALL.keys()
