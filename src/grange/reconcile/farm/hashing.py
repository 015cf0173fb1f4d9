"""Who should have what: rendezvous hashing with a cap, and as few moves as evenness allows.

Every member computes the same from the same view, and different views do no harm: an assignment is
a target, and only a claim is a right. What is held stays where it is as long as its holder has no more
than its share, so objects move only when a member leaves (its own) or has too many (the surplus).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def score(member: str, item: object) -> int:
    """How much a member is preferred for an item; independent of all other members and items."""
    digest = blake2b(f"{member}\0{item}".encode(), digest_size=8).digest()
    return int.from_bytes(digest)


def assign(holders: Mapping[K, str], members: Iterable[str]) -> dict[K, str]:
    """Give every item a member: loads differ by one at most, and as few items move as possible.

    Args:
        holders: each item with its present holder; one that is not among the members is ignored.
        members: who takes part.

    Returns:
        Each item with its member; empty without members. Items without a holder go to the member
        with the highest score that has room. A member that has too many gives up those which the
        members with room would like best.
    """
    ranked = sorted(set(members))
    if not ranked:
        return {}
    held: dict[str, list[K]] = {member: [] for member in ranked}
    unassigned: list[K] = []
    for item, holder in holders.items():
        held[holder].append(item) if holder in held else unassigned.append(item)
    floor, larger = divmod(len(holders), len(ranked))
    # The members that have most keep the larger shares: then the fewest items move.
    by_load = sorted(ranked, key=lambda member: (-len(held[member]), member))
    quota = {member: floor + 1 if place < larger else floor for place, member in enumerate(by_load)}
    short = [member for member in ranked if len(held[member]) < quota[member]]
    result: dict[K, str] = {}
    for member, items in held.items():
        surplus = len(items) - quota[member]
        if surplus > 0:
            items.sort(key=lambda item: (-_best(short, item), str(item)))
            unassigned += items[:surplus]
            del items[:surplus]
        result.update(dict.fromkeys(items, member))
    _place(
        unassigned, {member: len(items) for member, items in held.items()}, floor, larger, result
    )
    return result


def _best(members: Sequence[str], item: object) -> int:
    return max((score(member, item) for member in members), default=0)


def _place(
    items: list[K], loads: dict[str, int], floor: int, larger: int, result: dict[K, str]
) -> None:
    """Give each item to the member with the highest score that still has room."""
    extra = larger - sum(load > floor for load in loads.values())
    for item in sorted(items, key=str):
        room = [m for m, load in loads.items() if load < floor or (extra > 0 and load == floor)]
        chosen = max(room, key=lambda member: (score(member, item), member))
        extra -= loads[chosen] == floor
        loads[chosen] += 1
        result[item] = chosen
