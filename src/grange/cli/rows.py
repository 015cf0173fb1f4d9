"""A line of the board."""

from dataclasses import dataclass, field

from grange.cli import readiness


@dataclass(slots=True)
class Row:
    """One thing that is waited for.

    Attributes:
        label: what it is, e.g. ``grc/web``.
        since: when it was put up, on the monotonic clock.
        state: how far it is.
        ended: when it was done or failed.
    """

    label: str
    since: float
    state: readiness.State = field(
        default_factory=lambda: readiness.State(done=False, text="waiting")
    )
    ended: float | None = None

    @property
    def mark(self) -> str:
        """One character that says how it goes."""
        return "✔" if self.state.done else "✘" if self.state.failed else "…"

    def elapsed_s(self, now: float) -> float:
        """Seconds since it was put up, or that it took."""
        return (self.ended if self.ended is not None else now) - self.since
