"""Trials by load: whether a pod passes where a node's load alone decides, without copies of nodes.

Most pods ask a node for amounts only. Then adding or taking away a pod is a step from one load to
another, and as equal loads are one object, what a pod is told by a load is asked once and remembered.
"""

from collections.abc import Iterable

from grange.placement.loads import Load
from grange.scheduler.dry_run import DryRun
from grange.scheduler.framework import SUCCESS, Scope, Status
from grange.scheduler.nodeinfo import NodeInfo, PodInfo, charged

_KEPT = 10_000


class LoadDryRun:
    """What loads say to pods of one signature.

    Args:
        trial: of any pod of the signature; ``suits`` it.

    Attributes:
        asked: how many loads the filters were asked about (a work counter).
    """

    __slots__ = ("_filters", "_known", "_pod", "_refusals", "_state", "_stub", "asked")

    def __init__(self, trial: DryRun) -> None:
        self._pod = trial.pod
        self._state = trial.state
        self._filters = trial.by_usage
        self._known: dict[Load, Status] = {}
        self._refusals: dict[Status, Status] = {}  # equal ones are one object
        self._stub = NodeInfo("")
        self.asked = 0

    @staticmethod
    def suits(trial: DryRun) -> bool:
        """Whether node objects and loads decide alone, and node objects first."""
        scopes = [item.scope for _, item in trial.filters]
        first = len(scopes) - len(trial.by_usage)
        return (
            not trial.rules
            and all(scope is Scope.NODE for scope in scopes[:first])
            and all(scope is Scope.LOAD for scope in scopes[first:])
        )

    def status(self, load: Load) -> Status:
        """What the pod is told by a load, on a node whose object lets it pass."""
        found = self._known.get(load)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
                self._refusals.clear()
            found = self._known[load] = self._ask(load)
        return found

    def beside(self, load: Load, nominated: Iterable[PodInfo]) -> Status:
        """The same where it has to pass with these pods added, too."""
        more = load
        for info in nominated:
            more = charged(more, info)
        found = self.status(more)
        return self.status(load) if found is SUCCESS and more is not load else found

    def _ask(self, load: Load) -> Status:
        self.asked += 1
        stub = self._stub
        stub.load = load
        for name, plugin in self._filters:
            status = plugin.filter(self._state, self._pod, stub)
            if status is not SUCCESS and not status.ok:
                refusal = Status(status.code, status.reasons, name)
                return self._refusals.setdefault(refusal, refusal)
        return SUCCESS
