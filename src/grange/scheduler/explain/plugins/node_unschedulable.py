"""NodeUnschedulable in words."""

import numpy as np

from grange.placement.columns import Integers
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy


class Cordon:
    """The node must not be cordoned."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self.lacks: Integers = inputs.refused.astype(np.int64)
        self.severity = inputs.nothing()

    def missing(self, row: int) -> list[str]:
        """It is."""
        return ["cordoned"]

    def changes(self, rows: Integers) -> list[Remedy]:
        """Uncordon."""
        return [Remedy("they are uncordoned", rows, 0.3, when=True)]
