"""The command line's page names every verb, option of ``up`` and exit code."""

from pathlib import Path

import click
import pytest

from grange.app import main
from grange.app.settings import ROLES
from grange.app.up import command as up
from grange.cli.main import USAGE_ERROR, VERBS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text()


@pytest.mark.parametrize("verb", sorted({**VERBS, **main.VERBS}))
def test_every_verb_is_on_the_page(verb: str) -> None:
    assert f"`grange {verb}" in PAGE


def test_every_option_of_up_is_on_the_page() -> None:
    options = [item for item in up.params if isinstance(item, click.Option)]
    assert len(options) > 5
    for option in options:
        assert option.opts[0] in PAGE, option.opts
    for role in ROLES:
        assert role in PAGE


def test_exit_codes_are_on_the_page() -> None:
    for code in (0, 1, USAGE_ERROR, main.INTERRUPTED):
        assert f"| {code} |" in PAGE
