"""The node controller: passes over the pools, one task a machine, one watch a provider."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from grange.api import timestamps
from grange.api.kinds import MACHINE, NAMESPACE, NODEPOOL
from grange.api.kinds.nodepool import DEDICATED, NodePool
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document, ObjectKey, preconditions
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.tasks import Nursery, supervise
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.machine_boot import Bootstrap, NoBootstrap
from grange.machines.controller.machine_events import MachineEvents
from grange.machines.controller.machine_executor import MachineExecutor
from grange.machines.controller.machine_heartbeats import MachineHeartbeats
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.node_controller_config import NodeControllerConfig
from grange.machines.controller.node_dispenser import NodeDispenser
from grange.machines.controller.pass_timer import PassTimer
from grange.machines.controller.pass_window import PassWindow
from grange.machines.controller.pool_pass import PassResult, PoolPass
from grange.machines.controller.pool_status import pool_status
from grange.machines.controller.provider_table import CreateProvider, ProviderTable
from grange.machines.controller.provider_watch import WatchHooks
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.providers import ProviderTools, create_provider
from grange.reconcile import finalizers
from grange.reconcile.controller import Controller, Result
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder

NAME = "machines"

POOL_FINALIZER = "grange.dev/machines"
"""Finalizer of pools: a deleted one stays until its machines have ended."""

_SPACING = 4.0  # a pass is followed by a pause of so many times what it took
_CLUSTER = "kube-system"  # its UID is that of the cluster, and outlives every control plane


@dataclass(frozen=True, slots=True)
class NodeControllerTools:
    """What the program that runs the controller gives it.

    Attributes:
        settings: of providers, by their name.
        bootstrap: prepares the joining of machines.
        create: makes a provider.
        config: intervals and limits.
    """

    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bootstrap: Bootstrap = field(default_factory=NoBootstrap)
    create: CreateProvider = create_provider
    config: NodeControllerConfig = field(default_factory=NodeControllerConfig)


class NodeController:
    """Makes machines for pods that wait; ``run`` it once per API server.

    Args:
        deps: client, informers, clock, randomness, log, metrics.
        tools: providers and settings.

    Attributes:
        dispenser: gives machines to others than waiting pods, too.
        machines: the loop over machines.
    """

    def __init__(self, deps: Deps, tools: NodeControllerTools | None = None) -> None:
        self._deps, self._tools = deps, tools or NodeControllerTools()
        config = self._config = self._tools.config
        self._client, self._clock = deps.client, deps.clock
        self._log = deps.log.bind(controller=NAME)
        self._recorder = Recorder(
            deps.client,
            "node-controller",
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )
        self._events = MachineEvents(self._recorder)
        self._windows: dict[str, PassWindow] = {}
        self._changed = asyncio.Event()
        self.timer = PassTimer()
        self._listers = MachineListers(deps, on_machine=self._wake_machine, on_pool=self._wake_pool)
        self._updater = StatusUpdater(deps.client, deps.clock)
        self._context = NodeControllerContext(
            deps.client, self._listers, self._updater, self._events, config, deps.clock, self._log
        )
        self.dispenser = NodeDispenser(self._context)
        self._passes = PoolPass(self._context, self.dispenser, deps.rng.fork("launches"))
        self._providers: ProviderTable | None = None
        self.machines = Controller(
            NAME,
            self._reconcile,
            workers=config.workers,
            clock=deps.clock,
            rng=deps.rng,
            log=deps.log,
            metrics=deps.metrics,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._listers.synced()
        cluster = (await self._client.get(NAMESPACE, _CLUSTER)).metadata.uid
        tools = ProviderTools(
            cluster, self._clock, self._deps.rng.fork("providers"), self._log, self._tools.settings
        )
        hooks = WatchHooks(self._is_recorded, self._wake_machine, self._wake_pools)
        providers = self._providers = ProviderTable(
            tools, self._listers, self._updater, hooks, self._config, self._tools.create
        )
        self._executor = MachineExecutor(
            self._context,
            self._tools.bootstrap,
            providers.of_machine,
            self._deps.rng.fork("pauses"),
        )
        heartbeats = MachineHeartbeats(self._context, self._terminate, self._wake_machine)
        try:
            async with Nursery(NAME) as nursery:
                providers.begin(nursery)
                self._windows.clear()
                self._wake_pools()
                self.resume_waits()
                nursery.start(self._recorder.run(), name=f"{NAME} events")
                nursery.start(self.machines.run(), name=f"{NAME} machines")
                nursery.start(self._pass_on(), name=f"{NAME} passes")
                nursery.start(
                    supervise("heartbeats", heartbeats.beat, clock=self._clock, log=self._log)
                )
                nursery.start(heartbeats.reap(), name=f"{NAME} reaper")
        finally:
            await providers.close()

    def resume_waits(self) -> None:
        """Look at every machine: what was begun is continued from where its record stands."""
        for machine in self._listers.machines():
            self.machines.enqueue(machine.key)

    async def stop_creating_nodes(self) -> int:
        """End the machines whose launch has no answer yet; returns how many.

        They are found again by their names, so this is for people who want none of them.

        Raises:
            ApiError: a request failed; the machines before it end.
        """
        count = 0
        for machine in self._listers.machines():
            if machine.phase is MachinePhase.CREATING:
                count += await self._terminate(machine.metadata.name)
        return count

    def dump(self) -> bytes:
        """The state of the loops as JSON."""
        timer = self.timer
        return json.dumps(
            {
                "start": timestamps.rfc3339(timer.start) if timer.start else None,
                "end": timestamps.rfc3339(timer.end) if timer.end else None,
                "lastSeconds": timer.last_s,
                "averageSeconds": timer.average_s,
                "count": timer.count,
                "pools": sorted(self._windows),
                "machines": {
                    machine.metadata.name: machine.phase.value
                    for machine in self._listers.machines()
                },
            },
            indent=2,
        ).encode()

    # --- what wakes what --------------------------------------------------------------------------

    def _wake_machine(self, name: str) -> None:
        self.machines.enqueue(ObjectKey("", name))
        self.dispenser.wake()

    def _wake_pool(self, name: str) -> None:
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = self._window(name)
        window.changed(self._clock.monotonic())
        self._changed.set()

    def _wake_pools(self) -> None:
        for pool in self._listers.pools():
            self._wake_pool(pool.metadata.name)

    def _window(self, name: str) -> PassWindow:
        """Where each pod has its own machine, nothing is gained by waiting for more pods."""
        pool, config = self._listers.pool(name), self._config
        alone = pool is None or pool.spec.mode == DEDICATED
        return PassWindow(
            idle_s=0.0 if alone else config.batch_idle_s,
            max_s=config.batch_max_s,
            interval_s=config.pool_interval_s,
            now=self._clock.monotonic(),
        )

    async def _is_recorded(self, machine: str) -> bool:
        try:
            await self._client.get(MACHINE, machine)
        except NotFound:
            return False
        return True

    async def _reconcile(self, key: ObjectKey) -> Result:
        return await self._executor.reconcile(key)

    # --- passes ------------------------------------------------------------------------------------

    async def _pass_on(self) -> None:
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            due = [name for name, window in self._windows.items() if window.due <= now]
            for name in due:
                await self._pass(name)
            if due:
                # What a pass writes wakes the next: between them the other loops have their turn.
                await self._clock.sleep(_SPACING * (self._clock.monotonic() - now))
                continue
            next_due = min((window.due for window in self._windows.values()), default=None)
            try:
                async with self._clock.timeout(None if next_due is None else next_due - now):
                    await self._changed.wait()
            except TimeoutError:
                pass  # a pass is due

    async def _pass(self, name: str) -> None:
        pool, window = self._listers.pool(name), self._windows[name]
        began = self._clock.monotonic()
        window.begin(began)
        if pool is None:
            del self._windows[name]
            return
        start = self._clock.now()
        try:
            if pool.metadata.deletion_timestamp is not None:
                await self._end_pool(pool)
                return
            await self._plan(pool)
        except Conflict:
            window.changed(self._clock.monotonic())
        except ApiError as error:
            self._log.warning("pass failed", pool=name, error=error)
        self.timer.passed(start, self._clock.now(), self._clock.monotonic() - began)

    async def _plan(self, pool: NodePool) -> None:
        if self._providers is None:
            return
        await self._providers.prune()
        if not finalizers.has(pool, POOL_FINALIZER):
            pool = await finalizers.add(self._client, NODEPOOL, pool, POOL_FINALIZER)
            self._listers.wrote_pool(pool)
        watch = self._providers.of_pool(pool)
        if isinstance(watch, str):
            result = PassResult(reason="Misconfigured", message=watch)
        else:
            result = await self._passes.run(pool, watch)
        catalogue = () if isinstance(watch, str) else tuple(watch.catalogue or ())
        if result.changed:
            self._wake_pool(pool.metadata.name)
        now = self._clock.now()
        machines = self._listers.machines_of(pool.metadata.name)
        status = pool_status(pool, machines, catalogue, result, now)
        before = msgspec.to_builtins(pool.status)
        if any(_filled(before.get(key)) != _filled(value) for key, value in status.items()):
            if result.plan is None and result.message:
                self._events.pool(pool, result.reason, result.message)
            patch = {"metadata": preconditions(pool.metadata), "status": status}
            name = pool.metadata.name
            self._listers.wrote_pool(
                await self._client.patch(NODEPOOL, name, patch=patch, subresource="status")
            )

    async def _end_pool(self, pool: NodePool) -> None:
        """End the machines of a deleted pool, and let it go when the last has ended."""
        machines = self._listers.machines_of(pool.metadata.name)
        for machine in machines:
            if not machine.spec.terminate:
                await self._terminate(machine.metadata.name)
        if all(machine.phase is MachinePhase.TERMINATED for machine in machines):
            await finalizers.remove(self._client, NODEPOOL, pool, POOL_FINALIZER)

    async def _terminate(self, name: str) -> bool:
        """Have a machine end; whether it was there."""
        patch: Document = {"spec": {"terminate": True}}
        try:
            self._listers.wrote(await self._client.patch(MACHINE, name, patch=patch))
        except NotFound:
            return False
        return True


def _filled(value: object) -> object:
    """Without fields that a patch removes."""
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if one is not None}
    return value or None
