"""Lines that stay in place on a terminal; elsewhere each new state is printed once."""

import contextlib
from collections.abc import AsyncIterator, Callable

from grange.cli import live_display, terminal
from grange.cli.environment import Environment

Draw = Callable[[list[str]], None]


@contextlib.asynccontextmanager
async def opened(env: Environment) -> AsyncIterator[Draw]:
    """A function that shows lines in the place of those before, until the block ends.

    Off a terminal, a state that differs from the last one only in its line ``Time:`` is not printed.
    """
    if not env.interactive:
        known: list[list[str]] = []

        def write(lines: list[str]) -> None:
            steady = [line for line in lines if not line.startswith("Time:")]
            if known != [steady]:
                known[:] = [steady]
                terminal.echo("\n".join([*lines, ""]))

        yield write
        return
    from rich.text import Text

    with live_display.opened(color=env.color) as live:

        def draw(lines: list[str]) -> None:
            live.update(Text("\n".join(map(terminal.cell, lines))), refresh=True)

        yield draw
