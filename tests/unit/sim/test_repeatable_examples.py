"""Examples of the profile ``ci``: they do not depend on the modules that were loaded before, and are fewer."""

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from tests.support.repeatable_examples import take_fewer_examples, without_local_constants

CONSTANT = 7_000_000_000_000_001


def drawn() -> list[int]:
    """Integers, many enough for some of Hypothesis' constants."""
    found: list[int] = []

    @settings(max_examples=400, derandomize=True, deadline=None, database=None)
    @given(st.lists(st.integers(), max_size=20))
    def draw(numbers: list[int]) -> None:
        found.extend(numbers)

    draw()
    return found


def test_examples_ignore_constants_of_loaded_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loaded_late.py").write_text(f"VALUES = [{CONSTANT}]\n")
    spec = importlib.util.spec_from_file_location("loaded_late", tmp_path / "loaded_late.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    with without_local_constants():
        before = drawn()
        monkeypatch.setitem(sys.modules, "loaded_late", module)
        assert drawn() == before
    assert CONSTANT not in before


@pytest.mark.parametrize(("wanted", "taken"), [(20, 20), (50, 50), (60, 50), (200, 50), (400, 100)])
def test_quarter_of_many_examples_is_taken(
    request: pytest.FixtureRequest, wanted: int, taken: int
) -> None:
    found: list[int] = []

    @settings(max_examples=wanted, derandomize=True, deadline=None, database=None)
    @given(st.integers())
    def draw(number: int) -> None:
        found.append(number)

    item = pytest.Function.from_parent(request.node.parent, name="draw", callobj=draw)
    take_fewer_examples([item, item])
    draw()
    assert len(found) == taken
