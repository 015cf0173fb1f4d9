"""How often Python looks for reference cycles, and among what."""

import gc

_YOUNGEST = 20_000  # allocations; the default of 700 makes a server at work look thousands of times a second
_MIDDLE, _OLDEST = 20, 50


def tune() -> None:
    """Look for cycles less often; to be called before anything of size is made.

    Requests make few cycles and many short-lived objects, and stored objects stay: with the default
    thresholds a sixth of the time of a pod's creation went into looking for garbage. Modules stay, too:
    an agent loads its own in 8 % less.
    """
    gc.set_threshold(_YOUNGEST, _MIDDLE, _OLDEST)


def settle() -> None:
    """Throw away what start-up left over and never look at the rest again.

    To be called once, when the server is ready: modules, classes and the parts of the server live
    as long as the process, so every full collection would walk them for nothing. Blocks the loop
    for that one collection, some 20 to 40 ms.
    """
    gc.collect()
    gc.freeze()
