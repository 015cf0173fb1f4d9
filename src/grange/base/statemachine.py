"""State machines as tables: what may follow what."""

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
