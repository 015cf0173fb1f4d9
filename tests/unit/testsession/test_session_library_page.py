"""The program of docs/tutorials/session-library.md; a page test runs its commands."""

import ast
from importlib import util
from pathlib import Path
from types import ModuleType

import grange.sessions
from grange.controllers.testsession.library.session_needs import check_session, needed_machines

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "session-library" / "nightly.py"
PAGE = ROOT / "docs" / "tutorials" / "session-library.md"


def nightly() -> ModuleType:
    spec = util.spec_from_file_location("nightly_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_shows_the_example() -> None:
    assert f'```python title="nightly.py"\n{EXAMPLE.read_text()}```\n' in PAGE.read_text()


def test_example_imports_public_names_alone() -> None:
    tree = ast.parse(EXAMPLE.read_text())
    found = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert found == {"grange", "grange.sessions"}


def test_sessions_of_the_example_are_valid() -> None:
    example = nightly()
    for servers in (1, 2, 3):
        session = example.session(servers)
        check_session(session)
        assert needed_machines(session, {}) == {"drivers": 1, "workers": servers}


def test_names_of_the_library_are_its_public_names() -> None:
    assert sorted(grange.sessions.__all__) == grange.sessions.__all__
    assert grange.sessions.Controller is grange.sessions.SessionController
    for name in grange.sessions.__all__:
        assert getattr(grange.sessions, name).__doc__
