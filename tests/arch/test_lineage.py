"""Every name that the designs before us export has its row in tests/arch/lineage.md."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.support.source_tree import ROOT, listed

PAGE = ROOT / "tests" / "arch" / "lineage.md"
NAMES = Path(__file__).parent / "lineage_names.txt"

ROW = re.compile(r"^\| `([^`]+)` \| (.+) \| (.+) \|$")
FILE = re.compile(r"`((?:src|tests)/[^`]+)`")
CHECKS = {
    "jobs": ("check_", ["gangjob", "reconcile", "api"], range(1, 75)),
    "machines": ("f", ["machines", "app"], range(1, 81)),
}
"""Numbered checks of those designs: what precedes a number in the name of its test, where, and which."""

SESSION_CHECKS = {
    "c": 11,  # of the controller, spelled check_N, too
    "e": 6,  # executor
    "q": 6,  # queue
    "r": 11,  # reservations
    "p": 3,  # pools
    "w": 7,  # watcher
    "t": 2,  # types
    "s": 6,  # store
    "o": 8,  # operations
    "v": 2,  # validation
}
"""The checks of test sessions: their letters, and how many there are of each."""

SESSION_FILES = ("tests/unit/testsession/test_*.py", "tests/unit/placement/test_machine_pools.py")


def rows() -> list[tuple[str, str, str, str]]:
    area, found = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            area = line.removeprefix("## ")
        elif match := ROW.match(line):
            name, where, shown_by = match.groups()
            found.append((area, name, where, shown_by))
    return found


def test_every_exported_name_has_exactly_one_row() -> None:
    lines = NAMES.read_text().splitlines()
    wanted = [(area, name) for area, _, name in (line.partition(" ") for line in lines)]
    there = Counter((area, name) for area, name, _, _ in rows())
    missing = [name for name in wanted if there[name] != 1]
    assert not missing, listed(sorted(missing))
    assert sorted(set(there) - set(wanted)) == []


def test_every_row_leads_somewhere() -> None:
    lost = [f"{area}.{name}" for area, name, where, _ in rows() if not FILE.search(where)]
    assert not lost, listed(lost)


def test_files_that_rows_name_exist() -> None:
    missing = {
        path
        for _, _, where, shown_by in rows()
        for path in FILE.findall(where + shown_by)
        if not (ROOT / path).is_file()
    }
    assert not missing, listed(sorted(missing))


def test_names_that_rows_give_are_defined_in_their_files() -> None:
    undefined = []
    for area, name, where, _ in rows():
        for symbol, path in re.findall(r"`([A-Za-z_.]+)` in `(src/[^`]+)`", where):
            text = (ROOT / path).read_text()
            if any(not re.search(rf"\b{part}\b", text) for part in symbol.split(".")):
                undefined.append(f"{area}.{name}: {symbol} in {path}")
    assert not undefined, listed(undefined)


def test_what_is_here_is_shown_by_a_test() -> None:
    unshown = [
        f"{area}.{name}"
        for area, name, where, shown_by in rows()
        if FILE.search(where) and not FILE.search(shown_by)
    ]
    assert not unshown, listed(unshown)


@pytest.mark.parametrize("area", CHECKS)
def test_every_numbered_check_is_a_test(area: str) -> None:
    prefix, folders, numbers = CHECKS[area]
    names = re.compile(rf"^(?:async )?def test((?:_{prefix}\d+)+)_", re.MULTILINE)
    files = [path for name in folders for path in (ROOT / "tests/unit" / name).rglob("test_*.py")]
    found = {
        int(number)
        for path in files
        for group in names.findall(path.read_text())
        for number in re.findall(r"\d+", group)
    }
    assert sorted(set(numbers) - found) == []


def test_every_numbered_check_of_sessions_is_a_test() -> None:
    one = rf"(?:check_|[{''.join(SESSION_CHECKS)}])\d+"
    names = re.compile(rf"^(?:async )?def test((?:_{one})+)_", re.MULTILINE)
    files = [path for pattern in SESSION_FILES for path in ROOT.glob(pattern)]
    found = {
        ("c" if letter == "check_" else letter, int(number))
        for path in files
        for group in names.findall(path.read_text())
        for letter, number in re.findall(r"(check_|[a-z])(\d+)", group)
    }
    wanted = {(letter, n) for letter, most in SESSION_CHECKS.items() for n in range(1, most + 1)}
    assert sorted(wanted - found) == []
