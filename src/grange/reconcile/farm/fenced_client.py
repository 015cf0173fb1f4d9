"""The fence: a client whose writes are sent only by those who have a right to them.

It sits under the verbs, at the one seam that all of them use, so that no write gets past it. Before
a write is sent, its *fence* is asked: the session must last and the object must be held. While it is
under way it is bounded by what is left of the session; what has left the machine by then cannot be
called back, which is why sessions end a margin before anybody can take their place, creations have
deterministic names, deletions carry UIDs, and intent is first written down under compare-and-set.

Whose pass a write belongs to is a property of the task that writes (and of its children), as its
cancellation is. The farm sets it where it starts a pass; nothing else does.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

from grange.api.http import Request, Response
from grange.api.status import Timeout
from grange.base.clock import Clock
from grange.client.client import Client
from grange.reconcile.farm.errors import Fenced
from grange.reconcile.farm.ownership import Claim

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
BAD_REQUEST = 400
SERVER_ERROR = 500

at_work: ContextVar[Claim | None] = ContextVar("grange_farm_claim", default=None)
"""The claim under which the running task works; set by the farm."""


class Fence(Protocol):
    """Whether a write may be sent."""

    def check(self) -> float:
        """Seconds for which it may be under way.

        Raises:
            Fenced: it must not be sent.
        """

    def cut_off(self) -> object:
        """A write that was sent ended without an answer: it may still arrive."""


class DeletionGate(Protocol):
    """Checked before deletions, and notified of creations."""

    def permit_deletion(self, resource: str) -> Callable[[], object]:
        """Something of this resource (e.g. ``pods``) is about to be deleted.

        Returns:
            To be called if the API refuses to delete it.

        Raises:
            DeletionsHeld: it must not be.
        """

    def created(self, resource: str) -> object:
        """Something of this resource was created."""


class PassFence:
    """The fence of whatever pass the writing task belongs to.

    Args:
        otherwise: for tasks outside of any pass (e.g. those that send Events).
    """

    def __init__(self, otherwise: Fence) -> None:
        self._otherwise = otherwise

    def check(self) -> float:
        """Seconds for which a write may be under way.

        Raises:
            Fenced: it must not be sent.
        """
        return self._fence().check()

    def cut_off(self) -> None:
        """A write that was sent ended without an answer."""
        self._fence().cut_off()

    def _fence(self) -> Fence:
        return at_work.get() or self._otherwise


@dataclass(frozen=True)
class _FencedTransport:
    """Passes requests on to a client; writes only past the fence."""

    inner: Client
    fence: Fence
    clock: Clock
    deletion_guard: DeletionGate | None
    refused: Callable[[], object]

    async def send(self, request: Request) -> Response:
        """Carry one request.

        Raises:
            Fenced, DeletionsHeld: nothing was sent.
            Timeout: it was sent and the session ended before the answer; the outcome is unknown.
            ServiceUnavailable: as the inner client.
        """
        if request.method in _READS:
            return await self.inner.raw(request)
        try:
            remaining = self.fence.check()
        except Fenced:
            self.refused()
            raise
        real = self.deletion_guard is not None and "dryRun" not in request.query
        made, destroyed = _effect(request) if real else ("", "")
        cancel_deletion: Callable[[], object] = _nothing
        if self.deletion_guard is not None and destroyed:
            cancel_deletion = self.deletion_guard.permit_deletion(destroyed)
        try:
            async with self.clock.timeout(remaining):
                response = await self.inner.raw(replace(request, within_s=remaining))
                if self.deletion_guard is not None and made and response.status < BAD_REQUEST:
                    self.deletion_guard.created(made)
                if BAD_REQUEST <= response.status < SERVER_ERROR:
                    cancel_deletion()  # any other failure may have destroyed it all the same
                return response
        except TimeoutError:
            self.fence.cut_off()
            raise Timeout(
                f"the session ended during {request.method} {request.path}: outcome unknown"
            ) from None
        except (Timeout, asyncio.CancelledError):
            self.fence.cut_off()
            raise

    async def close(self) -> None:
        """Nothing: the inner client belongs to its creator."""


def _nothing() -> None:
    """Nothing was to be destroyed."""


def _effect(request: Request) -> tuple[str, str]:
    """The resource of which something is made, and the one of which something is destroyed."""
    parts = request.path.split("/")
    if request.method == "DELETE":
        return "", parts[-2]
    if request.method != "POST":
        return "", ""
    if parts[-1] == "eviction":
        return "", parts[-3]
    return parts[-1], ""


class FencedClient(Client):
    """A client that refuses to write without the right to; reads are as ever.

    Args:
        inner: the way to the API.
        fence: asked before every write.
        clock: the member's own.
        deletion guard: asked before every deletion; None for no check.
        refused: called for every write that was refused.
    """

    def __init__(
        self,
        inner: Client,
        fence: Fence,
        *,
        clock: Clock,
        deletion_guard: DeletionGate | None = None,
        refused: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(
            _FencedTransport(inner, fence, clock, deletion_guard, refused), clock=clock
        )
