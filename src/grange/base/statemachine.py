"""State machines as tables: what may follow what, and a drawing of it."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from grange.base.errors import InvariantError

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def advance(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """The state after an event.

    Raises:
        InvariantError: the table does not allow the event in this state.
    """
    following = table.get((state, event))
    if following is None:
        raise InvariantError(f"{event.name} cannot happen in state {state.name}")
    return following


def diagram(table: Mapping[tuple[S, E], S], first: S, last: frozenset[S]) -> str:
    """The table as a Mermaid state diagram: events between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), following in table.items():
        arrows.setdefault((str(state.value), str(following.value)), []).append(str(event.value))
    lines = ["stateDiagram-v2", f"    [*] --> {first.value}"]
    lines += [f"    {a} --> {b}: {' / '.join(why)}" for (a, b), why in arrows.items()]
    lines += [f"    {state.value} --> [*]" for state in type(first) if state in last]
    return "\n".join(lines) + "\n"
