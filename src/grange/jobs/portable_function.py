"""A function as text that another interpreter can run: its source and what it uses of its module.

Functions and classes of the same module are taken along, imports are repeated, and constants are
written as they are now. Everything else is rejected by name before a job is created. Nothing is
pickled, so that sender and member may run different versions of Python, and nothing that a member
returns is executed here.
"""

import __future__

import ast
import builtins
import inspect
import json
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from grange.jobs import member_program
from grange.jobs.run_errors import FunctionNotPortable

LIMIT_CHARS = 100_000  # Linux starts no program with an argument of 128 KiB
PROGRAM = inspect.getsource(member_program)


def command(
    function: Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object],
    *,
    python: str,
) -> tuple[str, ...]:
    """The command of a container that calls the function.

    Raises:
        FunctionNotPortable: the function or an argument cannot be sent.
    """
    source = FunctionSource(function)
    label = source.name
    work = {
        "file": source.file,
        "prelude": source.prelude,
        "source": source.text,
        "function": source.name,
        "future": source.has_future_annotations,
        "args": [_plain(value, f"argument {at} of {label}") for at, value in enumerate(args)],
        "kwargs": {
            key: _plain(value, f"argument {key} of {label}") for key, value in kwargs.items()
        },
    }
    # $(NAME) would be replaced in the command of a container.
    text = json.dumps(work).replace("$", "\\u0024")
    if len(text) > LIMIT_CHARS:
        raise FunctionNotPortable(
            f"{label}: its source and arguments have {len(text)} characters of at most "
            f"{LIMIT_CHARS}; put data into a file or a volume"
        )
    return (python, "-c", PROGRAM, text)


def _plain(value: object, label: str) -> object:
    try:
        return json.loads(json.dumps(value, default=member_program.plain))
    except (TypeError, ValueError) as error:
        raise FunctionNotPortable(
            f"{label}: {type(value).__name__} is no JSON value ({error}); "
            "pass text, numbers, lists or dictionaries"
        ) from error


class FunctionSource:
    """What a function needs to run elsewhere.

    Args:
        function: made by ``def`` or ``async def`` in a file or a notebook.

    Attributes:
        name: of the function.
        file: where it is from, for tracebacks.
        prelude: statements for its imports and constants.
        text: the definitions, each at the line where its file has it.
        has_future_annotations: whether its module leaves annotations unevaluated.

    Raises:
        FunctionNotPortable: it is not a plain function, its source is not known, or it uses what
            cannot be written as text.
    """

    def __init__(self, function: Callable[..., object]) -> None:
        plain = inspect.unwrap(function)  # its decorators are part of its source
        if not isinstance(plain, FunctionType) or plain.__name__ == "<lambda>":
            raise FunctionNotPortable(
                f"{function!r}: only a function made by def can be sent; wrap it in one"
            )
        if plain.__closure__:
            names = ", ".join(plain.__code__.co_freevars)
            raise FunctionNotPortable(
                f"{plain.__name__}: it uses {names} of the function around it; "
                "pass them as arguments"
            )
        self.name = plain.__name__
        self.file = plain.__code__.co_filename
        flag = __future__.annotations.compiler_flag
        self.has_future_annotations = bool(plain.__code__.co_flags & flag)
        self._module = plain.__module__
        self._globals = plain.__globals__
        self._blocks: dict[int, str] = {}
        self._statements: dict[str, None] = {}
        self._seen: set[str] = set()
        self._add(self.name, function)
        self.prelude = "\n".join(self._statements)
        self.text = _placed(self._blocks)

    def _add(self, name: str, definition: Any) -> None:
        """Take a definition of the module along, with what it uses."""
        self._seen.add(name)
        try:
            lines, first = inspect.getsourcelines(definition)
        except (OSError, TypeError) as error:
            raise FunctionNotPortable(
                f"{name}: its source is not known ({error}); define it in a file"
            ) from error
        block = textwrap.dedent("".join(lines))
        self._blocks[first] = block
        tree = ast.parse(block)
        for used in _used_names(block, self.file):
            if used not in self._seen and used in self._globals:
                self._use(name, used, self._globals[used])
        self._statements |= dict.fromkeys(_submodules(tree, self._globals))

    def _use(self, user: str, name: str, value: Any) -> None:
        self._seen.add(name)
        found = getattr(value, "__qualname__", ""), str(getattr(value, "__module__", ""))
        if isinstance(value, ModuleType):
            self._statements[f"import {value.__name__} as {name}"] = None
        elif isinstance(value, FunctionType | type) and found == (name, self._module):
            self._add(name, value)
        elif _is_importable(value, *found) and found[1] not in (self._module, "__main__"):
            self._statements[f"from {found[1]} import {found[0]} as {name}"] = None
        elif _is_constant(value):
            self._statements[f"{name} = {value!r}"] = None
        elif not hasattr(builtins, name):
            raise FunctionNotPortable(
                f"{user}: it uses {name}, a {type(value).__name__} of its module, which has no "
                "text form; make it inside of the function or pass it as an argument"
            )


def _used_names(block: str, file: str) -> Iterator[str]:
    """Names that a definition takes from its module, those of inner functions included."""
    tables = [symtable.symtable(block, file, "exec")]
    while tables:
        table = tables.pop(0)
        tables += table.get_children()
        is_module = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_module or symbol.is_global()):
                yield symbol.get_name()


def _submodules(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[str]:
    """Imports of modules that are reached as attributes: ``import a.b`` binds ``a`` only."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        chain = [node.attr]
        inner = node.value
        while isinstance(inner, ast.Attribute):
            chain.insert(0, inner.attr)
            inner = inner.value
        value = names.get(inner.id) if isinstance(inner, ast.Name) else None
        for attribute in chain:
            if not isinstance(value, ModuleType):
                break
            path = f"{value.__name__}.{attribute}"
            value = getattr(value, attribute, None)
            if isinstance(value, ModuleType) and sys.modules.get(path) is value:
                yield f"import {path}"


def _is_importable(value: Any, qualname: str, module: str) -> bool:
    if not qualname.isidentifier():
        return False
    return getattr(sys.modules.get(module), qualname, None) is value


def _is_constant(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False


def _placed(blocks: Mapping[int, str]) -> str:
    """Blocks at their lines; where two overlap, as in notebooks, the later one follows."""
    lines: list[str] = []
    for first, block in sorted(blocks.items()):
        lines += [""] * (first - 1 - len(lines))
        lines += block.splitlines()
    return "\n".join(lines) + "\n"
