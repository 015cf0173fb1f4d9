"""What ``grange why`` finds out about one object, for people and for programs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli.session import ApiSession


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """An answer.

    Attributes:
        document: for ``-o json`` and the like.
        lines: for people.
    """

    document: Document
    lines: list[str]


Ask = Callable[[ApiSession, AnyKind, str], Awaitable[WhyAnswer]]
