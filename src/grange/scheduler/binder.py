"""Binding: tell the cluster what was decided, and find out whether it knows.

An answer settles a binding one way or the other. Without one the outcome is unknown, and then the
pod is read back: giving its capacity to another pod while the lost write may still land would
overcommit the node. A pod that is not bound yet is bound again, always to the same node, until there
is an answer; so no pod is ever bound twice.
"""

from enum import Enum

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.status import (
    ApiError,
    Conflict,
    InternalError,
    NotFound,
    Timeout,
)
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Placed
from grange.scheduler.framework import Bind

_BACKOFF = Exponential(initial_s=0.05, cap_s=5.0)


class Outcome(Enum):
    """How a binding ended.

    ``BOUND``: to our node. ``CONFLICT``: the server refused, and the pod is not on our node.
    ``GONE``: the pod is. ``FAILED``: refused for another reason, and nothing was written.
    ``SETTLED``: the informer told meanwhile; nothing is left to do.
    """

    BOUND = "bound"
    CONFLICT = "conflict"
    GONE = "gone"
    FAILED = "failed"
    SETTLED = "settled"


class Binder:
    """Binds placed pods.

    Args:
        client: where to.
        plugin: how.
        cache: knows which assumptions still stand.
        clock: waits between tries.
        log: what went wrong.
    """

    def __init__(
        self, client: Client, plugin: Bind, cache: Cache, *, clock: Clock, log: Logger
    ) -> None:
        self._client = client
        self._plugin = plugin
        self._cache = cache
        self._clock = clock
        self._log = log

    async def bind(self, placed: Placed) -> Outcome:
        """Bind one pod; returns when the outcome is certain, and never raises for an API error.

        Cancellation: the outcome is unknown; the pod stays assumed.
        """
        tries = 0
        while True:
            try:
                await self._plugin.bind(self._client, placed.info, placed.node_name)
                return Outcome.BOUND
            except NotFound:
                return Outcome.GONE
            except (Conflict, InternalError) as error:
                # The server has answered, so what it holds now is the outcome.
                outcome = await self._read_back(placed)
                if outcome is Outcome.FAILED and isinstance(error, Conflict):
                    outcome = Outcome.CONFLICT
                if outcome is not None:
                    self._log.info("binding refused", pod=str(placed.info.pod.key), error=error)
                    return outcome
            except Timeout as error:
                self._log.warning(
                    "outcome of binding unknown", pod=str(placed.info.pod.key), error=error
                )
                outcome = await self._read_back(placed)
                if outcome is not None and outcome is not Outcome.FAILED:
                    return outcome
            except ApiError as error:
                self._log.warning("binding failed", pod=str(placed.info.pod.key), error=error)
                return Outcome.FAILED
            tries += 1
            await self._clock.sleep(_BACKOFF.delay(tries))
            if not self._cache.is_assumed_pod(placed.info.pod):
                return Outcome.SETTLED

    async def _read_back(self, placed: Placed) -> Outcome | None:
        """What the server holds; FAILED for a pod that is not bound, None when it does not say."""
        meta = placed.info.pod.metadata
        try:
            pod: Pod = await self._client.get(POD, meta.name, meta.namespace)
        except NotFound:
            return Outcome.GONE
        except ApiError:
            return None
        if pod.metadata.uid != meta.uid:
            return Outcome.GONE
        if pod.spec.node_name == placed.node_name:
            return Outcome.BOUND
        return Outcome.CONFLICT if pod.spec.node_name else Outcome.FAILED
