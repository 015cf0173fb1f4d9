"""YAML as people write it, read safely.

Only plain data is built, by the C loader where there is one. A stream is bounded in size, in nodes
(so that aliases cannot blow up) and in depth; a repeated key is an error, because one of the two
values would be lost. Dates stay text: JSON has none.
"""

import re
from collections.abc import Hashable
from math import inf, isfinite
from typing import Any

import yaml

from grange.api.status import BadRequest, TooLarge, shown

SIZE_MAX = 16 << 20
NODES_MAX = 100_000
DEPTH_MAX = 64
# What is longer is text: matching it with the forms of numbers would cost as much as it is long.
_PLAIN_MAX = 128
_PROBLEM_MAX = 500
_EVENTS_MAX = NODES_MAX + 1_000  # those that begin and end documents are counted, too

_Base: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_MERGE = f"{_CORE}merge"


class _Loader(_Base):  # type: ignore[misc]  # chosen at run time
    """The safe loader, counting what it builds and refusing repeated keys."""

    def __init__(self, stream: str | bytes) -> None:
        super().__init__(stream)
        self._nodes = 0

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """The tag of a node without one."""
        if kind is yaml.ScalarNode and len(value) > _PLAIN_MAX:
            implicit = (False, implicit[1])
        return str(super().resolve(kind, value, implicit))

    def count(self, node: yaml.Node) -> None:
        """Walk a composed document before it is built.

        Aliases make the graph smaller than the tree that it stands for, so every visit through an
        alias counts again: what is bounded is the tree.
        """
        stack: list[tuple[yaml.Node, int]] = [(node, 1)]
        while stack:
            item, depth = stack.pop()
            self._nodes += 1
            if self._nodes > NODES_MAX:
                raise TooLarge(f"the YAML stands for more than {NODES_MAX} values")
            if depth > DEPTH_MAX:
                raise BadRequest(
                    f"the YAML nests deeper than {DEPTH_MAX} levels {_where(item.start_mark)}"
                )
            if isinstance(item, yaml.SequenceNode):
                stack.extend((child, depth + 1) for child in item.value)
            elif isinstance(item, yaml.MappingNode):
                self._refuse_repeats(item)
                stack.extend((child, depth + 1) for _, child in item.value)

    def _refuse_repeats(self, node: yaml.MappingNode) -> None:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise BadRequest(f"a YAML key must be plain text {_where(key.start_mark)}")
            if key.tag == _MERGE:
                continue
            if key.value in seen:
                raise BadRequest(
                    f"the key {shown(key.value)} appears twice {_where(key.start_mark)}"
                )
            seen.add(key.value)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        """A mapping whose keys are text, as JSON has no others."""
        self.flatten_mapping(node)
        return {
            _key_text(self.construct_object(key, deep=True)): self.construct_object(
                value, deep=deep
            )
            for key, value in node.value
        }


def _key_text(key: Hashable) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


_OWN_FORMS = ("timestamp", "int", "float")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*|0o?[0-7_]+|0x[0-9a-fA-F_]+|0b[01_]+)$")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    """An integer as JSON has it, from decimal, octal (0644, 0o644), hexadecimal or binary."""
    value = str(loader.construct_scalar(node))
    if len(value) > _PLAIN_MAX:
        raise BadRequest(f"{shown(value)} is not an integer {_where(node.start_mark)}")
    text = value.replace("_", "").lower()
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    bases = {"0x": 16, "0b": 2, "0o": 8}
    base = bases.get(digits[:2], 8 if len(digits) > 1 and digits[0] == "0" else 10)
    return sign * int(digits[2:] if digits[:2] in bases else digits, base)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    """A number; infinities and NaN are refused, because JSON has none."""
    value = str(loader.construct_scalar(node))
    number = float(value) if value[-1:].isdigit() or value[-1:] == "." else inf
    if not isfinite(number):
        raise BadRequest(f"{shown(value)} is not a number that JSON has {_where(node.start_mark)}")
    return number


# YAML 1.1 reads 22:22 as a number in base 60 and 2026-01-01 as a date; the tools of the field
# read both as text, and 1e3 as a number.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in forms if tag.removeprefix(_CORE) not in _OWN_FORMS]
    for first, forms in _Base.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_CORE}int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_CORE}float", _FLOAT, list("-+.0123456789"))
# Only what JSON has; any other tag is refused by name.
_Loader.yaml_constructors = {
    tag: constructor
    for tag, constructor in _Base.yaml_constructors.items()
    if tag is None or tag.removeprefix(_CORE) in ("null", "bool", "str", "seq", "map")
}
_Loader.add_constructor(f"{_CORE}int", _integer)
_Loader.add_constructor(f"{_CORE}float", _float)


def load(text: str | bytes) -> list[Any]:
    """The values of the stream's documents; None for an empty one.

    Raises:
        BadRequest: the stream cannot be read; the message names line and column.
        TooLarge: the text is longer, or stands for more, than the bounds.
    """
    if len(text) > SIZE_MAX:
        raise TooLarge(f"the YAML is larger than {SIZE_MAX} bytes")
    values = []
    try:
        _check_events(text)
        loader = _Loader(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                loader.count(node)
                values.append(loader.construct_document(node))
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "malformed"
        raise BadRequest(
            f"cannot read the YAML: {problem[:_PROBLEM_MAX]} "
            f"{_where(error.problem_mark or error.context_mark)}"
        ) from error
    except (yaml.YAMLError, ValueError, KeyError) as error:
        raise BadRequest(f"cannot read the YAML: {str(error)[:_PROBLEM_MAX]}") from error
    return values


def _check_events(text: str | bytes) -> None:
    """Refuse deep nesting and too many nodes while they are still a flat run of events.

    The C composer recurses without a limit and would crash the process.
    """
    values = 0
    inside: list[int | None] = []  # the nodes so far of each open mapping; None for a sequence
    for event in yaml.parse(text, Loader=_Base):
        if isinstance(event, yaml.CollectionEndEvent):
            inside.pop()
            continue
        is_key = False
        if isinstance(event, yaml.NodeEvent) and inside and (nodes := inside[-1]) is not None:
            is_key = nodes % 2 == 0
            inside[-1] = nodes + 1
        values += not is_key
        if values > _EVENTS_MAX:
            raise TooLarge(f"the YAML stands for more than {NODES_MAX} values")
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append(0 if isinstance(event, yaml.MappingStartEvent) else None)
            if len(inside) > DEPTH_MAX:
                raise BadRequest(
                    f"the YAML nests deeper than {DEPTH_MAX} levels {_where(event.start_mark)}"
                )


def _where(mark: Any) -> str:
    return f"at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
