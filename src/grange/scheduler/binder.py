"""Binding: write the decisions to the cluster, and find out whether they are written.

Assumed pods wait here for a moment and are written in groups, so that a busy scheduler pays for a
request once in a hundred pods and a lone pod is not delayed. Each pod has a separate result.

An answer that it was made or refused completes a binding. After a server error the pod is read:
what the server holds is the outcome. Without an answer the outcome is unknown, and then the pod is
read back, too: giving its capacity to another pod while the lost write may still land would
overcommit the node. A pod that is not bound yet is bound again, always to the same node, until there
is an answer; so no pod is ever bound twice. Only a pod that nothing was sent of yet is not bound at
all when its node is gone by then.
"""

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.status import (
    ApiError,
    Conflict,
    NotFound,
    Timeout,
)
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.errors import Unreachable
from grange.scheduler.cache import Cache
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Assumed
from grange.scheduler.framework import Bind

_BACKOFF = Exponential(initial_s=0.05, cap_s=5.0)


class BindOutcome(Enum):
    """How a binding ended.

    ``BOUND``: to our node. ``CONFLICT``: the server refused, and the pod is not on our node.
    ``GONE``: the pod is. ``FAILED``: refused for another reason, or its node was gone before it was
    sent; nothing was written.
    ``SETTLED``: the informer showed the outcome meanwhile; nothing is left to do.
    """

    BOUND = "bound"
    CONFLICT = "conflict"
    GONE = "gone"
    FAILED = "failed"
    SETTLED = "settled"

    __hash__ = object.__hash__  # members are singletons; the inherited one is slow


