"""Every item of tests/arch/session_items.md is shown by tests that exist."""

import re

from tests.support.source_tree import ROOT, listed

PAGE = ROOT / "tests" / "arch" / "session_items.md"
ROW = re.compile(r"^\| (.+) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`(tests/[^`:]+)::(\w+)`")
HEADS = {("item", "shown by"), ("---", "---")}


def rows() -> list[tuple[str, str]]:
    text = PAGE.read_text().replace("|---|---|", "| --- | --- |")
    return [row for row in ROW.findall(text) if row not in HEADS]


def test_every_item_is_shown_by_a_test() -> None:
    unshown = [item for item, shown_by in rows() if not TEST.search(shown_by)]
    assert rows()
    assert not unshown, listed(unshown)


def test_tests_that_items_name_exist() -> None:
    missing = []
    for _, shown_by in rows():
        for path, name in TEST.findall(shown_by):
            file = ROOT / path
            text = file.read_text() if file.is_file() else ""
            if not re.search(rf"^(?:(?:async )?def {name}\(|{name} = )", text, re.MULTILINE):
                missing.append(f"{path}::{name}")
    assert not missing, listed(sorted(missing))
