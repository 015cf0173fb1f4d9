"""Rules about a write that look beyond the object itself.

One module a rule, each exporting one class; the explicit table is in ``application``.
"""

from typing import Protocol

import msgspec

from grange.api.meta import Document
from grange.api.scheme import AnyKind


class Attempt(msgspec.Struct, frozen=True):
    """A write before it is accepted.

    Attributes:
        verb: create, update, patch or delete; bind gives a pod its node.
        info: the kind.
        namespace: where; empty for cluster-scoped kinds.
        name: which; may be empty on a create that generates it.
        document: what would be written; for bind the Binding; None for a delete.
    """

    verb: str
    info: AnyKind
    namespace: str
    name: str
    document: Document | None = None


class Plugin(Protocol):
    """One rule."""

    def admit(self, attempt: Attempt) -> None:
        """Let the write pass, or refuse it by raising an ``ApiError``; must not await."""
