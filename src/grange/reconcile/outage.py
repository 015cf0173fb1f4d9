"""How long to wait for a server that is away: little, however long it has been away."""

from grange.api.status import ApiError
from grange.client.errors import StreamBroken

OUTAGE_CAP_S = 5.0
"""A longer wait would be added to the outage: nothing is repaired before the server is asked again."""


def is_outage(error: Exception) -> bool:
    """Whether the server failed and not the request.

    A server that accepts a watch and breaks it each time is there; it is asked ever less often.
    """
    server = isinstance(error, ApiError) and error.code >= 500
    return server and not isinstance(error, StreamBroken)
