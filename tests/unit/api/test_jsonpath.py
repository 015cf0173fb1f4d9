"""kubectl's JSONPath dialect; the expected outputs are those of kubectl's documentation."""

from typing import Any

import pytest

from grange.api import jsonpath
from grange.api.jsonpath import JsonPathError

DOCUMENT = {
    "kind": "List",
    "items": [
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.1", "labels": {"kubernetes.io/hostname": "one"}},
            "status": {
                "capacity": {"cpu": "4"},
                "addresses": [{"type": "LegacyHostIP", "address": "127.0.0.1"}],
            },
        },
        {
            "kind": "None",
            "metadata": {"name": "127.0.0.2"},
            "status": {
                "capacity": {"cpu": "8"},
                "addresses": [
                    {"type": "LegacyHostIP", "address": "127.0.0.2"},
                    {"type": "another", "address": "127.0.0.3"},
                ],
            },
        },
    ],
    "users": [
        {"name": "myself", "user": {}, "age": 3},
        {"name": "e2e", "user": {"username": "admin", "password": "secret"}, "age": 7},
    ],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("kind is {.kind}", "kind is List"),
        ("{['kind']}", "List"),
        ("{.kind}", "List"),
        (".kind", "List"),
        ("{..name}", "127.0.0.1 127.0.0.2 myself e2e"),
        ("{.items[*].metadata.name}", "127.0.0.1 127.0.0.2"),
        ("{.users[0].name}", "myself"),
        ("{.users[-1].name}", "e2e"),
        ("{.users[0:1].name}", "myself"),
        ('{.users[?(@.name=="e2e")].user.password}', "secret"),
        ("{.users[?(@.age>5)].name}", "e2e"),
        ("{.users[?(@.user.username)].name}", "e2e"),
        ('{.items[*].status.addresses[?(@.type!="LegacyHostIP")].address}', "127.0.0.3"),
        ("{.items[0].metadata.labels.kubernetes\\.io/hostname}", "one"),
        (
            '{range .items[*]}[{.metadata.name}, {.status.capacity.cpu}]{"\\n"}{end}',
            "[127.0.0.1, 4]\n[127.0.0.2, 8]\n",
        ),
        ("{range .nothing[*]}never{end}", ""),
        ("{.nothing.at.all}", ""),
        ("{.users[0].user}", "{}"),
    ],
)
def test_template_gives_what_kubectl_prints(template: str, expected: str) -> None:
    assert jsonpath.evaluate(template, DOCUMENT) == expected


@pytest.mark.parametrize(
    "template", ["{.kind", "{range .items[*]}no end", "{end}", "{.items[?(@.a==)]}", "{.a!b}"]
)
def test_malformed_template_is_refused(template: str) -> None:
    with pytest.raises(JsonPathError, match="jsonpath"):
        jsonpath.evaluate(template, DOCUMENT)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("{.kind}", ["List"]),
        (".items[*].status.capacity.cpu", ["4", "8"]),
        ("kind", ["List"]),
        ("{.absent}", []),
        (" { .kind } ", ["List"]),
    ],
)
def test_expression_selects_values(expression: str, expected: list[Any]) -> None:
    found = jsonpath.select(expression, DOCUMENT)
    assert [item if isinstance(item, str) else str(item) for item in found] == expected


@pytest.mark.parametrize(
    "expression",
    ["{.kind}{.items}", "{range .items[*]}{end}", "{'text'}", "{.kind", "{.a!b}", ".a!b"],
)
def test_selection_takes_one_path(expression: str) -> None:
    with pytest.raises(JsonPathError, match="jsonpath"):
        jsonpath.select(expression, DOCUMENT)
