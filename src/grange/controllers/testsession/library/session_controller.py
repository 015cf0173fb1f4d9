"""Runs scheduled sessions on reserved machines, a bounded number at a time.

Theory of operation. ``schedule`` records QUEUE and enqueues. One task starts what the queue gives,
whenever a session was enqueued or has ended, or a node has changed; it never polls. Between the queue
and the set of active sessions there is no await, so that ``stop`` sees each session in one of them. A
session leaves the active ones, and its machines the ledger, when its executor has returned, which is
when its pods are gone. The terminal event is recorded here, exactly once for each session.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from grange.api.kinds.testsession import TestSession
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.client.client import Client
from grange.controllers.testsession.library.controller_options import ControllerOptions
from grange.controllers.testsession.library.library_errors import (
    ControllerStartError,
    ControllerStoppedError,
    InvalidSessionError,
    SessionExistsError,
    SessionFailedError,
    SessionUnknownError,
    StopTimeoutError,
)
from grange.controllers.testsession.library.pod_executor import PodExecutor
from grange.controllers.testsession.library.pod_watcher import DEFAULT_NAMESPACE, Watcher
from grange.controllers.testsession.library.pool_inventory import PoolInventory
from grange.controllers.testsession.library.session_executor import ExecutionContext, Executor
from grange.controllers.testsession.library.session_journal import SessionJournal
from grange.controllers.testsession.library.session_needs import (
    check_session,
    machines_text,
    needed_machines,
)
from grange.controllers.testsession.library.session_queue import QueuedSession, SessionQueue
from grange.controllers.testsession.library.session_records import (
    SessionEventKind,
    SessionStore,
)
from grange.placement.machine_pools import Pool

Kind = SessionEventKind

_TICK_S = 1e-3  # what adding floats leaves over may be too little for any clock to notice


@dataclass(slots=True)
class _ActiveSession:
    entry: QueuedSession
    executor_id: str
    task: Child[None] | None = None
    started: bool = False
    cancelled: bool = False


class SessionController:
    """Runs sessions, inside of its block.

    ::

        async with SessionController(client, store) as controller:
            await controller.start()
            controller.schedule(session)
            await controller.stop()

    Leaving the block cancels what still runs, and cleans up.

    Args:
        client: the connection to the cluster.
        store: where events go; None: to the log alone.
        options: overrides of the defaults.
        executor: runs each session; by default in pods.
        namespace: of the pods.
        clock: time.
        rng: jitter and identifiers.
        log: where events and failures go.

    Raises:
        ValueError: there is no client.
    """

    def __init__(  # noqa: PLR0913  the tools are handed in
        self,
        client: Client,
        store: SessionStore | None = None,
        options: ControllerOptions | None = None,
        *,
        executor: Executor | None = None,
        namespace: str = DEFAULT_NAMESPACE,
        clock: Clock | None = None,
        rng: Stream | None = None,
        log: Logger | None = None,
    ) -> None:
        if client is None:
            raise ValueError("client: is None; connect to a cluster first")
        self._options = options or ControllerOptions()
        self._limit = self._options.executor_count or 1
        self._clock = clock or LoopClock()
        self._rng = rng or Stream.from_system()
        self._log = log or Logger("sessions")
        self.watcher = Watcher(
            client,
            self._options.watcher_options,
            namespace=namespace,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        self._inventory = PoolInventory(client, clock=self._clock, rng=self._rng, log=self._log)
        self._executor: Executor = executor or PodExecutor(
            client,
            self.watcher,
            namespace=namespace,
            default_pools=self._options.default_pools,
            link_mounts=self._inventory.mounts_are_links,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
        )
        self._journal = SessionJournal(store, clock=self._clock, log=self._log)
        self._queue = SessionQueue(self._inventory.reservations, aging_s=self._options.aging_s)
        self._active: dict[str, _ActiveSession] = {}
        self._nursery = Nursery("sessions")
        self._starting = asyncio.Lock()
        self._running = False
        self._dispatcher: Child[None] | None = None
        self._changed, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._ended = asyncio.Event()  # replaced whenever a session has ended

    async def __aenter__(self) -> Self:
        await self.watcher.__aenter__()
        await self._nursery.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end_intake("the controller was stopped before the session had machines")
            self._nursery.cancel()
            await self._nursery.__aexit__(None, None, None)
            for name in list(self._active):  # cancelled before their first step
                self._finish(name, Kind.CANCELLED, "the controller was stopped")
        finally:
            await self.watcher.__aexit__(None, None, None)

    # --- for callers ------------------------------------------------------------------------------

    @property
    def stopped(self) -> bool:
        """Whether sessions cannot be scheduled: before ``start`` and from ``stop`` on."""
        return not self._running

    @property
    def waiting(self) -> tuple[str, ...]:
        """The names of the sessions that wait for machines or an executor, the oldest first."""
        return tuple(entry.name for entry in self._queue.waiting())

    @property
    def active(self) -> tuple[str, ...]:
        """The names of the sessions that have an executor, in the order in which they got it."""
        return tuple(self._active)

    def pools(self) -> dict[str, Pool]:
        """The pools by name, as they are now."""
        return self._inventory.reservations.pools()

    async def start(self) -> None:
        """Accept sessions from now on; does nothing where that is so. May follow a ``stop``.

        Raises:
            ControllerStartError: nodes or pods cannot be read; start it again later.
        """
        async with self._starting:
            if self._running:
                return
            try:
                await self._inventory.start(self._nursery, self._changed.set)
                await self.watcher.start()
            except ControllerStartError:
                self._stop_watching_when_done()
                raise
            if self._dispatcher is None:
                self._dispatcher = self._nursery.start(self._dispatch(), name="session queue")
            self._refresh_pools()
            self._running = True

    def schedule(self, session: TestSession | None) -> None:
        """Enqueue a session and return; it runs when machines and an executor are free.

        A session that can never run ends at once with an ERROR event.

        Raises:
            InvalidSessionError: the session is None, or cannot run as it is written.
            ControllerStoppedError: the controller is stopped.
            SessionExistsError: a session of its name waits or runs.
        """
        if session is None:
            raise InvalidSessionError("session: is None; give a TestSession")
        if not self._running:
            raise ControllerStoppedError(
                "the session was not scheduled: the controller is stopped; start it first"
            )
        check_session(session)
        need = needed_machines(session, self._options.default_pools)
        name = session.metadata.name
        if name in self._queue or name in self._active:
            raise SessionExistsError(
                f"session {name} was not scheduled: one of this name waits or runs; "
                "wait for its end or use another name"
            )
        if not session.metadata.uid:
            meta = msgspec.structs.replace(session.metadata, uid=self._rng.uid())
            session = msgspec.structs.replace(session, metadata=meta)
        self._journal.record(
            name, Kind.QUEUE, f"session {name} waits for machines: {machines_text(need)}"
        )
        self._queue.enqueue(session, need, self._clock.monotonic())
        self._reject_impossible(name)
        self._changed.set()

    def cancel(self, name: str) -> None:
        """End a session early: one that waits at once, one that runs when it has been cleaned up.

        Raises:
            SessionUnknownError: no session of this name waits or runs.
        """
        if self._queue.remove(name) is not None:
            self._end(name, Kind.CANCELLED, "the session was cancelled before it had machines")
            self._changed.set()
        elif (active := self._active.get(name)) is not None:
            if active.started and active.task is not None and not active.cancelled:
                active.task.cancel()  # once: another one would interrupt the clean-up
            active.cancelled = True
        else:
            raise SessionUnknownError(
                f"session {name} was not cancelled: it neither waits nor runs; check its name"
            )

    async def wait(self, *names: str) -> None:
        """Wait until sessions have ended: those of these names, or all that wait or run."""
        while any(name in self._queue or name in self._active for name in names) or (
            not names and (self._queue.count or self._active)
        ):
            await self._ended.wait()

    async def stop(self, timeout_s: float | None = None) -> None:
        """Refuse sessions, cancel those that wait, and wait for those that run.

        Does nothing where it is stopped. Sessions that run when the time is over go on, and are still
        watched; stop it again to wait for them.

        Raises:
            StopTimeoutError: sessions still run after ``timeout_s``.
        """
        async with self._starting:
            self._end_intake("the controller was stopped before the session had machines")
        try:
            async with self._clock.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError as error:
            running = ", ".join(self._active)
            raise StopTimeoutError(
                f"the controller did not stop in {timeout_s:g} s: sessions still run: {running}; "
                "wait for them with stop, or cancel them"
            ) from error

    # --- sessions ---------------------------------------------------------------------------------

    async def _dispatch(self) -> None:
        """Start sessions whenever something has changed."""
        while True:
            self._changed.clear()
            self._refresh_pools()
            self._start_sessions()
            with suppress(TimeoutError):
                async with self._clock.timeout(self._next_grace_s()):
                    await self._changed.wait()

    def _refresh_pools(self) -> None:
        """Make the pools what the nodes are; sessions that no longer fit any end."""
        in_use: Counter[str] = Counter()
        for active in self._active.values():
            in_use.update(active.entry.need)
        self._inventory.refresh(in_use, self.watcher.nodes_of(self._active))
        self._reject_impossible()

    def _start_sessions(self) -> None:
        while self._running and len(self._active) < self._limit:
            entry = self._queue.dequeue(self._clock.monotonic())
            if entry is None:
                return
            active = _ActiveSession(entry, f"executor-{self._rng.suffix()}")
            self._active[entry.name] = active
            self._idle.clear()
            accepted = f"{active.executor_id} accepted session {entry.name}"
            self._journal.record(entry.name, Kind.ACCEPT, accepted)
            active.task = self._nursery.start(self._execute(active), name=f"session {entry.name}")

    async def _execute(self, active: _ActiveSession) -> None:
        """Run one session and record how it ended, whatever its executor does."""
        name = active.entry.name
        active.started = True
        kind, description, logs = Kind.CANCELLED, "the session was cancelled", dict[str, bytes]()
        try:
            if not active.cancelled:
                context = ExecutionContext(
                    lambda kind, text: self._journal.record(name, kind, text),
                    self._options.test_timeout_s or None,
                )
                logs = dict(await self._executor.execute(context, active.entry.session))
                kind, description = Kind.DONE, f"session {name} passed"
        except SessionFailedError as error:
            kind, description, logs = Kind.ERROR, str(error), error.logs
        except Exception as error:  # noqa: BLE001  an executor that crashes must not end the others
            self._log.error("executor failed", session=name, error=error)
            kind, description = Kind.ERROR, f"the executor failed: {type(error).__name__}: {error}"
        finally:
            self._finish(name, kind, description, logs)

    def _finish(
        self, name: str, kind: Kind, description: str, logs: Mapping[str, bytes] | None = None
    ) -> None:
        """Give back the machines and the executor of a session, then record its end."""
        del self._active[name]
        self._queue.done(name)
        self._end(name, kind, description, logs)
        self._changed.set()
        if not self._active:
            self._idle.set()
            self._stop_watching_when_done()

    def _end_intake(self, why: str) -> None:
        """Refuse sessions from now on, and end those that wait."""
        self._running = False
        for entry in self._queue.waiting():
            self._queue.remove(entry.name)
            self._end(entry.name, Kind.CANCELLED, why)
        self._stop_watching_when_done()

    def _stop_watching_when_done(self) -> None:
        """Watch nothing any more once nothing runs and nothing may be scheduled."""
        if self._running or self._active:
            return
        self.watcher.stop()
        self._inventory.stop()
        if self._dispatcher is not None:
            self._dispatcher.cancel()
            self._dispatcher = None

    def _reject_impossible(self, name: str = "") -> None:
        """End sessions that wait for machines that there will not be; all, or one of them."""
        due_s = self._clock.monotonic() - self._options.impossible_grace_s

        def selected(entry: QueuedSession) -> bool:
            return name in ("", entry.name) and entry.since_s <= due_s

        for entry, error in self._queue.take_impossible(selected):
            self._end(entry.name, Kind.ERROR, f"session {entry.name} can never run: {error}")

    def _next_grace_s(self) -> float | None:
        """Seconds until the grace of a session ends that waits; None for none."""
        if not self._options.impossible_grace_s:
            return None
        due_s = self._clock.monotonic() - self._options.impossible_grace_s
        left = [entry.since_s - due_s for entry in self._queue.waiting()]
        return min((max(seconds, _TICK_S) for seconds in left if seconds > 0), default=None)

    def _end(
        self, name: str, kind: Kind, description: str, logs: Mapping[str, bytes] | None = None
    ) -> None:
        """Record the terminal event of a session that neither waits nor runs any more."""
        self._journal.record(name, kind, description, logs)
        self._ended.set()
        self._ended = asyncio.Event()
