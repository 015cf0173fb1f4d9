"""What a run shows while it goes on: a board on a terminal, else plain lines.

Progress goes to standard error; the log of the driver, where there is one session, to standard
output. rich is imported only where there is a terminal.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from grange.api import timestamps
from grange.api.kinds.testsession import TestSession
from grange.base import controls
from grange.cli import live_display, terminal, testsession_board, testsession_view
from grange.cli.environment import Environment
from grange.cli.printers import table
from grange.cli.progress import redrawn
from grange.cli.testruns.component_logs import ContainerLog
from grange.cli.testruns.tracked_run import SessionRun

_REFRESH_S = 0.2
_DRIVER_LINES = 8
_STYLES = (
    (r"\b(Ready|Succeeded|Passed|passed|DONE)\b", "green"),
    (r"\b(Failed|Errored|Error|failed|error|ERROR|INTERNAL_ERROR)\b", "red"),
    (r"\b(NotReady|Unknown|Queued|Cancelled|cancelled|RETRY|CANCELLED)\b", "yellow"),
)


class PlainDisplay:
    """Lines: events and changes of the queue, and the driver's log.

    Args:
        env: the environment.
        many: each line begins with the session's name, and no log is printed.
        logs: print the driver's log.
    """

    def __init__(self, env: Environment, *, many: bool, logs: bool) -> None:
        self._env = env
        self._many = many
        self._logs = logs and not many
        self._shown: dict[str, set[tuple[str, str, str]]] = {}
        self._waiting: dict[str, str] = {}

    def updated(self, run: SessionRun) -> None:
        """Print what is new."""
        session = run.session
        if run.is_over and self._many:
            self._line(run, f"{outcome(run)}{took(run, self._env)}")
        if session is None or run.is_over:
            return
        if run.name not in self._shown:
            self._shown[run.name] = set()
            terminal.echo(f"{testsession_view.label(session)} created", err=True)
        for event in session.status.events:
            key = (event.time, event.type, event.component)
            if key not in self._shown[run.name]:
                self._shown[run.name].add(key)
                self._line(run, "  ".join(testsession_board.event(event)))
        self._wait(run, session)

    def _wait(self, run: SessionRun, session: TestSession) -> None:
        if not session.status.position or testsession_view.phase(session) != "Queued":
            return
        text = testsession_view.detail(session)
        if self._waiting.get(run.name) != text:
            self._waiting[run.name] = text
            time = timestamps.rfc3339(self._env.clock.now())
            self._line(run, f"{testsession_board.clock_time(time)}  WAIT  {text}")

    def output(self, run: SessionRun, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """Print the lines of the driver."""
        if self._logs and is_driver(run, source):
            start = f"[{controls.escape(source.label, lines=False)}] ".encode()
            ends = (b"" if line.endswith(b"\n") else b"\n" for line in lines)
            terminal.write_bytes(start + line + end for line, end in zip(lines, ends, strict=True))

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show it until the block ends."""
        yield

    def _line(self, run: SessionRun, text: str) -> None:
        terminal.echo(f"{run.name}  {text}" if self._many else text, err=True)


class LiveDisplay:
    """A board that stays in place: one session in detail, or a table of many.

    Args:
        env: the environment.
        runs: all sessions.
    """

    def __init__(self, env: Environment, runs: Sequence[SessionRun]) -> None:
        self._env = env
        self._runs = runs
        self._driver: list[str] = []

    def updated(self, run: SessionRun) -> None:
        """Nothing: the board is drawn at a fixed rate."""

    def output(self, run: SessionRun, source: ContainerLog, lines: Sequence[bytes]) -> None:
        """Keep the last lines of the driver."""
        if is_driver(run, source):
            texts = (line.decode(errors="replace").rstrip("\r\n") for line in lines)
            self._driver = [*self._driver, *texts][-_DRIVER_LINES:]

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Draw until the block ends; of one session the last state stays there.

        Of many the summary has it.
        """
        many = len(self._runs) > 1
        with live_display.opened(color=self._env.color, err=True, transient=many) as live:

            def draw() -> None:
                live.update(self._rendered(live.console.size.height), refresh=True)

            async with redrawn(live, draw, self._env.clock, _REFRESH_S):
                yield
        if not many:
            terminal.echo(err=True)

    def _rendered(self, height: int) -> Any:
        from rich.text import Text

        text = Text("\n".join(map(terminal.cell, self.lines(height))), no_wrap=True)
        text.overflow = "ellipsis"
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        return text

    def lines(self, height: int) -> list[str]:
        """The board as it is now, in so many lines."""
        if len(self._runs) > 1:
            return cells(self._runs, self._env, height)
        session = self._runs[0].session
        if session is None:
            return [f"Creating ts/{self._runs[0].name}"]
        output = {"driver": self._driver} if self._driver else {}
        return testsession_board.lines(session, self._env.clock.now(), output)


def cells(runs: Sequence[SessionRun], env: Environment, height: int = 0) -> list[str]:
    """A table of sessions; those that passed give way first where room is short.

    Args:
        runs: all sessions.
        env: the environment.
        height: lines that there are; 0: as many as needed.
    """
    shown = list(runs)
    room = height - 4
    if height and len(shown) > room:
        order = sorted(shown, key=_urgency)[: max(1, room)]
        shown = [run for run in runs if any(run is kept for kept in order)]
    rows = [_row(run, env) for run in shown]
    found = table.render([["TEST", "STATE", "TIME", "DETAIL"], *rows])
    hidden = len(runs) - len(shown)
    return [*found, "", f"{totals(runs)}{f' ({hidden} not shown)' if hidden else ''}"]


def totals(runs: Sequence[SessionRun]) -> str:
    """How many sessions are in which state."""
    counts: dict[str, int] = {}
    for run in runs:
        word = outcome(run).lower()
        counts[word] = counts.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def outcome(run: SessionRun) -> str:
    """The verdict of a session that is over, else its phase."""
    session = run.session
    if run.is_over:
        if session is None and run.skipped:
            return "Skipped"
        return run.verdict
    return "Waiting" if session is None else testsession_view.phase(session)


def took(run: SessionRun, env: Environment) -> str:
    """`` in 12s``; empty where it has not begun."""
    session = run.session
    if session is None:
        return ""
    return f" in {timestamps.age(testsession_view.seconds(session, env.clock.now()))}"


def is_driver(run: SessionRun, source: ContainerLog) -> bool:
    """Whether a log is the driver's."""
    driver = (run.planned.document.get("spec") or {}).get("driver") or {}
    return source.component == (driver.get("name") or "driver")


def _row(run: SessionRun, env: Environment) -> list[str]:
    session = run.session
    detail = run.error or (run.skipped if session is None else testsession_view.detail(session))
    return [run.planned.test, outcome(run), took(run, env).removeprefix(" in "), detail]


def _urgency(run: SessionRun) -> int:
    if run.is_active:
        return 0
    if not run.is_over:
        return 2
    return 1 if run.exit_code else 3
