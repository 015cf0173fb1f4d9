"""JSON patch, RFC 6902, over JSON pointers, RFC 6901.

The library jsonpatch is the reference in the tests and does not serve requests: it bounds neither
what copies add nor what insertions move, and needs 1.8 times the processor time for a patch of three
operations (184 µs instead of 101).
"""

import re
from collections.abc import Callable
from typing import Any

from grange.api import codec
from grange.api.meta import Document
from grange.api.status import BadRequest, Invalid

# The bounds of Kubernetes: a copy may double the document, and thirty copies a billionfold.
OPERATIONS_MAX = 10_000
COPIED_MAX_BYTES = 3 << 20
# Each insertion into a list moves what is behind it: ten thousand at the front of a long list are slow.
MOVED_MAX = 20_000_000

_INDEX = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_MISSING = object()


def apply(document: Document, operations: list[Document]) -> Document:
    """The document after all operations, in order; neither is changed, nothing is shared.

    Raises:
        BadRequest: the patch is malformed, too long, or leaves something that is no object.
        Invalid: an operation cannot be done: its path is not there, or a test fails.
    """
    if not isinstance(operations, list):
        raise BadRequest("a JSON patch must be a list of operations")
    if len(operations) > OPERATIONS_MAX:
        raise BadRequest(f"a JSON patch may have at most {OPERATIONS_MAX} operations")
    patch = _Patch(codec.clone(document))
    try:
        for index, operation in enumerate(operations):
            patch.run(index, operation)
    except RecursionError as error:
        raise BadRequest("the JSON patch nests the document too deep") from error
    if not isinstance(patch.root, dict):
        raise BadRequest("the JSON patch leaves something that is not an object")
    codec.check_depth(patch.root)
    if copies(operations):
        codec.check_values(codec.encode_any(patch.root))
    return patch.root


def copies(operations: list[Any]) -> bool:
    """Whether the patch may make a document larger than document and patch are together."""
    return any(isinstance(item, dict) and item.get("op") == "copy" for item in operations)


class _Patch:
    """One document being patched."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._index = 0
        self._copied = 0
        self._copied_values = 0
        self._moved = 0

    def run(self, index: int, operation: Any) -> None:
        self._index = index
        if not isinstance(operation, dict):
            raise self._malformed("must be an object")
        name = operation.get("op")
        run = self._operations.get(name) if isinstance(name, str) else None
        if run is None:
            names = ", ".join(self._operations)
            raise self._malformed(
                f"has the unknown op {codec.encode_any(name).decode()}; use one of {names}"
            )
        run(self, operation)

    def _add(self, operation: Document) -> None:
        self._put(self._pointer(operation, "path"), codec.clone(self._value(operation)))

    def _remove(self, operation: Document) -> None:
        self._take(self._pointer(operation, "path"))

    def _replace(self, operation: Document) -> None:
        path, value = self._pointer(operation, "path"), codec.clone(self._value(operation))
        self._get(path)
        if not path:
            self.root = value
            return
        parent = self._get(path[:-1])
        if isinstance(parent, list):
            parent[int(path[-1])] = value
        else:
            parent[path[-1]] = value

    def _move(self, operation: Document) -> None:
        source, path = self._pointer(operation, "from"), self._pointer(operation, "path")
        if len(source) < len(path) and path[: len(source)] == source:
            raise self._malformed("moves a value into itself")
        self._put(path, self._take(source))

    def _copy(self, operation: Document) -> None:
        source, path = self._pointer(operation, "from"), self._pointer(operation, "path")
        encoded = codec.encode_any(self._get(source))
        self._copied += len(encoded)
        if self._copied > COPIED_MAX_BYTES:
            raise BadRequest(f"the JSON patch copies more than {COPIED_MAX_BYTES} bytes")
        self._copied_values += codec.count_values(encoded)
        if self._copied_values > codec.VALUES_MAX:
            raise BadRequest(f"the JSON patch copies more than {codec.VALUES_MAX} values")
        self._put(path, codec.decode_trusted(encoded))

    def _test(self, operation: Document) -> None:
        path, wanted = self._pointer(operation, "path"), self._value(operation)
        if not equal(self._get(path), wanted):
            raise self._impossible(f"test failed: the value at {_shown(path)} differs")

    _operations: dict[str, Callable[["_Patch", Document], None]] = {  # noqa: RUF012 - never changed
        "add": _add,
        "remove": _remove,
        "replace": _replace,
        "move": _move,
        "copy": _copy,
        "test": _test,
    }

    def _get(self, path: list[str]) -> Any:
        value = self.root
        for depth, word in enumerate(path):
            value = self._step(value, word)
            if value is _MISSING:
                raise self._impossible(f"nothing is at {_shown(path[: depth + 1])}")
        return value

    def _step(self, value: Any, word: str) -> Any:
        if isinstance(value, dict):
            return value.get(word, _MISSING)
        if isinstance(value, list) and _INDEX.fullmatch(word) and int(word) < len(value):
            return value[int(word)]
        return _MISSING

    def _put(self, path: list[str], value: Any) -> None:
        if not path:
            self.root = value
            return
        parent, word = self._get(path[:-1]), path[-1]
        if isinstance(parent, dict):
            parent[word] = value
        elif not isinstance(parent, list):
            raise self._impossible(f"{_shown(path[:-1])} is neither an object nor a list")
        elif word == "-":
            parent.append(value)
        elif _INDEX.fullmatch(word) and int(word) <= len(parent):
            self._move_items(len(parent) - int(word))
            parent.insert(int(word), value)
        else:
            raise self._impossible(f"{_shown(path)} is no place in a list of {len(parent)}")

    def _take(self, path: list[str]) -> Any:
        value = self._get(path)
        if not path:
            raise self._malformed("may not remove the whole document")
        parent = self._get(path[:-1])
        if isinstance(parent, list):
            self._move_items(len(parent) - int(path[-1]))
            del parent[int(path[-1])]
        else:
            del parent[path[-1]]
        return value

    def _move_items(self, count: int) -> None:
        self._moved += count
        if self._moved > MOVED_MAX:
            raise BadRequest(
                f"the JSON patch moves more than {MOVED_MAX} items of lists; replace the list instead"
            )

    def _pointer(self, operation: Document, field: str) -> list[str]:
        text = operation.get(field)
        if not isinstance(text, str):
            raise self._malformed(f'needs "{field}", a JSON pointer')
        if text and not text.startswith("/"):
            raise self._malformed(f'has "{field}": "{text}", which does not begin with "/"')
        if re.search(r"~(?![01])", text):
            raise self._malformed(f'has "{field}": "{text}", where "~" must be written "~0"')
        words = text.split("/")[1:]
        return [word.replace("~1", "/").replace("~0", "~") for word in words]

    def _value(self, operation: Document) -> Any:
        if "value" not in operation:
            raise self._malformed('needs "value"')
        return operation["value"]

    def _malformed(self, message: str) -> BadRequest:
        return BadRequest(f"operation {self._index} of the JSON patch {message}")

    def _impossible(self, message: str) -> Invalid:
        return Invalid(f"operation {self._index} of the JSON patch cannot be done: {message}")


def equal(a: Any, b: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, but true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


def _shown(path: list[str]) -> str:
    return '"' + "".join("/" + word.replace("~", "~0").replace("/", "~1") for word in path) + '"'
