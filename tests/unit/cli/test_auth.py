"""``grange auth``: what is asked, and how rules are shown."""

import click
import pytest
from click.testing import CliRunner

from grange.cli.verbs import auth


@pytest.mark.parametrize(
    ("what", "found"),
    [
        (("pods",), ("pods", "")),
        (("pod", "web"), ("pod", "web")),
        (("deploy/web",), ("deploy", "web")),
        (("/metrics",), ("/metrics", "")),
        (("*",), ("*", "")),
    ],
)
def test_question_is_about_a_kind_an_object_or_a_path(
    what: tuple[str, ...], found: tuple[str, str]
) -> None:
    assert auth.wanted(what) == found


@pytest.mark.parametrize("what", [(), ("pod", "a", "b"), ("pods,nodes",), ("pod/a", "pod/b")])
def test_one_question_at_a_time(what: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="write"):
        auth.wanted(what)


@pytest.mark.parametrize(
    ("words", "reported"),
    [
        ([], "or --list alone"),
        (["list", "pods", "--list"], "or --list alone"),
        (["--list", "-A"], "choose it with -n"),
        (["list"], "no object"),
    ],
)
def test_command_line_that_asks_nothing_is_refused(words: list[str], reported: str) -> None:
    outcome = CliRunner().invoke(auth.command, ["can-i", *words], obj=object())
    assert outcome.exit_code == 2
    assert reported in outcome.output


def test_rules_are_a_table_with_objects_before_paths() -> None:
    status = {
        "resourceRules": [
            {"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods"]},
            {
                "verbs": ["use"],
                "apiGroups": [""],
                "resources": ["secrets"],
                "resourceNames": ["a", "b"],
            },
        ],
        "nonResourceRules": 2 * [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
    }
    assert auth.rows(status)[1:] == [
        ["pods", "", "", "get,list"],
        ["pods.apps", "", "", "get,list"],
        ["secrets", "", "a,b", "use"],
        ["", "/healthz", "", "get"],
    ]
