"""A word to whoever waits longer than one likes to wait without any."""

from grange.cli import terminal
from grange.cli.surroundings import Surroundings

_AFTER_S = 2.0


class Patience:
    """Says once, on standard error, what is waited for; for loops that mostly end at once.

    Args:
        around: the clock.
        text: what to say.
    """

    def __init__(self, around: Surroundings, text: str) -> None:
        self._clock = around.clock
        self._text = text
        self._due = around.clock.monotonic() + _AFTER_S

    def look(self) -> None:
        """Say it, if it is time and was not said yet."""
        if self._text and self._clock.monotonic() >= self._due:
            terminal.echo(self._text, err=True)
            self._text = ""
