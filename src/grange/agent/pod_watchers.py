"""Who is called after every end of a run of a pod."""

from collections.abc import Callable

Watchers = dict[object, Callable[[], None]]


def add(watchers: Watchers, changed: Callable[[], None]) -> Callable[[], None]:
    """Call ``changed`` from now on; returns how to stop that, which may be called again."""
    token = object()
    watchers[token] = changed

    def stop() -> None:
        watchers.pop(token, None)

    return stop
