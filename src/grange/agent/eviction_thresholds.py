"""The thresholds of disk pressure, in the words of a kubelet: ``nodefs.available<10%``; pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from grange.agent.node_disk import FileSystemStats
from grange.api import quantity
from grange.base.errors import GrangeError

DEFAULT_THRESHOLDS = "nodefs.available<1Gi,nodefs.inodesFree<1%"
"""Far below those of a kubelet (10 % and 5 %): a disk that is shared with people is often that full."""
NO_THRESHOLDS = "none"
AVAILABLE, INODES_FREE = "nodefs.available", "nodefs.inodesFree"
_SIGNALS = {AVAILABLE: "ephemeral-storage", INODES_FREE: "inodes"}


class ThresholdError(GrangeError):
    """A threshold is malformed."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """When a node has disk pressure.

    Attributes:
        signal: ``nodefs.available`` or ``nodefs.inodesFree``.
        text: the least that is enough, as it was written.
        share: of what the file system has; None where it is an amount.
        amount: in bytes or inodes.
    """

    signal: str
    text: str
    share: Fraction | None = None
    amount: int = 0

    @property
    def resource(self) -> str:
        """What is low, as a kubelet names it."""
        return _SIGNALS[self.signal]

    def left(self, stats: FileSystemStats) -> str:
        """What is left, for people."""
        if self.signal == AVAILABLE:
            return quantity.format_binary(stats.available)
        return str(stats.inodes_free)

    def is_met(self, stats: FileSystemStats) -> bool:
        """Whether less is left than is enough; never where the file system counts none."""
        if self.signal == AVAILABLE:
            return stats.available < self._least(stats.capacity)
        return stats.inodes_free < self._least(stats.inodes)

    def _least(self, whole: int) -> int:
        if not whole:
            return 0
        return self.amount if self.share is None else int(whole * self.share)


def parse(text: str) -> tuple[Threshold, ...]:
    """The thresholds that a setting names.

    Args:
        text: ``SIGNAL<AMOUNT`` or ``SIGNAL<PERCENT%``, separated by commas; ``none`` for none.

    Raises:
        ThresholdError: it has another form, or names an unknown signal.
    """
    if text.strip() == NO_THRESHOLDS:
        return ()
    return tuple(_parsed(part.strip()) for part in text.split(","))


def _parsed(part: str) -> Threshold:
    signal, sign, value = (piece.strip() for piece in part.partition("<"))
    if not sign or signal not in _SIGNALS:
        raise ThresholdError(
            f'"{part}": must be SIGNAL<AMOUNT or SIGNAL<PERCENT%, the signal one of '
            f"{', '.join(_SIGNALS)}, or {NO_THRESHOLDS} alone"
        )
    try:
        if value.endswith("%"):
            share = Fraction(value[:-1]) / 100
            if 0 <= share < 1:
                return Threshold(signal, value, share=share)
        elif (amount := quantity.value(value)) >= 0:
            return Threshold(signal, value, amount=amount)
    except (ValueError, quantity.QuantityError) as error:
        raise _malformed(part, value) from error
    raise _malformed(part, value)


def _malformed(part: str, value: str) -> ThresholdError:
    return ThresholdError(f'"{part}": "{value}" is neither a quantity nor a percentage below 100')


def first_met(thresholds: Iterable[Threshold], stats: FileSystemStats) -> Threshold | None:
    """The first threshold that is met; None while there is enough of everything."""
    return next((item for item in thresholds if item.is_met(stats)), None)
