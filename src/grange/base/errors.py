"""The root of every error that Grange raises on purpose.

::

    GrangeError            a user can act on the message
    ├── InvariantError     a promise inside Grange is broken: a bug, never the user's fault
    └── <room>.errors.*    one tree a room

A class exists because a caller reacts differently to it. Library exceptions are translated at the
edge of the room that called the library.
"""


class GrangeError(Exception):
    """Base of all deliberate errors; the message names the thing and the remedy."""


class InvariantError(GrangeError):
    """Something that must always hold does not: stop the role rather than act on nonsense."""


def invariant(condition: object, message: str, **facts: object) -> None:
    """Raise ``InvariantError`` with the facts unless the condition holds."""
    if not condition:
        details = ", ".join(f"{key}={value!r}" for key, value in facts.items())
        raise InvariantError(f"{message} ({details})" if details else message)
