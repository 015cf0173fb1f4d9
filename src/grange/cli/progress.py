"""Progress of a wait: a row for each object, on standard error.

On a terminal the rows stay in place and count seconds; elsewhere, a plain line is printed each time
a state changes. Pipes see only answers. rich is imported only where there is a terminal.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.cli import live_display, readiness, terminal
from grange.cli.environment import Environment

_REFRESH_S = 0.1


@dataclass(slots=True)
class ProgressRow:
    """One object that is waited for.

    Attributes:
        label: what it is, e.g. ``grc/web``.
        since: when it was added, on the monotonic clock.
        state: its last known state.
        ended: when it was done or failed.
    """

    label: str
    since: float
    state: readiness.WaitState = field(
        default_factory=lambda: readiness.WaitState(done=False, text="waiting")
    )
    ended: float | None = None

    @property
    def mark(self) -> str:
        """One character for the state."""
        return "✔" if self.state.done else "✘" if self.state.failed else "…"

    def elapsed_s(self, now: float) -> float:
        """Seconds since it was added, or until it ended."""
        return (self.ended if self.ended is not None else now) - self.since


class Progress:
    """A row for each object; ``update`` changes one, ``shown`` draws all while a block runs."""

    def __init__(self, env: Environment) -> None:
        self._clock: Clock = env.clock
        self._env = env
        self.rows: dict[str, ProgressRow] = {}

    def add(self, label: str) -> None:
        """Add a row."""
        self.rows[label] = ProgressRow(terminal.cell(label), self._clock.monotonic())

    def update(self, label: str, state: readiness.WaitState) -> None:
        """Change a row; off a terminal, print the change."""
        row = self.rows[label]
        state = replace(state, text=terminal.cell(state.text))
        is_shown = (state.done, state.failed, state.text) == (
            row.state.done,
            row.state.failed,
            row.state.text,
        )
        row.state = state
        if is_shown:
            return
        if state.done or state.failed:
            row.ended = self._clock.monotonic()
        if not self._env.interactive:
            elapsed_s = row.elapsed_s(self._clock.monotonic())
            terminal.echo(f"{elapsed_s:6.1f}s  {row.mark} {label}  {state.text}", err=True)

    @contextlib.asynccontextmanager
    async def shown(self) -> AsyncIterator["Progress"]:
        """Show the rows until the block ends."""
        if not self._env.interactive:
            yield self
            return
        async with _drawn(self.rows.values, clock=self._clock, color=self._env.color):
            yield self


@contextlib.asynccontextmanager
async def _drawn(
    rows: Callable[[], Collection[ProgressRow]], *, clock: Clock, color: bool
) -> AsyncIterator[None]:
    """Draw the rows on standard error until the block ends, and leave the last state there.

    Long texts are wrapped. What does not fit on the screen is cut off until the end, when all is shown.
    """
    with live_display.opened(color=color, err=True) as live:

        def draw() -> None:
            live.update(table(rows(), clock.monotonic()), refresh=True)

        async with redrawn(live, draw, clock, _REFRESH_S):
            yield


@contextlib.asynccontextmanager
async def redrawn(
    live: Any, draw: Callable[[], None], clock: Clock, every_s: float
) -> AsyncIterator[None]:
    """Draw a live display again and again while the block runs, and whole at its end.

    Args:
        live: of rich.
        draw: updates it.
        clock: time.
        every_s: seconds between.
    """

    async def keep_drawing() -> None:
        while True:
            draw()
            await clock.sleep(every_s)

    try:
        async with Nursery("progress") as nursery:
            nursery.start(keep_drawing())
            try:
                yield
            finally:
                nursery.cancel()
    finally:
        live.vertical_overflow = "visible"
        draw()


def table(rows: Collection[ProgressRow], now: float) -> Any:
    """The rows as they are at a time of the monotonic clock."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for row in rows:
        style = "green" if row.state.done else "red" if row.state.failed else "yellow"
        grid.add_row(
            Text(row.mark, style=style),
            Text(row.label, style="bold"),
            Text(row.state.text, overflow="fold"),
            Text(f"{row.elapsed_s(now):.1f}s", style="dim"),
        )
    return grid
