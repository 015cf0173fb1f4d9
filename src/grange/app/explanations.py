"""The API server's requests to explain pods and pools, passed to what runs in this process."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grange.api.explanation import Explanation, SchedulingState
from grange.api.kinds.pod import Pod
from grange.api.meta import Document, ObjectMeta, Resource
from grange.api.status import NotFound, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.scheduler.errors import SchedulerNotRunning

_STARTS_WITHIN_S = 3.0  # a scheduler that has just been started lists everything first
_LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Answerer:
    """A scheduler.

    Attributes:
        names: the ``schedulerName``s whose pods are its own.
        explain: its answer; None for a pod that is not its own.
    """

    names: frozenset[str]
    explain: Callable[[Pod], Explanation | None]


PoolReport = Callable[[str, str], Awaitable[Document | None]]
"""A report of the node controller, by what it is about and the pool; None while it does not run."""


class Explanations:
    """Asks each scheduler in turn; a control plane that starts has none for a moment.

    Args:
        clock: for the wait for a scheduler that starts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answerers: list[Answerer] = []
        self._pool_report: PoolReport | None = None

    def add(self, names: frozenset[str], explain: Callable[[Pod], Explanation | None]) -> None:
        """A scheduler runs here."""
        self._answerers.append(Answerer(names, explain))

    def report_pools(self, report: PoolReport) -> None:
        """A node controller runs here."""
        self._pool_report = report

    async def pool_report(self, what: str, pool: str) -> Document:
        """A report of the node controller.

        Raises:
            ServiceUnavailable: it does not run here (yet).
        """
        found = None if self._pool_report is None else await self._pool_report(what, pool)
        if found is None:
            raise ServiceUnavailable(
                "no node controller runs in this control plane (yet); start it with `grange up` without "
                "`--disable machines`"
            )
        return found

    async def explain(self, pod: Resource) -> Explanation:
        """Why the pod is where it is; waits some seconds for a scheduler that starts.

        Raises:
            NotFound: it is no pod.
            ServiceUnavailable: no scheduler runs here (yet), or it cannot answer now.
        """
        if not isinstance(pod, Pod):
            raise NotFound(f"{pod.kind or 'this object'} is not scheduled")
        found = await self._answer(pod)
        if found is not None:
            return found
        return _unseen(pod, sorted({name for item in self._answerers for name in item.names}))

    async def _answer(self, pod: Pod) -> Explanation | None:
        until = self._clock.monotonic() + _STARTS_WITHIN_S
        while True:
            try:
                return self._ask(pod)
            except GrangeError as error:
                starts = isinstance(error, SchedulerNotRunning) and self._clock.monotonic() < until
                if not starts:
                    raise ServiceUnavailable(f"the scheduler cannot answer now: {error}") from error
            await self._clock.sleep(_LOOK_S)

    def _ask(self, pod: Pod) -> Explanation | None:
        if not self._answerers:
            raise SchedulerNotRunning(
                "none runs in this control plane; `grange up` starts one without `--disable scheduler`"
            )
        answers = (answerer.explain(pod) for answerer in self._answerers)
        return next((answer for answer in answers if answer is not None), None)


def _unseen(pod: Pod, names: list[str]) -> Explanation:
    meta = pod.metadata
    wanted = pod.spec.scheduler_name
    if pod.spec.node_name:
        state, summary = (
            SchedulingState.PLACED,
            f"is on {pod.spec.node_name}, by scheduler {wanted!r}",
        )
        hint = "that scheduler does not run here, so it cannot be asked"
    else:
        state = SchedulingState.UNSEEN
        summary = f"waits for scheduler {wanted!r}, and no scheduler here has that name"
        hint = f"start that scheduler, or create the pod with schedulerName {' or '.join(names)}"
    return Explanation(
        metadata=ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid),
        state=state,
        summary=summary,
        hint=hint,
        node=pod.spec.node_name,
    )
