"""A claim: an annotation of the object names the session that owns it, and the session knows it.

The object bears its owner in one annotation, written only by compare and set. Absent means that
it was never owned, or that a user removed the annotation; empty means released.
"""

import asyncio

from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.meta import Document, Resource, preconditions
from grange.base.tasks import Nursery
from grange.reconcile.farm.errors import ClaimNotHeld
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.member_session import Session

RELEASED = ""


def owner_text(obj: Resource) -> str | None:
    """The owner by the object's annotation; None without one."""
    return obj.metadata.annotations.get(OWNER_ANNOTATION)


def ownership(obj: Resource) -> Token | None:
    """The session that the object names as its owner."""
    return Token.parse(owner_text(obj) or "")


def claim_patch(obj: Resource, owner: Token | None) -> Document:
    """The compare and set that claims an object as it was read, or releases it."""
    meta = obj.metadata
    return {
        "metadata": {
            **preconditions(meta),
            "annotations": {OWNER_ANNOTATION: RELEASED if owner is None else str(owner)},
        }
    }


class Claim:
    """One object, held by one session; also the fence of the passes under it.

    Args:
        obj: as the server returned it with our name on it.
        session: the holder.

    Attributes:
        key, uid: the object.
        session: the holder.
        idle: set while no pass is under way.
        retiring: set when the pass under way should come to an end by itself.
        unsettled_until: until when a write that was cut off may still arrive (monotonic seconds).
    """

    def __init__(self, obj: Resource, session: Session) -> None:
        self.key = obj.key
        self.uid = obj.metadata.uid
        self.session = session
        self.idle = asyncio.Event()
        self.idle.set()
        self._version = obj.metadata.resource_version
        self._open = True
        self.retiring = asyncio.Event()
        self._pass: Nursery | None = None
        self.unsettled_until = float("-inf")

    @property
    def takes_passes(self) -> bool:
        """Whether another pass may begin."""
        return self._open and not self.retiring.is_set() and self.session.remaining_s() > 0.0

    def check(self) -> float:
        """Seconds for which a write may be under way.

        Raises:
            ClaimNotHeld: the object was released, deleted, or claimed by another session.
            SessionLost: the session has ended.
        """
        if not self._open:
            raise ClaimNotHeld(f"{self.key} is no longer held by {self.session.token}")
        return self.session.check()

    def cut_off(self) -> None:
        """A write under this claim ended without an answer: it may still arrive."""
        self.unsettled_until = self.session.cut_off()

    def is_contradicted_by(self, obj: Resource) -> bool:
        """Whether what the object shows means that it is not ours any more.

        A cache may show how it was before we claimed it; that contradicts nothing.
        """
        if obj.metadata.uid != self.uid:
            return True
        if ownership(obj) == self.session.token:
            return False
        ours, shown = self._version, obj.metadata.resource_version
        return not (ours.isdecimal() and shown.isdecimal() and int(shown) <= int(ours))

    def begin(self, nursery: Nursery) -> None:
        """A pass begins; closing the claim cancels it."""
        self._pass = nursery
        self.idle.clear()

    def finish(self) -> None:
        """The pass has ended."""
        self._pass = None
        self.idle.set()

    def retire(self) -> None:
        """No more passes; the one under way may go on writing until ``close``."""
        self.retiring.set()

    def close(self) -> None:
        """Refuse every further write and cancel the pass under way; idempotent."""
        self._open = False
        if self._pass is not None:
            self._pass.cancel()
