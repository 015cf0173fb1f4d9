"""What a pass finds out about a controller's node transfers, for those who act on it and tell of it."""

from dataclasses import dataclass, field

from grange.api.kinds.transfer_status import NodeTransfer, TransferBackoff


@dataclass(slots=True)
class Advance:
    """What became of a controller's transfers in a pass.

    Attributes:
        stored: those that may be acted on: stored in this phase before the pass, and still in it.
        after: all of them as they are to be stored.
        backoffs: from which nodes transfers failed lately, as it is to be stored.
        records: type of audit record and transfer, for those that began or ended.
        held_back: why pods on ineligible nodes are not moving, by reason; the first is the most telling.
        failures: what needs an operator, by reason.
        released: nodes that were given back in this pass: nothing more may go there.
        wait_s: seconds until something is due without any news; None for nothing.
        known: whether anybody knows which nodes may be used.
    """

    stored: list[NodeTransfer] = field(default_factory=list)
    after: list[NodeTransfer] = field(default_factory=list)
    backoffs: tuple[TransferBackoff, ...] = ()
    records: list[tuple[str, NodeTransfer]] = field(default_factory=list)
    held_back: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    wait_s: float | None = None
    known: bool = True

    def due(self, seconds: float) -> None:
        """Look again after so many seconds at the latest."""
        self.wait_s = seconds if self.wait_s is None else min(self.wait_s, seconds)
