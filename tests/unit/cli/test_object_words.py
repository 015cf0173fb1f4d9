"""The words that name objects on the command line."""

import click
import pytest

from grange.cli.session import split_names


@pytest.mark.parametrize(
    ("words", "pairs"),
    [
        (["pods"], [("pods", "")]),
        (["pods,nodes"], [("pods", ""), ("nodes", "")]),
        (["pod", "a", "b"], [("pod", "a"), ("pod", "b")]),
        (["pod/a", "grc/b"], [("pod", "a"), ("grc", "b")]),
    ],
)
def test_words_are_kinds_and_names(words: list[str], pairs: list[tuple[str, str]]) -> None:
    assert split_names(words) == pairs


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        (["pod", ""], "a kind or a name is empty"),
        (["pod", "a", ""], "a kind or a name is empty"),
        ([""], "a kind or a name is empty"),
        (["pods,"], "a kind or a name is empty"),
        (["pod/"], "pod/: a part is empty; write KIND/NAME"),
        (["/a"], "/a: a part is empty"),
        (["pod/a", "b"], "mixed forms"),
        (["pods,nodes", "a"], "several kinds with names"),
    ],
)
def test_words_without_a_meaning_are_refused(words: list[str], reported: str) -> None:
    """``grange get pod "$NAME"`` with an unset variable listed all pods."""
    with pytest.raises(click.UsageError, match=reported):
        split_names(words)
