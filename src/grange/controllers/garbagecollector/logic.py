"""What to do with an object, given what is known about each of its owners: pure.

======================================  ==================================================
owners                                  verdict
======================================  ==================================================
none                                    keep
some alive                              keep; drop the references to the others
none alive, some wait for dependents    delete, in the foreground if it has dependents too
all gone                                delete, as its finalizers ask
any that cannot be judged               keep
======================================  ==================================================
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from grange.api.scheme import AnyKind
from grange.controllers.garbagecollector.graph import FOREGROUND, ORPHAN, GraphNode


class OwnerState(Enum):
    """What is known about an owner."""

    ALIVE = "alive"
    WAITING = "waiting for its dependents to go"
    GONE = "gone"
    UNKNOWN = "of a kind that is not served here, or not a possible owner"


@dataclass(frozen=True, slots=True)
class KeepObject:
    """Leave it, without its references to these owners (often none)."""

    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete it with this propagation: Background, Foreground or Orphan."""

    propagation: str


def is_possible_owner(owner: AnyKind, dependent: GraphNode) -> bool:
    """Whether an object may have an owner of this kind: a namespaced owner is of its namespace."""
    return not owner.namespaced or dependent.kind.namespaced


def decide(
    entry: GraphNode, states: Mapping[str, OwnerState], *, has_dependents: bool
) -> KeepObject | Delete:
    """The verdict about one object.

    Args:
        entry: the object as the server has it now.
        states: what is known about each of its owners, by uid.
        has_dependents: whether other objects name it as their owner.
    """
    found = set(states.values())
    if not states or OwnerState.UNKNOWN in found:
        return KeepObject()
    if OwnerState.ALIVE in found:
        return KeepObject(
            tuple(uid for uid, state in states.items() if state is not OwnerState.ALIVE)
        )
    if entry.deleting:
        return KeepObject()
    if OwnerState.WAITING in found and has_dependents:
        return Delete("Foreground")
    if ORPHAN in entry.finalizers:
        return Delete("Orphan")
    if FOREGROUND in entry.finalizers:
        return Delete("Foreground")
    return Delete("Background")
