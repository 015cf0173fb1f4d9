"""The reference of events names every reason and condition that the source reports."""

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.source_tree import ROOT, SRC, nodes, sources

PAGE = ROOT / "docs" / "reference" / "events.md"
SETTERS = {"Condition": (0, "type"), "set_status": (1, "kind")}
"""Calls that make a condition: where its type is among the arguments."""


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


def conditions(path: Path) -> Iterator[str]:
    """The types of conditions that a module makes, where they are constants."""
    module = f"grange.{path.relative_to(SRC).with_suffix('').as_posix().replace('/', '.')}"
    for node in nodes(path):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if node.id.endswith("_CONDITION"):
                found = getattr(importlib.import_module(module), node.id, None)
                if isinstance(found, str):
                    yield found
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called not in SETTERS:
                continue
            place, keyword = SETTERS[called]
            given = {item.arg: item.value for item in node.keywords}.get(keyword)
            match given or (node.args[place] if len(node.args) > place else None):
                case ast.Constant(value=str(value)):
                    yield value
                case ast.Name(id=name):
                    found = getattr(importlib.import_module(module), name, None)
                    if isinstance(found, str):
                        yield found
                case _:
                    pass


def test_every_type_of_a_condition_is_documented() -> None:
    page = PAGE.read_text().partition("## Conditions")[2]
    types = {name for path in sources() for name in conditions(path)}
    assert len(types) > 20
    assert sorted(name for name in types if f"`{name}`" not in page) == []
