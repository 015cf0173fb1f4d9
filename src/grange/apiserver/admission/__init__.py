"""Rules about a write that look beyond the object itself.

One module a rule, each exporting one class; the explicit table is in ``application``.
"""

from typing import Protocol

import msgspec

from grange.api.http import SERVER, User
from grange.api.meta import Document
from grange.api.scheme import AnyKind


class Attributes(msgspec.Struct, frozen=True):
    """A write before it is accepted.

    Attributes:
        verb: create, update, patch or delete; bind gives a pod its node.
        info: the kind.
        namespace: where; empty for cluster-scoped kinds.
        name: which; may be empty on a create that generates it.
        document: what would be written; for bind the Binding; None for a delete.
        user: who writes.
        old: the object before an update or patch; the spec of a pod may be raw.
    """

    verb: str
    info: AnyKind
    namespace: str
    name: str
    document: Document | None = None
    user: User = SERVER
    old: Document | None = None


class Mutation(Protocol):
    """A change of the spec of a new object.

    It depends on the spec and on its own attributes only, and is compared by value.
    """

    def apply(self, spec: Document) -> None:
        """Change the spec in place; it has not been validated yet."""


class AdmissionPlugin(Protocol):
    """One rule."""

    def admit(self, attempt: Attributes) -> Mutation | None:
        """Accept the write, or reject it by raising an ``ApiError``; must not await.

        The document must not be changed here: pods with the same spec share it.

        Returns:
            The change to make before a create; None for no change.
        """
