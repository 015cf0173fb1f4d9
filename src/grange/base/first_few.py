"""Lists in messages for people: the first few items, and how many more there are."""

from collections.abc import Sequence


def first_few(items: Sequence[str], most: int) -> str:
    """The items with commas; of more than ``most`` the others are counted."""
    shown = ", ".join(items[:most])
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"
