"""The text and the syntax of the source, read and parsed once in each process."""

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "grange"


def listed(found: Iterable[object]) -> str:
    """One a line, so that pytest shows them all."""
    return "\n" + "\n".join(str(one) for one in found)


@cache
def sources(top: Path = SRC) -> tuple[Path, ...]:
    """The Python files below a folder, in order."""
    return tuple(sorted(path for path in top.rglob("*.py") if "__pycache__" not in path.parts))


@cache
def text(path: Path) -> str:
    """What a file holds."""
    return path.read_text(errors="replace")


@cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(text(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All parts of the syntax tree of a file, as ``ast.walk`` gives them."""
    return tuple(ast.walk(parsed(path)))
