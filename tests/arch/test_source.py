"""What the source tree promises about itself, beyond what linters can be configured for."""

import ast
import re
from pathlib import Path

from tests.support.source_tree import ROOT, SRC, listed, nodes, parsed, sources, text

HARD_LIMIT_LINES = 600
TEST_LIMIT_LINES = 800
TEST_NAME = re.compile(r"test(_[a-z0-9]+){2,}")  # test_<thing>_<behaviour>
TEST_NAME_LIMIT = 60
DEFINED_TEST = re.compile(r"^\s*(?:async )?def (test\w*)\(", re.MULTILINE)
OPENING_DOCSTRING = re.compile(r'(#!.*\n)?r?"""\S')
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "misc", "consts", "core"}
START = re.compile(r"^Start(?: reading)? at:(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
MODULE_NAME = re.compile(r"``([a-z_0-9.]+)``")
HEADINGS = ("Owns:", "Never:", "Flow:", "Concurrency:", "Start reading at:")
MAY_START_TASKS = (
    "base/tasks.py",
    "sim/loop.py",
    "sim/runner.py",
    "testing/",
    "store/sqlite.py",  # its writer lives between open() and close(), which are no block
)


def inside(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def all_python() -> list[Path]:
    folders = ("src", "tests", "bench", "scripts", "examples")
    return [path for folder in folders for path in sources(ROOT / folder)]


def test_modules_stay_small_enough_to_hold_in_mind() -> None:
    too_long = {
        inside(path): lines
        for path in all_python()
        if (lines := len(text(path).splitlines()))
        > (HARD_LIMIT_LINES if path.is_relative_to(SRC) else TEST_LIMIT_LINES)
    }
    assert not too_long, listed(too_long)


def test_modules_are_named_after_what_they_hold() -> None:
    named = [inside(p) for p in sources() if FORBIDDEN_NAMES & {p.stem, *p.relative_to(SRC).parts}]
    assert not named, listed(named)


def is_test_name(name: str) -> bool:
    return len(name) <= TEST_NAME_LIMIT and TEST_NAME.fullmatch(name) is not None


def test_names_of_tests_are_short_identifiers() -> None:
    wrong = [
        f"{inside(path)}:{node.lineno}: {node.name} ({len(node.name)} characters)"
        for path in sources(ROOT / "tests")
        # Parsing all the tests costs seconds; the text also finds what stands in a string.
        if not all(is_test_name(name) for name in DEFINED_TEST.findall(text(path)))
        for node in nodes(path)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and node.name.startswith("test")
        and not is_test_name(node.name)
    ]
    assert not wrong, listed(wrong)


def test_every_module_opens_with_what_it_owns() -> None:
    silent = [inside(p) for p in all_python() if not OPENING_DOCSTRING.match(text(p))]
    assert not silent, listed(silent)


def test_every_room_states_what_it_owns_and_where_to_start() -> None:
    missing = {}
    for folder in sorted(path.parent for path in SRC.glob("*/__init__.py")):
        tree = parsed(folder / "__init__.py")
        text = ast.get_docstring(tree) or ""
        lacking = [
            heading for heading in HEADINGS if not re.search(f"^{heading}", text, re.MULTILINE)
        ]
        if lacking:
            missing[folder.name] = lacking
    assert not missing, listed(missing)


def test_modules_to_start_reading_at_exist() -> None:
    """Where a package exports what its users start at, that name may stand for its module."""
    gone = []
    for path in SRC.rglob("__init__.py"):
        exported = {alias.name for node in nodes(path) for alias in getattr(node, "names", ())}
        for start in START.findall(ast.get_docstring(parsed(path)) or ""):
            for name in MODULE_NAME.findall(start):
                beneath = Path(*name.split("."))
                places = [folder / beneath for folder in (path.parent, path.parents[1], SRC)]
                if name not in exported and not any(
                    place.is_dir() or place.with_suffix(".py").is_file() for place in places
                ):
                    gone.append(f"{inside(path)}: {name}")
    assert not gone, listed(gone)


def test_room_packages_hold_no_code() -> None:
    """What a package exports must be found in a module that is named after it."""
    loud = []
    for path in SRC.glob("*/__init__.py"):
        body = parsed(path).body[1:]
        if any(
            isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
            and node.name != "__getattr__"  # imports on use
            and "Protocol" not in [ast.unparse(base) for base in getattr(node, "bases", [])]
            for node in body
        ):
            loud.append(inside(path))
    assert not loud, listed(loud)


def test_tasks_are_started_in_nurseries_only() -> None:
    started = []
    for path in sources():
        if path.relative_to(SRC).as_posix().startswith(MAY_START_TASKS):
            continue
        started += [
            f"{inside(path)}:{node.lineno}"
            for node in nodes(path)
            if isinstance(node, (ast.Attribute, ast.Name))
            and (node.attr if isinstance(node, ast.Attribute) else node.id)
            in {"create_task", "ensure_future"}
        ]
    assert not started, listed(started)


def test_nothing_in_the_product_is_there_for_tests() -> None:
    pattern = re.compile(r"\b(for|only in|used by) (the )?tests\b|\btest[- ]only\b|\bin tests\b")
    found = [
        f"{inside(path)}:{number}: {line.strip()}"
        for path in sources()
        if path.relative_to(SRC).parts[0] not in {"sim", "testing"}
        for number, line in enumerate(text(path).splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, listed(found)


def test_every_waiver_gives_its_reason_on_its_line() -> None:
    bare = re.compile(r"#\s*noqa\s*(:\s*[A-Z]+[0-9]+(\s*,\s*[A-Z]+[0-9]+)*)?\s*$")
    blanket = re.compile(r"#\s*noqa(?!\s*:)|#\s*type:\s*ignore(?!\[)")
    untold = re.compile(r"#\s*type:\s*ignore\[[^\]]*\]\s*$")
    found = [
        f"{inside(path)}:{number}: {line.strip()}"
        for path in all_python()
        if path != Path(__file__)
        for number, line in enumerate(text(path).splitlines(), 1)
        if bare.search(line) or blanket.search(line) or untold.search(line)
    ]
    assert not found, listed(found)


def test_no_dependency_hides_behind_type_checking() -> None:
    missing = [inside(p) for p in sources() if "TYPE_CHECKING" in text(p)]
    assert not missing, listed(missing)


def test_cancellation_is_never_caught_without_being_raised_again() -> None:
    """``except CancelledError`` must raise, or hand the error to code that does."""
    swallowed = []
    for path in sources():
        for node in nodes(path):
            if not isinstance(node, ast.ExceptHandler) or node.type is None:
                continue
            if "CancelledError" not in ast.unparse(node.type):
                continue
            inner = [child for statement in node.body for child in ast.walk(statement)]
            keeps = node.name is not None and any(
                isinstance(child, ast.Name) and child.id == node.name for child in inner
            )
            if not keeps and not any(isinstance(child, ast.Raise) for child in inner):
                swallowed.append(f"{inside(path)}:{node.lineno}")
    assert not swallowed, listed(swallowed)


def test_engine_is_imported_by_its_package_only() -> None:
    engine = SRC / "scheduler" / "engine"
    wrong = [
        inside(path)
        for path in sources()
        if not path.is_relative_to(engine) and re.search(r"grange\.scheduler\.engine\.", text(path))
    ]
    assert not wrong, listed(wrong)
