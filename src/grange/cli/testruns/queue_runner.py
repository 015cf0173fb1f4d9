"""Runs many sessions: queues side by side, each in its order and so many at a time."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import click

from grange.api.kinds.testsession import SessionTimeouts
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.base.plurals import counted
from grange.base.tasks import Nursery
from grange.cli import terminal, testsession_view
from grange.cli.session import ApiSession
from grange.cli.testruns import session_writes
from grange.cli.testruns.tracked_run import SessionRun

_MARGIN_S = 60.0
INTERRUPTED = "interrupted"
TIMED_OUT = "timed out"
FAIL_FAST = "another one ended badly"

Execute = Callable[[SessionRun], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many sessions run at a time.

    Attributes:
        total: of one common queue; None: as many as there are.
        queues: of each queue; empty: there is one common queue.
    """

    total: int | None = None
    queues: Mapping[str, int] = field(default_factory=dict)


EVERYTHING = Concurrency()
"""All at a time: the server's queue of machines decides."""


def parse_concurrency(options: Sequence[str]) -> Concurrency:
    """Options ``N`` or ``QUEUE=N``.

    Raises:
        click.UsageError: one is malformed, less than 1 or given twice, or the forms are mixed.
    """
    queues: dict[str, int] = {}
    totals: list[int] = []
    for option in options:
        name, mark, number = option.rpartition("=")
        if not (number.isascii() and number.isdecimal() and int(number) > 0) or (mark and not name):
            raise click.UsageError(f"--concurrency {option}: write N or QUEUE=N, with N above 0")
        if name in queues:
            raise click.UsageError(f"--concurrency {option}: {name} is given twice")
        if mark:
            queues[name] = int(number)
        else:
            totals.append(int(number))
    if len(totals) > 1 or (totals and queues):
        raise click.UsageError("--concurrency: give either one N, or QUEUE=N for every queue")
    return Concurrency(total=totals[0] if totals else None, queues=queues)


def queued(runs: Sequence[SessionRun], concurrency: Concurrency) -> dict[str, list[SessionRun]]:
    """The sessions by queue, each queue in the order of the manifests.

    Raises:
        click.UsageError: sessions are in a queue that has no concurrency, or a queue has none.
    """
    if not concurrency.queues:
        return {"": list(runs)}
    found: dict[str, list[SessionRun]] = {name: [] for name in concurrency.queues}
    for run in runs:
        queue = run.planned.queue
        if queue not in found:
            known = ", ".join(concurrency.queues)
            raise click.UsageError(
                f"{run.planned.test}: its queue {queue!r} has no --concurrency (those given: "
                f"{known}); add {queue or 'QUEUE'}=N, or annotate the manifest"
            )
        found[queue].append(run)
    if empty := [name for name, items in found.items() if not items]:
        raise click.UsageError(f"--concurrency {empty[0]}: no session is in this queue")
    return found


class QueueRunner:
    """Runs sessions, and ends them before their time when it is asked to.

    Args:
        opened: the connection.
        runs: all sessions.
        concurrency: how many at a time.
        execute: runs one to its end.

    Attributes:
        queues: the sessions by queue.
        stopped: why no more sessions are started; empty while they are.
        left: sessions that were still going on when the second interruption ended the wait.
    """

    def __init__(
        self,
        opened: ApiSession,
        runs: Sequence[SessionRun],
        concurrency: Concurrency,
        execute: Execute,
    ) -> None:
        self._opened = opened
        self._runs = list(runs)
        self.queues = queued(runs, concurrency)
        self._concurrency = concurrency
        self._execute = execute
        self._nursery = Nursery("test run")
        self._is_running = False
        self._ended_groups: set[int] = set()
        self.stopped = ""
        self.left: list[SessionRun] = []

    async def run(self, timeout_s: float | None = None) -> None:
        """Run all; returns when each is over or was skipped, or at the second interruption.

        Args:
            timeout_s: seconds after which those that go on are cancelled.
        """
        async with self._nursery as nursery:
            self._is_running = True
            limit = None if timeout_s is None else nursery.start(self._time_out(timeout_s))
            async with Nursery("queues") as queues:
                for name, items in self.queues.items():
                    waiting = deque(items)
                    for _ in range(min(len(items), self._width(name) or len(items))):
                        queues.start(self._work(waiting))
            self._is_running = False
            if limit is not None:
                limit.cancel()
        self.left = [run for run in self._runs if run.is_started and not run.is_over]

    def interrupt(self) -> None:
        """Cancel everything and wait for its end; the second time, wait no longer."""
        if not self._is_running:
            return
        if self.stopped == INTERRUPTED:
            self._nursery.cancel()
            return
        self._stop(INTERRUPTED)
        count = sum(run.is_active for run in self._runs)
        if count:
            what = counted(count, "session")
            text = (
                f"Interrupted: cancelling {what} and waiting for clean-up; again to leave at once"
            )
            terminal.echo(text, err=True)

    def _width(self, name: str) -> int | None:
        return self._concurrency.queues.get(name) if name else self._concurrency.total

    async def _work(self, waiting: deque[SessionRun]) -> None:
        while waiting:
            run = waiting.popleft()
            if run.skipped or self.stopped:
                run.skipped = run.skipped or self.stopped
                run.is_over = True
                continue
            await self._execute(run)
            group = run.planned.group
            if run.planned.fail_fast and run.exit_code and group not in self._ended_groups:
                self._ended_groups.add(group)
                self._skip(FAIL_FAST, [r for r in self._runs if r.planned.group == group])

    async def _time_out(self, timeout_s: float) -> None:
        await self._opened.env.clock.sleep(timeout_s)
        terminal.echo(f"Timed out after {timeout_s:g}s: cancelling what still runs", err=True)
        for run in self._runs:
            if run.is_active:
                run.error = f"not finished within the {timeout_s:g}s of --timeout"
        self._stop(TIMED_OUT)
        await self._opened.env.clock.sleep(max(map(_clean_up_s, self._runs)))
        self._nursery.cancel()  # the server does not get it done, or does not answer

    def _stop(self, why: str) -> None:
        self.stopped = why
        self._skip(why, self._runs)

    def _skip(self, why: str, runs: Sequence[SessionRun]) -> None:
        for run in runs:
            if run.is_over or run.skipped:
                continue
            run.skipped = why
            if run.document is not None:
                self._nursery.start(self._cancel(run, run.document))

    @property
    def exit_code(self) -> int:
        """The worst of all sessions; 130 after an interruption, 2 at least when time ran out."""
        if self.stopped == INTERRUPTED:
            return testsession_view.INTERRUPTED
        least = testsession_view.INFRASTRUCTURE if self.stopped else 0
        return max([least, *(run.exit_code for run in self._runs)])

    async def _cancel(self, run: SessionRun, session: Document) -> None:
        try:
            await session_writes.cancel(self._opened, session, session_writes.CANCEL_COLLECT)
            run.is_cancelled = True
        except ApiError as error:
            terminal.echo(f"{run.name}: not cancelled: {error.message}", err=True)


def _clean_up_s(run: SessionRun) -> float:
    """How long a session may take from its cancellation to its end, with a margin."""
    session = run.session
    timeouts = SessionTimeouts() if session is None else session.spec.timeouts
    return timeouts.collect_seconds + timeouts.cleanup_seconds + _MARGIN_S
