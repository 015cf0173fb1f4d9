"""``grange scale``: what it asks the server for."""

import click
import pytest
from click.testing import CliRunner

from grange.api.patch import json_patch
from grange.api.status import Invalid
from grange.cli.verbs import scale


def test_only_the_number_is_changed() -> None:
    before = {"spec": {"replicas": 2}, "status": {"replicas": 1}}
    after = json_patch.apply(before, scale.operations(5, None))
    assert after == {"spec": {"replicas": 5}, "status": {"replicas": 1}}


def test_expected_number_is_tested_in_the_same_write() -> None:
    assert json_patch.apply({"spec": {"replicas": 2}}, scale.operations(0, 2)) == {
        "spec": {"replicas": 0}
    }
    with pytest.raises(Invalid, match="test failed"):
        json_patch.apply({"spec": {"replicas": 3}}, scale.operations(0, 2))


def test_another_number_than_expected_is_reported() -> None:
    scale.refuse_unless(2, {"spec": {"replicas": 2}})
    scale.refuse_unless(0, {"spec": {}})
    with pytest.raises(click.ClickException, match="Expected replicas to be 2, was 3"):
        scale.refuse_unless(2, {"spec": {"replicas": 3}})


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["grc/web"], "--replicas"),
        (["grc/web", "--replicas", "-1"], "--replicas"),
        (["grc/web", "--replicas", "many"], "--replicas"),
        (["grc", "--replicas", "1"], "no name; write KIND NAME"),
        (["--replicas", "1"], "WHAT"),
    ],
)
def test_command_line_that_makes_no_sense_is_refused(words: list[str], reported: str) -> None:
    outcome = CliRunner().invoke(scale.command, words, obj=object())
    assert outcome.exit_code != 0
    assert isinstance(outcome.exception, SystemExit)
    assert reported in outcome.output
