"""Locks on objects: an annotation with the holder and the time until which it holds.

The lock is part of the object that it guards, so who changes the object under a precondition
on its version cannot miss it. Locks are never waited for, may be taken again by their holder, and
end by themselves when the holder does not come back; the end is judged by wall clocks, so it is for
operators and their tools, whose terms are minutes. Ownership between controllers is the farm's.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from grange.api import timestamps
from grange.api.meta import ObjectKey, Resource, preconditions
from grange.api.scheme import KindInfo
from grange.api.status import Conflict
from grange.api.timestamps import TimestampError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.client.client import Client

R = TypeVar("R", bound=Resource)

_ATTEMPTS = 5  # an object's status may change while we write; its annotations hardly ever do


class LockHeld(GrangeError):
    """Another holds the lock; the message names the holder and the end."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Who holds a lock, and until when unless it is taken again."""

    holder: str
    until: datetime

    def __str__(self) -> str:
        return f"{self.holder}, until {timestamps.rfc3339(self.until)}"


def hold(obj: Resource, annotation: str, now: datetime) -> Hold | None:
    """Who holds the lock; None when there is none, not any more, or the text is not a lock."""
    text = obj.metadata.annotations.get(annotation)
    if not text:
        return None
    try:
        facts = msgspec.json.decode(text, type=dict[str, str])
        found = Hold(facts.get("holder", ""), timestamps.parse(facts.get("until", "")))
    except (msgspec.MsgspecError, TimestampError):
        return None
    return found if found.holder and now < found.until else None


class ObjectLock:
    """One lock on one object, for one holder.

    Args:
        client: where the object is.
        kind: its kind.
        key: which one.
        annotation: which lock.
        holder: unique among those who may want it.
        ttl_s: how long it lasts unless it is taken again.
        clock: wall time.
    """

    def __init__(
        self,
        client: Client,
        kind: KindInfo[R],
        key: ObjectKey,
        *,
        annotation: str,
        holder: str,
        ttl_s: float,
        clock: Clock,
    ) -> None:
        self._client = client
        self._kind = kind
        self._key = key
        self._annotation = annotation
        self._holder = holder
        self._ttl_s = ttl_s
        self._clock = clock

    async def acquire(self) -> None:
        """Take the lock, or take it again.

        Raises:
            LockHeld: another has it.
            NotFound: there is no such object.
            Conflict: the object keeps changing; try again.
        """
        until = timestamps.rfc3339(self._clock.now() + timedelta(seconds=self._ttl_s))
        text = msgspec.json.encode({"holder": self._holder, "until": until}).decode()
        await self._write(text)

    async def release(self) -> None:
        """Give it back; nothing happens if it has ended.

        Raises:
            LockHeld: it ended, and another has it now.
            NotFound: there is no such object.
            Conflict: the object keeps changing; try again.
        """
        await self._write(None)

    async def _write(self, text: str | None) -> None:
        for attempt in range(1, _ATTEMPTS + 1):
            found = await self._client.get(self._kind, self._key.name, self._key.namespace)
            held = hold(found, self._annotation, self._clock.now())
            if held is not None and held.holder != self._holder:
                raise LockHeld(f"{self._kind.singular} {self._key.name!r} is locked by {held}")
            meta = found.metadata
            change = {
                **preconditions(meta),
                "annotations": {self._annotation: text},
            }
            try:
                await self._client.patch(
                    self._kind, self._key.name, self._key.namespace, patch={"metadata": change}
                )
                return
            except Conflict:
                if attempt == _ATTEMPTS:
                    raise
