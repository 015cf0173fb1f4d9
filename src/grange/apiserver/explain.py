"""Explains why a pod is where it is: the seam that ``app`` fills with the schedulers it runs."""

from typing import Protocol

from grange.api.explanation import Explanation
from grange.api.meta import Resource


class Explainer(Protocol):
    """Explains pods."""

    async def explain(self, pod: Resource) -> Explanation:
        """Why the pod is where it is, or why it still waits.

        Raises:
            ApiError: there is no explanation; the message names the remedy.
        """
