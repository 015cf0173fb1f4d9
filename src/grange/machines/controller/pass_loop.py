"""When passes are made, over which pools, and what they leave in the status of each."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from grange.api.kinds import NODEPOOL
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import DEDICATED, PACKED, NodePool
from grange.api.machine_phases import MachinePhase
from grange.api.meta import preconditions
from grange.api.status import ApiError, Conflict
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.metrics import ANY_PACKED
from grange.machines.controller.packed_pass import PackedPass
from grange.machines.controller.pass_timer import PassTimer
from grange.machines.controller.pass_window import PassWindow
from grange.machines.controller.pool_pass import PassResult, PoolPass
from grange.machines.controller.pool_status import (
    TERMINATING,
    drain_message,
    is_terminating,
    pool_status,
    remaining,
    total_price,
)
from grange.machines.controller.provider_calls import MISCONFIGURED
from grange.machines.controller.provider_table import ProviderTable
from grange.machines.controller.provider_watch import ProviderWatch
from grange.machines.scaling.machine_requests import ended_requests
from grange.machines.scaling.pod_needs import waits_for
from grange.reconcile import finalizers
from grange.reconcile.outage import ends_by_itself

POOL_FINALIZER = "grange.dev/machines"
"""Finalizer of pools: a deleted one stays until its machines have ended."""

PACKED_POOLS = ""
"""Stands for all packed pools, which have one pass together; no pool is called so."""

_SPACING = 4.0  # a pass is followed by a pause of so many times what its plan took


class PassLoop:
    """Makes one pass at a time.

    Args:
        context: tools.
        dedicated: the pass over a dedicated pool.
        packed: the pass over the packed ones.

    Attributes:
        timer: times of passes.
    """

    def __init__(
        self,
        context: NodeControllerContext,
        dedicated: PoolPass,
        packed: PackedPass,
    ) -> None:
        self._client, self._listers, self._events = context.client, context.listers, context.events
        self._config, self._clock, self._log = context.config, context.clock, context.log
        self._metrics = context.metrics
        self._dedicated, self._packed = dedicated, packed
        self._windows: dict[str, PassWindow] = {}
        self._changed = asyncio.Event()
        self.timer = PassTimer()
        self._plan_s = 0.0

    @property
    def passes(self) -> Sequence[str]:
        """Names of the pools that have passes, sorted; ``PACKED_POOLS`` for all packed ones."""
        return sorted(self._windows)

    def wake(self, pool: str) -> None:
        """A plan for the pool may differ now."""
        found = self._listers.pool(pool)
        ends = found is not None and found.metadata.deletion_timestamp is not None
        packed = found is not None and found.spec.mode != DEDICATED and not ends
        name = PACKED_POOLS if packed else pool
        window = self._windows.get(name)
        if window is None:
            # Where each pod has its own machine, nothing is gained by waiting for more pods.
            window = self._windows[name] = PassWindow(
                idle_s=self._config.batch_idle_s if name == PACKED_POOLS else 0.0,
                max_s=self._config.batch_max_s,
                interval_s=self._config.pool_interval_s,
                now=self._clock.monotonic(),
            )
        window.changed(self._clock.monotonic())
        self._changed.set()

    def wake_packed(self) -> None:
        """A pod waits that a packed pool may serve."""
        for pool in self._packed_pools()[:1]:
            self.wake(pool.metadata.name)

    def wake_all(self) -> None:
        """A plan for any pool may differ now."""
        for pool in self._listers.pools():
            self.wake(pool.metadata.name)

    async def run(self, providers: ProviderTable) -> None:
        """Make passes until cancelled."""
        self._windows.clear()
        self.wake_all()
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            due = [name for name, window in self._windows.items() if window.due <= now]
            self._plan_s = 0.0
            for name in due:
                await self._pass(name, providers)
            if due:
                # What a pass writes wakes the next: between them the other loops have their turn.
                await self._clock.sleep(_SPACING * self._plan_s)
                continue
            next_due = min((window.due for window in self._windows.values()), default=None)
            try:
                async with self._clock.timeout(None if next_due is None else next_due - now):
                    await self._changed.wait()
            except TimeoutError:
                pass  # a pass is due

    async def _pass(self, name: str, providers: ProviderTable) -> None:
        window, began = self._windows[name], self._clock.monotonic()
        window.begin(began)
        start = self._clock.now()
        try:
            await providers.prune()
            if name == PACKED_POOLS:
                await self._plan_packed(providers)
            elif (pool := self._listers.pool(name)) is None:
                del self._windows[name]
                self._metrics.forget(name)
            elif pool.metadata.deletion_timestamp is not None:
                await self._end(pool, providers)
            elif pool.spec.mode == DEDICATED:
                await self._plan(pool, providers)
            else:
                del self._windows[name]
        except Conflict:
            window.changed(self._clock.monotonic())
        except ApiError as error:
            self._log.warning("pass failed", pool=name, error=error)
        except Exception as error:  # noqa: BLE001  supervision point: a crash costs one pool its pass
            self._log.error("pass crashed", pool=name, error=error)
        seconds = self._clock.monotonic() - began
        self._metrics.passed(PACKED if name == PACKED_POOLS else DEDICATED, seconds)
        self.timer.passed(start, self._clock.now(), seconds)

    # --- plans -------------------------------------------------------------------------------------

    async def _plan(self, pool: NodePool, providers: ProviderTable) -> None:
        pool = await self._without_ended_requests(await self._held(pool))
        watch = providers.usable(pool)
        if isinstance(watch, str):
            result = PassResult(reason=MISCONFIGURED, message=watch)
        else:
            result = await self._dedicated.run(pool, watch)
        if result.refusal:
            self._refuse(pool, f"pool {pool.metadata.name} cannot be used: {result.refusal}")
        await self._finish(pool, watch, result)

    def _refuse(self, pool: NodePool, why: str) -> None:
        """Report to the pods that wait for a pool why they get no machine."""
        name = pool.metadata.name
        pods = [pod for pod in self._listers.pods_for(name) if waits_for(pod, name)]
        self._events.skipped({pod.metadata.uid: (pod, why) for pod in pods})

    async def _plan_packed(self, providers: ProviderTable) -> None:
        packed = self._packed_pools()
        if packed:
            names = [pool.metadata.name for pool in packed]
            self._metrics.waiting_packed(self._listers.unschedulable(), names, self._clock.now())
        else:
            self._metrics.forget(ANY_PACKED)
        pools = [await self._usable(pool, providers) for pool in packed]
        if not pools:
            self._windows.pop(PACKED_POOLS, None)
            return
        results = await self._packed.run(pools)
        failure: ApiError | None = None
        for pool, watch in pools:
            try:
                await self._finish(pool, watch, results[pool.metadata.name])
            except ApiError as error:  # the status of one pool holds up no other
                failure = failure or error
        if failure is not None:
            raise failure

    async def _usable(
        self, pool: NodePool, providers: ProviderTable
    ) -> tuple[NodePool, ProviderWatch | str]:
        """A pool with its finalizer and its provider, or why it cannot be used.

        Raises:
            ApiError: the server is away, or the pool has changed.
        """
        try:
            return await self._held(pool), providers.usable(pool)
        except ApiError as error:
            if ends_by_itself(error):
                raise
            return pool, f"it cannot be written to: {error.message}"

    def _packed_pools(self) -> Sequence[NodePool]:
        return [
            pool
            for pool in self._listers.pools()
            if pool.spec.mode != DEDICATED and pool.metadata.deletion_timestamp is None
        ]

    async def _held(self, pool: NodePool) -> NodePool:
        if not finalizers.has(pool, POOL_FINALIZER):
            pool = await finalizers.add(self._client, NODEPOOL, pool, POOL_FINALIZER)
            self._listers.wrote_pool(pool)
        return pool

    async def _without_ended_requests(self, pool: NodePool) -> NodePool:
        ended = ended_requests(pool, self._clock.now())
        if not ended:
            return pool
        annotations = dict.fromkeys(ended)
        patch = {"metadata": {**preconditions(pool.metadata), "annotations": annotations}}
        pool = await self._client.patch(NODEPOOL, pool.metadata.name, patch=patch)
        self._listers.wrote_pool(pool)
        return pool

    async def _finish(self, pool: NodePool, watch: ProviderWatch | str, result: PassResult) -> None:
        """Write the status of a pool, if it is another one."""
        name = pool.metadata.name
        self._plan_s += result.plan_s
        if result.changed:
            self.wake(name)
        catalogue = () if isinstance(watch, str) else tuple(watch.catalogue or ())
        machines, now = self._listers.machines_of(name), self._clock.now()
        self._metrics.pool(name, machines, total_price(machines))
        if pool.spec.mode == DEDICATED:
            pods = [pod for pod in self._listers.pods_for(name) if waits_for(pod, name)]
            self._metrics.waiting(name, pods, now)
        status = pool_status(pool, machines, catalogue, result, now)
        before = msgspec.to_builtins(pool.status)
        if all(_filled(before.get(key)) == _filled(value) for key, value in status.items()):
            return
        if result.message and result.reason != TERMINATING:
            self._events.pool(pool, result.reason, result.message)
        patch = {"metadata": preconditions(pool.metadata), "status": status}
        self._listers.wrote_pool(
            await self._client.patch(NODEPOOL, name, patch=patch, subresource="status")
        )

    async def _end(self, pool: NodePool, providers: ProviderTable) -> None:
        """Show what a deleted pool waits for, and let it go when its last machine has ended."""
        name, watch = pool.metadata.name, providers.of_pool(pool)
        machines = self._listers.machines_of(name)
        left = [each for each in machines if each.phase is not MachinePhase.TERMINATED]
        if not left:
            await finalizers.remove(self._client, NODEPOOL, pool, POOL_FINALIZER)
            return
        error = watch if isinstance(watch, str) else watch.error
        result = PassResult(
            reason=TERMINATING, message=remaining(left, error, self._drains(pool, left))
        )
        if not is_terminating(pool):
            self._events.terminating(pool, result.message)
        await self._finish(pool, watch, result)
        self._refuse(pool, f"pool {name} is being deleted; select another one")

    def _drains(self, pool: NodePool, machines: Sequence[Machine]) -> Mapping[str, str]:
        """What the drains of machines of a deleted pool wait for, by name."""
        disruption, now = pool.spec.disruption, self._clock.now()
        return {
            one.metadata.name: drain_message(
                one, self._listers.remaining_on(one.node), disruption, now
            )
            for one in machines
        }


def _filled(value: object) -> object:
    """Without fields that a patch removes."""
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if one is not None} or None
    return value or None
