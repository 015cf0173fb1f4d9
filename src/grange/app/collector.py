"""How often Python looks for reference cycles in a server."""

import gc

_YOUNGEST = 20_000  # allocations; the default of 700 makes a server at work look thousands of times a second
_MIDDLE, _OLDEST = 20, 50


def tune() -> None:
    """Leave what start-up made alone, and look for cycles less often.

    Requests make few cycles and many short-lived objects, and stored objects stay: with the default
    thresholds a sixth of the time of a pod's creation went into looking for garbage.
    """
    gc.freeze()
    gc.set_threshold(_YOUNGEST, _MIDDLE, _OLDEST)