class Binder:
    """Binds assumed pods.

    Args:
        cache: which assumptions still stand.
        complete: called with pods that had the same outcome, at least one, and with the server's
            message if it refused the binding of a pod that has no node.

    Attributes:
        under_way: by UID the pods that were put in and whose outcome is not known.
    """

    def __init__(
        self,
        client: Client,
        bind: Bind,
        cache: Cache,
        complete: Callable[[Sequence[Assumed], BindOutcome, str], object],
        *,
        config: SchedulerConfig,
        clock: Clock,
        log: Logger,
    ) -> None:
        self.under_way: dict[str, Assumed] = {}
        self._client = client
        self._bind = bind
        self._cache = cache
        self._complete = complete
        self._config = config
        self._clock = clock
        self._log = log
        self._waiting: deque[Assumed] = deque()
        self._unsure: set[str] = set()  # UIDs of those that wait and may be bound already
        self._nursery: Nursery | None = None
        self._at_work = 0

    @property
    def full(self) -> bool:
        """Whether no more pods should be put in for now."""
        return len(self.under_way) >= self._config.backlog

    def start(self, nursery: Nursery) -> None:
        """Work in this nursery from now on.

        What was under way in another one is bound again: its outcome is unknown.
        """
        self._nursery, self._at_work = nursery, 0
        self._waiting.clear()
        self._waiting.extend(self.under_way.values())
        self._unsure = {*self.under_way}

    def forget_all(self) -> None:
        """Drop what is under way; the next scheduler finds out what is bound."""
        self.under_way.clear()
        self._waiting.clear()
        self._unsure.clear()

    def put(self, assumed: Assumed) -> None:
        """Take in a pod; it is written after the next ``work``."""
        self.under_way[assumed.info.uid] = assumed
        self._waiting.append(assumed)

    def work(self) -> None:
        """See to it that what was put in is being written: by as many tasks as there are groups."""
        config, nursery = self._config, self._nursery
        groups = self._at_work + -(-len(self._waiting) // config.binding_group)
        while nursery is not None and self._at_work < min(config.binders, groups):
            self._at_work += 1
            nursery.start(self._write_groups(nursery), name="scheduler binder")

    async def _write_groups(self, nursery: Nursery) -> None:
        """Write groups until nothing waits.

        Cancellation: the outcome is unknown; the pods stay assumed.
        """
        while self._waiting:
            group = self._next_group()
            if group:
                answers = await self._write(group)
                bound: list[Assumed] = []
                for assumed, error in zip(group, answers, strict=True):
                    if error is None:
                        bound.append(assumed)
                    else:
                        nursery.start(self._pursue(assumed, error), name="scheduler binder")
                self._end(bound, BindOutcome.BOUND)
        self._at_work -= 1

    def _next_group(self) -> Sequence[Assumed]:
        """The first waiting pods that are still to be bound."""
        size = min(len(self._waiting), self._config.binding_group)
        group: list[Assumed] = []
        settled: list[Assumed] = []
        lost: list[Assumed] = []
        for _ in range(size):
            assumed = self._waiting.popleft()
            uid = assumed.info.uid
            if not self._cache.is_assumed_pod(assumed.info.pod):
                settled.append(assumed)
            elif assumed.node_name in self._cache.node_tree or uid in self._unsure:
                group.append(assumed)
            else:
                lost.append(assumed)
            self._unsure.discard(uid)
        self._end(settled, BindOutcome.SETTLED)
        self._end(lost, BindOutcome.FAILED)
        return group

    async def _write(self, group: Sequence[Assumed]) -> Sequence[ApiError | None]:
        placements = [(assumed.info, assumed.node_name) for assumed in group]
        return await self._bind(self._client, placements)

    def _end(self, group: Sequence[Assumed], outcome: BindOutcome, message: str = "") -> None:
        for assumed in group:
            self.under_way.pop(assumed.info.uid, None)
        if group:
            self._complete(group, outcome, message)

    async def _pursue(self, assumed: Assumed, error: ApiError) -> None:
        """Find out what became of a binding that was not simply accepted."""
        self._end((assumed,), *await self._outcome(assumed, error))

    async def _outcome(self, assumed: Assumed, error: ApiError | None) -> tuple[BindOutcome, str]:
        """The outcome, and the server's message if it is a refusal."""
        tries = 0
        while error is not None:
            found = await self._judge(assumed, error)
            if found is not None:
                return found
            tries += 1
            await self._clock.sleep(_BACKOFF.delay(tries))
            if not self._cache.is_assumed_pod(assumed.info.pod):
                return BindOutcome.SETTLED, ""
            (error,) = await self._write((assumed,))
        return BindOutcome.BOUND, ""

    async def _judge(self, assumed: Assumed, error: ApiError) -> tuple[BindOutcome, str] | None:
        """The outcome that an error implies; None when the binding has to be tried again."""
        pod = str(assumed.info.pod.key)
        match error:
            case NotFound():
                return BindOutcome.GONE, ""
            case Timeout():
                self._log.warning("outcome of binding unknown", pod=pod, error=error)
                outcome = await self._read_back(assumed)
                return None if outcome in {BindOutcome.FAILED, None} else (outcome, "")
            case _ if isinstance(error, Unreachable) or (
                error.code < 500 and not isinstance(error, Conflict)
            ):
                # Nothing was sent, or the request was refused.
                self._log.warning("binding failed", pod=pod, error=error)
                return BindOutcome.FAILED, "" if isinstance(error, Unreachable) else str(error)
            case _:
                # There was an answer, so what the server holds now is the outcome. A 5xx shows
                # nothing by itself: it may come from a proxy that gave up on a write that was made.
                outcome = await self._read_back(assumed)
                if outcome is None:
                    return None
                self._log.info("binding refused", pod=pod, error=error)
                if outcome is BindOutcome.FAILED and isinstance(error, Conflict):
                    return BindOutcome.CONFLICT, str(error)
                return outcome, ""

    async def _read_back(self, assumed: Assumed) -> BindOutcome | None:
        """What the server holds; FAILED for a pod that is not bound, None when it does not answer."""
        meta = assumed.info.pod.metadata
        try:
            pod: Pod = await self._client.get(POD, meta.name, meta.namespace)
        except NotFound:
            return BindOutcome.GONE
        except ApiError:
            return None
        if pod.metadata.uid != meta.uid:
            return BindOutcome.GONE
        if pod.spec.node_name == assumed.node_name:
            return BindOutcome.BOUND
        return BindOutcome.CONFLICT if pod.spec.node_name else BindOutcome.FAILED
