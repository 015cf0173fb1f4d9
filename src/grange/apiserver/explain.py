"""Explains pods and pools: the seam that ``app`` fills with the schedulers and the node controller it runs."""

from typing import Protocol

from grange.api.explanation import Explanation
from grange.api.meta import Document, Resource


class Explainer(Protocol):
    """Explains pods and pools."""

    async def explain(self, pod: Resource) -> Explanation:
        """Why the pod is where it is, or why it still waits.

        Raises:
            ApiError: there is no explanation; the message names the remedy.
        """

    async def pool_report(self, what: str, pool: str) -> Document:
        """A report of the node controller about a NodePool: ``plan`` or ``audit``.

        Raises:
            ApiError: there is none; the message names the remedy.
        """
