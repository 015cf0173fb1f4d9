"""The answer of ``grange why`` about one object, as text and as a document."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli.session import ApiSession


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """An answer.

    Attributes:
        document: for ``-o json`` and other formats.
        lines: the text.
    """

    document: Document
    lines: list[str]


Ask = Callable[[ApiSession, AnyKind, str], Awaitable[WhyAnswer]]
