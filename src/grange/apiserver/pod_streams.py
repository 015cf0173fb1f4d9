"""Where connections into pods lead: the seam that ``app`` fills with the nodes' agents."""

from typing import Protocol

from grange.api.http import Response
from grange.api.meta import Document
from grange.api.stream_requests import StreamRequest


class PodStreams(Protocol):
    """Opens connections into pods: commands, main processes and ports."""

    async def open(self, pod: Document, request: StreamRequest) -> Response:
        """Open a connection to a pod that is bound to a node.

        What is asked for is checked first and the protocol last, so that a client without a usable
        protocol learns what else is wrong.

        Args:
            pod: as stored.
            request: what is wanted; the container is one of the pod's.

        Returns:
            The answer with an ``upgrade`` and its subprotocol; nothing has begun yet.

        Raises:
            ApiError: it cannot be opened.
        """
