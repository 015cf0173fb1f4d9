"""The board on a terminal: rich is imported here, and only when there is a terminal."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.cli.rows import Row

_REFRESH_S = 0.1


@asynccontextmanager
async def shown(
    rows: Callable[[], Collection[Row]], *, clock: Clock, color: bool
) -> AsyncIterator[None]:
    """Draw the rows on standard error until the block ends, and leave the last state there.

    Long texts are wrapped. What does not fit on the screen is cut off until the end, when all is shown.
    """
    console = Console(stderr=True, no_color=not color)
    with Live(console=console, auto_refresh=False) as live:

        def draw() -> None:
            live.update(table(rows(), clock.monotonic()), refresh=True)

        async def keep_drawing() -> None:
            while True:
                draw()
                await clock.sleep(_REFRESH_S)

        try:
            async with Nursery("board") as nursery:
                nursery.start(keep_drawing())
                try:
                    yield
                finally:
                    nursery.cancel()
        finally:
            live.vertical_overflow = "visible"
            draw()


def table(rows: Collection[Row], now: float) -> Table:
    """The rows as they are at a time of the monotonic clock."""
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
