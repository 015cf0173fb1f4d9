"""The command line's pages name every verb, option of ``up`` and exit code."""

import re
from pathlib import Path

import click
import pytest

from grange.app import main
from grange.app.controllers import command as controllers
from grange.app.settings import ROLES
from grange.app.up import command as up
from grange.cli.command import Section
from grange.cli.main import USAGE_ERROR, VERBS
from grange.cli.verbs.farm import command as farm
from grange.cli.verbs.rc.group import VERBS as RC_VERBS
from grange.cli.verbs.rc.rollout import command as rollout

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "cli.md").read_text()
OPTIONS = (REFERENCE / "configuration.md").read_text() + (REFERENCE / "commands.md").read_text()


@pytest.mark.parametrize("verb", sorted({**VERBS, **main.VERBS}))
def test_every_verb_is_on_the_page(verb: str) -> None:
    assert f"`grange {verb}" in PAGE


@pytest.mark.parametrize("section", Section)
def test_page_lists_verbs_by_section(section: Section) -> None:
    table = PAGE.partition(f"| {section.lower()} | |\n")[2].partition("\n\n")[0]
    shown = dict.fromkeys(re.findall(r"^\| `grange ([a-z-]+)", table, re.MULTILINE))
    verbs = {**main.VERBS, **VERBS}
    assert list(shown) == [name for name, verb in verbs.items() if verb.section is section]


def test_every_option_of_up_is_on_the_page() -> None:
    options = [item for item in up.params if isinstance(item, click.Option)]
    assert len(options) > 5
    for option in options:
        assert option.opts[0] in OPTIONS, option.opts
    for role in ROLES:
        assert role in OPTIONS


@pytest.mark.parametrize("verb", sorted(RC_VERBS))
def test_every_verb_of_rc_is_on_the_page(verb: str) -> None:
    assert f"`grange rc {verb}" in PAGE


@pytest.mark.parametrize("command", [controllers, rollout, farm])
def test_every_option_and_part_of_some_verbs_is_on_the_page(command: click.Command) -> None:
    for option in command.params:
        if isinstance(option, click.Option):
            assert option.opts[0] in OPTIONS or option.secondary_opts[0] in OPTIONS, option.opts
    for part in command.commands if isinstance(command, click.Group) else ():
        assert f"{command.name or ''} {part}" in PAGE, part


def test_exit_codes_are_on_the_page() -> None:
    for code in (0, 1, USAGE_ERROR, main.INTERRUPTED):
        assert f"| {code} |" in PAGE
