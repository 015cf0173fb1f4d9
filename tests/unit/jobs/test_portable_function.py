"""Functions run elsewhere from their source, and what cannot be sent is rejected by name."""

import json
import linecache
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.unit.jobs import portable_examples as examples

from grange.jobs import member_program
from grange.jobs.portable_function import LIMIT_CHARS, command
from grange.jobs.run_errors import FunctionNotPortable


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a member leaves its termination message."""
    monkeypatch.setenv("GRANGE_ROOT", str(tmp_path))
    yield tmp_path / "dev/termination-log"
    linecache.clearcache()


def ran(
    root: Path, function: Callable[..., object], args: Sequence[object] = (), **kwargs: object
) -> Any:
    """What a member leaves that calls the function."""
    words = command(function, args, kwargs, python="python3")
    assert words[:2] == ("python3", "-c")
    assert "$" not in words[3]
    assert member_program.main(words[3]) == 0
    return json.loads(root.read_text())


def test_function_brings_what_it_uses_of_its_module(root: Path) -> None:
    assert ran(root, examples.work, [5], name="$(HOME)")["value"] == {
        "values": [15, 15],
        "sequence": True,
        "base": "b",
        "name": "$(HOME)",
    }


def test_decorators_and_recursion_are_kept(root: Path) -> None:
    assert ran(root, examples.decorated, [1])["value"] == [2, 1]
    linecache.clearcache()
    assert ran(root, examples.recursive, [5])["value"] == 120


def test_coroutine_function_is_run(root: Path) -> None:
    assert ran(root, examples.later, [1])["value"] == 2


def test_error_leaves_the_line_it_came_from(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = command(examples.broken, (), {}, python="python3")
    assert member_program.main(words[3]) == 1
    left = root.read_text()
    source = Path(examples.__file__).read_text().splitlines()
    number = source.index("    number = 1 // number") + 1
    assert f'portable_examples.py", line {number}, in broken' in left
    assert "number = 1 // number" in left
    assert left.endswith("ZeroDivisionError: integer division or modulo by zero\n")
    assert "member_program" not in left
    assert capsys.readouterr().err == left


def sized(size: int) -> str:
    return "x" * size


def unreadable() -> object:
    return object()


class Number:
    """As scalars of numpy are."""

    def tolist(self) -> int:
        return 7


def scalar() -> object:
    return Number()


def test_value_that_cannot_be_kept_is_explained(root: Path) -> None:
    calls = ((scalar,), (sized, [4_000]), (sized, [4_200]), (unreadable,))
    found = []
    for call in calls:
        found.append(ran(root, *call))
        linecache.clearcache()
    assert found[0] == {"value": 7}
    assert len(found[1]["value"]) == 4_000
    assert "bytes of at most 4096" in found[2]["unavailable"]
    assert "object" in found[3]["unavailable"]


def rejected(function: Any, *args: object) -> str:
    with pytest.raises(FunctionNotPortable) as caught:
        command(function, args, {}, python="python3")
    return str(caught.value)


def test_functions_that_cannot_be_sent_are_rejected() -> None:
    outer = 1

    def closure() -> int:
        return outer

    assert "only a function made by def" in rejected(lambda: 1)
    assert "only a function made by def" in rejected(print)
    assert "closure: it uses outer of the function around it" in rejected(closure)
    assert "impossible: it uses HERE, a PosixPath of its module" in rejected(examples.impossible)
    assert "argument 0 of sized: Path" in rejected(sized, Path()).replace("Posix", "")
    assert f"at most {LIMIT_CHARS}" in rejected(sized, "x" * LIMIT_CHARS)
    made: dict[str, Any] = {}
    exec("def typed(): pass", made)  # noqa: S102  as in an interpreter without files
    assert "typed: its source is not known" in rejected(made["typed"])
