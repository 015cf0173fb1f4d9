"""Names: which are fine, and what is reported of the others."""

from collections.abc import Callable

import pytest

from grange.api import names

CASES: list[tuple[Callable[[str], str | None], list[str], list[str]]] = [
    (
        names.check_dns_label,
        ["a", "a-1", "1a", "a" * 63],
        ["", "A", "-a", "a-", "a.b", "a" * 64, "a\n", "ä"],
    ),
    (names.check_dns_1035_label, ["a", "a-1"], ["1a", "", "a_b", "a" * 64]),
    (
        names.check_dns_subdomain,
        ["a", "a.b", "1.2-3.c", "a" * 253],
        ["", ".", "a..b", "a.-b", "A", "a" * 254],
    ),
    (
        names.check_qualified_name,
        ["a", "A_b.c-d", "example.com/Name", "a" * 63],
        ["", "/a", "example.com/", "Ex.com/a", "a/b/c", "-a", "a" * 64, "a b", "a" * 400],
    ),
    (names.check_label_value, ["", "a", "A_b.c"], ["-a", "a b", "a" * 64, "a/b"]),
    (names.check_port_name, ["http", "a-1", "1a"], ["", "1", "a--b", "-a", "A", "a" * 16]),
    (names.check_env_name, ["A", "a.b-c", "1 2", "x:y"], ["", "a=b", "ä", "a\n"]),
    (names.check_config_key, ["a", "A.b_c-d", ".a"], ["", ".", "..", "..a", "a/b", "a" * 254]),
]


@pytest.mark.parametrize(("check", "good", "bad"), CASES)
def test_names_are_judged(
    check: Callable[[str], str | None], good: list[str], bad: list[str]
) -> None:
    assert [name for name in good if check(name) is not None] == []
    assert [name for name in bad if check(name) is None] == []


def test_messages_show_what_would_be_right() -> None:
    assert names.check_dns_label("A") == (
        "must be a lower-case label: letters a-z, digits and '-', "
        "beginning and ending with a letter or digit"
    )
    assert names.check_dns_label("a" * 64) == "must be no more than 63 characters"
    assert (names.check_qualified_name("A.b/c") or "").startswith(
        "prefix part must be a lower-case"
    )
