"""A service that runs with the API server."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Runnable:
    """One service.

    Attributes:
        name: for logs and metrics.
        run: starts it afresh each time it is called.
    """

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]
