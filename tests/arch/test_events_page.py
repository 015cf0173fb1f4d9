"""The reference of events names every reason that the source records, and no other."""

import ast
import re
from functools import cache

from tests.support.source_tree import ROOT, nodes, sources

PAGE = ROOT / "docs" / "reference" / "events.md"


def documented() -> set[str]:
    table = PAGE.read_text().partition("## Events")[2].partition("## Conditions")[0]
    first = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    return {name for cell in first for name in re.findall(r"`(\w+)`", cell)}


@cache
def recorded() -> set[str]:
    """The members of enums called …Reason, and the literal reasons of calls to ``event``."""
    found = set()
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Reason"):
                values = [item.value for item in node.body if isinstance(item, ast.Assign)]
                found |= {value.value for value in values if isinstance(value, ast.Constant)}
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "event":
                reason = node.args[2] if len(node.args) > 2 else None
                if isinstance(reason, ast.Constant):
                    found.add(reason.value)
    return {str(reason) for reason in found}


def test_every_reason_of_an_event_is_documented() -> None:
    assert sorted(recorded() - documented()) == []
    assert sorted(documented() - recorded()) == []
