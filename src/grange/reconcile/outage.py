"""How long to wait for what ends by itself: little, however long it has lasted."""

from grange.api.status import ApiError, Conflict
from grange.client.errors import StreamBroken

OUTAGE_CAP_S = 5.0
"""A longer wait would be added to the outage: nothing is repaired before the server is asked again."""


def is_outage(error: Exception) -> bool:
    """Whether the server failed and not the request.

    A server that accepts a watch and breaks it each time is there; it is asked ever less often.
    """
    server = isinstance(error, ApiError) and error.code >= 500
    return server and not isinstance(error, StreamBroken)


def ends_by_itself(error: Exception) -> bool:
    """Whether a write fails only until the server is back, or until the cache has caught up with it.

    A watch can be silent for minutes. What it then shows need not be what wakes a reconcile: the object
    that was behind may differ in its resourceVersion alone.
    """
    return is_outage(error) or isinstance(error, Conflict)
