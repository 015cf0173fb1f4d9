"""Faults of the simulated cloud in a given order."""

from collections import defaultdict, deque

from grange.machines.providers.simulated.cloud_faults import CloudFault


class ScriptedFaults:
    """Faults in a given order, by the name of the call."""

    def __init__(self) -> None:
        self._next: defaultdict[str, deque[CloudFault]] = defaultdict(deque)

    def add(self, call: str, *faults: CloudFault) -> None:
        """The next calls of this name have these faults, one each."""
        self._next[call].extend(faults)

    def __call__(self, call: str, subject: str) -> CloudFault | None:
        """The fault of a call."""
        waiting = self._next.get(call)
        return waiting.popleft() if waiting else None
