"""NodeUnschedulable in words."""

import numpy as np

from grange.placement.columns import Integers
from grange.scheduler.why.demand import Case, Clause


class Cordon:
    """The node must not be cordoned."""

    def __init__(self, case: Case) -> None:
        self.lacks: Integers = case.refused.astype(np.int64)
        self.severity = case.nothing()

    def missing(self, row: int) -> list[str]:
        """It is."""
        return ["cordoned"]

    def changes(self, rows: Integers) -> list[Clause]:
        """Uncordon."""
        return [Clause("they are uncordoned", rows, 0.3, when=True)]
