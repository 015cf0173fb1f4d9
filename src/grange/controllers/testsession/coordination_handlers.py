"""Barriers and topics of sessions over HTTP; a journal keeps them over a restart."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from aiohttp import web

from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.offload import Offload
from grange.controllers.testsession.coordination import (
    Coordination,
    CoordinationError,
    JournalEntry,
)
from grange.controllers.testsession.session_access import SessionAccess
from grange.controllers.testsession.session_messages import answer, integer
from grange.evidence import private_files
from grange.evidence.evidence_directory import EvidenceDirectory

_LONGEST_POLL_S = 30.0
_MOST_WAITERS = 2000


class JournalError(GrangeError):
    """A change cannot be written down; the message names the cause."""


class _Attempt:
    def __init__(self, coordination: Coordination, journal: Path) -> None:
        self.coordination = coordination
        self.journal = journal
        self.changing = asyncio.Lock()
        self.changed = asyncio.Event()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class CoordinationHandlers:
    """Answers requests for barriers and topics.

    Args:
        access: admits components.
        directory: has the journals.
        clock: time.
        offload: the single lane of the evidence.
    """

    def __init__(
        self, access: SessionAccess, directory: EvidenceDirectory, clock: Clock, offload: Offload
    ) -> None:
        self._access, self._directory = access, directory
        self._clock, self._offload = clock, offload
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._opening = asyncio.Lock()
        self._waiters = 0

    def forget(self, uid: str) -> None:
        """A session has ended: its barriers and topics are not needed any more."""
        for name in [name for name in self._attempts if name[0] == uid]:
            self._attempts.pop(name).wake()

    async def barrier(self, request: web.Request) -> web.StreamResponse:
        """Arrive at a barrier, and wait until it opens or the caller's time is over."""
        attempt = await self._attempt(request)
        name, component = request.match_info["name"], request.query.get("component", "")
        count = integer(request, "count", 0)
        await self._change(attempt, lambda: attempt.coordination.arrival(name, component, count))

        def is_open() -> bool:
            return attempt.coordination.barrier(name).is_open

        await self._wait(request, attempt, is_open)
        state = attempt.coordination.barrier(name)
        return answer({"arrived": state.arrived, "count": state.count, "open": state.is_open})

    async def publish(self, request: web.Request) -> web.StreamResponse:
        """Append an entry to a topic."""
        attempt = await self._attempt(request)
        try:
            text = (await request.read()).decode()
        except UnicodeDecodeError as error:
            raise CoordinationError("entry: it is no UTF-8; encode it") from error
        topic, component = request.match_info["name"], request.query.get("component", "")
        ident = request.query.get("id", "")
        state = attempt.coordination
        await self._change(attempt, lambda: state.publication(topic, component, text, ident))
        return answer({"offset": attempt.coordination.offset(topic, component, ident)})

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        """The entries of a topic from an offset on; waits for the first of them."""
        attempt = await self._attempt(request)
        topic, offset = request.match_info["name"], integer(request, "offset", 0)

        def has_entries() -> bool:
            return bool(attempt.coordination.read(topic, offset, 1))

        await self._wait(request, attempt, has_entries)
        entries = attempt.coordination.read(topic, offset)
        return answer({"entries": entries, "next": offset + len(entries)})

    async def _wait(
        self, request: web.Request, attempt: _Attempt, is_over: Callable[[], bool]
    ) -> None:
        """Wait until it is over or the caller's time is."""
        seconds = min(_LONGEST_POLL_S, float(integer(request, "timeout", int(_LONGEST_POLL_S))))
        if is_over() or seconds <= 0:
            return
        if self._waiters >= _MOST_WAITERS:
            raise web.HTTPTooManyRequests(text="too many calls wait; try again later\n")
        self._waiters += 1
        try:
            with suppress(TimeoutError):
                async with self._clock.timeout(seconds):
                    while not is_over():
                        await attempt.changed.wait()
        finally:
            self._waiters -= 1

    async def _attempt(self, request: web.Request) -> _Attempt:
        known, number = await self._access.admitted(request)
        name = known.key.uid, number
        async with self._opening:
            if name not in self._attempts:
                place = self._directory.path(known.key) / "coordination" / f"{number}.jsonl"
                entries = await self._offload.run(lambda: self._read_journal(place))
                self._attempts[name] = _Attempt(Coordination(entries), place)
        return self._attempts[name]

    def _read_journal(self, place: Path) -> list[JournalEntry]:
        private_files.make_directory(place.parent, self._directory.root)
        entries = []
        for line in private_files.read_lines(place):
            with suppress(msgspec.MsgspecError):  # the disk is damaged
                entries.append(msgspec.json.decode(line, type=JournalEntry))
        return entries

    async def _change(self, attempt: _Attempt, check: Callable[[], JournalEntry | None]) -> None:
        """Write a change down, then apply it and wake those that wait for it.

        Raises:
            JournalError: it cannot be written; nothing has changed.
        """
        async with attempt.changing:
            entry = check()
            if entry is None:
                return
            line = msgspec.json.encode(entry)
            try:
                await self._offload.run(lambda: private_files.append_line(attempt.journal, line))
            except OSError as error:
                raise JournalError(
                    f"the change cannot be kept: {error.strerror or error}; "
                    "check the directory of evidence and its disk, then try again"
                ) from error
            attempt.coordination.apply(entry)
        attempt.wake()
