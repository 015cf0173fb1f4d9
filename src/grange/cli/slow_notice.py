"""A notice for users who wait longer than two seconds."""

from grange.cli import terminal
from grange.cli.environment import Environment

_AFTER_S = 2.0


class SlowNotice:
    """Prints once, on standard error, what is waited for; for loops that mostly end at once.

    Args:
        env: the clock.
        text: the notice.
    """

    def __init__(self, env: Environment, text: str) -> None:
        self._clock = env.clock
        self._text = text
        self._due = env.clock.monotonic() + _AFTER_S

    def check(self) -> None:
        """Print the notice if it is due and was not printed yet."""
        if self._text and self._clock.monotonic() >= self._due:
            terminal.echo(self._text, err=True)
            self._text = ""
