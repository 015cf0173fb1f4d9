"""How long an endpoint on another machine is left alone after it could not be reached: pure."""

from grange.agent.service_proxy.routes import Endpoint
from grange.base.backoff import Exponential
from grange.base.bounded import BoundedDict

_DELAYS = Exponential(initial_s=0.5, cap_s=30.0)
_ENDPOINTS_MAX = 1024


class DialBackoff:
    """The endpoints of one frontend that failed lately."""

    def __init__(self) -> None:
        # Failures in a row, and until when the endpoint is left alone.
        self._failures: BoundedDict[Endpoint, tuple[int, float]] = BoundedDict(_ENDPOINTS_MAX)

    def failed(self, endpoint: Endpoint, now: float) -> None:
        """Take note of a failure; one long after the last is a first one."""
        before = self._failures.get(endpoint)
        count = before[0] + 1 if before and now - before[1] < _DELAYS.cap_s else 1
        self._failures[endpoint] = (count, now + _DELAYS.delay(count))

    def answered(self, endpoint: Endpoint) -> None:
        """The endpoint works: its failures are forgotten."""
        self._failures.pop(endpoint, None)

    def waiting(self, now: float) -> frozenset[Endpoint]:
        """The endpoints that are left alone now."""
        return frozenset(item for item, (_, until) in self._failures.items() if now < until)
