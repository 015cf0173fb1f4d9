"""The node controller: passes over the pools, one task a machine, one watch a provider."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grange.api import timestamps
from grange.api.kinds import MACHINE, NAMESPACE, NODEPOOL
from grange.api.kinds.machine import Machine
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document, ObjectKey, preconditions
from grange.api.scheme import AnyKind
from grange.api.status import ApiError, NotFound
from grange.base.backoff import Exponential
from grange.base.tasks import Nursery, supervise
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.disruption_loop import DisruptionLoop
from grange.machines.controller.interruption_notices import InterruptionNotices
from grange.machines.controller.machine_boot import Bootstrap, NoBootstrap
from grange.machines.controller.machine_events import MachineEvents
from grange.machines.controller.machine_executor import MachineExecutor
from grange.machines.controller.machine_heartbeats import MachineHeartbeats
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.metrics import MachineInstruments, instruments
from grange.machines.controller.node_controller_config import NodeControllerConfig
from grange.machines.controller.node_dispenser import NodeDispenser
from grange.machines.controller.packed_pass import PackedPass
from grange.machines.controller.pass_loop import PassLoop
from grange.machines.controller.pool_pass import PoolPass
from grange.machines.controller.pool_reports import PoolReports
from grange.machines.controller.provider_secrets import secret_reader
from grange.machines.controller.provider_table import CreateProvider, ProviderTable
from grange.machines.controller.provider_watch import WatchHooks
from grange.machines.controller.report_requests import ReportRequests
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.disruption.disruption_plan import POOL_DELETED
from grange.machines.disruption.disruption_progress import (
    DISRUPTION_ANNOTATION,
    deleted_pool_record,
    record_of,
)
from grange.machines.providers import ProviderTools, create_provider
from grange.reconcile.controller import Controller, Result
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder

NAME = "machines"

_RETRY = Exponential(initial_s=0.1, cap_s=5.0)
_DRAINED = frozenset({MachinePhase.AVAILABLE, MachinePhase.CLAIMED})
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
        config = self._tools.config
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
        self._listers = MachineListers(
            deps,
            on_machine=self._wake_machine,
            on_pool=self._wake_pool,
            on_unschedulable=self._wake_packed,
        )
        self._updater = StatusUpdater(deps.client, deps.clock)
        self._context = NodeControllerContext(
            deps.client,
            self._listers,
            self._updater,
            self._events,
            config,
            deps.clock,
            self._log,
            MachineInstruments(instruments(deps.metrics)),
        )
        self.dispenser = NodeDispenser(self._context)
        rng = deps.rng.fork("launches")
        self._passes = PassLoop(
            self._context,
            dedicated := PoolPass(self._context, self.dispenser, rng),
            packed := PackedPass(self._context, rng),
        )
        self._packed, self._dedicated = packed, dedicated
        self._reports: PoolReports | None = None
        self._report_requests: ReportRequests | None = None
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
        cluster = await self._cluster_uid()
        tools = ProviderTools(
            cluster,
            self._clock,
            self._deps.rng.fork("providers"),
            self._log,
            self._tools.settings,
            secret_reader(self._client),
        )
        hooks = WatchHooks(
            self._is_recorded,
            self._wake_machine,
            self._passes.wake_all,
            InterruptionNotices(self._context, self._wake_disruption).note,
        )
        providers = ProviderTable(tools, self._context, hooks, self._tools.create)
        self._executor = MachineExecutor(
            self._context,
            self._tools.bootstrap,
            providers.of_machine,
            self._deps.rng.fork("pauses"),
        )
        disruption = self._disruption = DisruptionLoop(self._context, self._packed, providers)
        self._reports = PoolReports(
            self._context, self._dedicated, self._packed, providers, lambda: disruption.kept
        )
        requests = self._report_requests = ReportRequests(self._context, self._reports)
        heartbeats = MachineHeartbeats(self._context, self._terminate, self._wake_machine)
        try:
            async with Nursery(NAME) as nursery:
                providers.begin(nursery)
                self.resume_waits()
                nursery.start(self._recorder.run(), name=f"{NAME} events")
                nursery.start(self.machines.run(), name=f"{NAME} machines")
                nursery.start(self._passes.run(providers), name=f"{NAME} passes")
                nursery.start(
                    supervise("heartbeats", heartbeats.beat, clock=self._clock, log=self._log)
                )
                nursery.start(heartbeats.reap(), name=f"{NAME} reaper")
                nursery.start(supervise("reports", requests.run, clock=self._clock, log=self._log))
                nursery.start(
                    supervise("disruption", disruption.run, clock=self._clock, log=self._log)
                )
        finally:
            self._reports = self._report_requests = None
            self._context.metrics.stop()
            await providers.close()

    async def _cluster_uid(self) -> str:
        failures = 0
        while True:
            try:
                return (await self._client.get(NAMESPACE, _CLUSTER)).metadata.uid
            except ApiError as error:
                failures += 1
                self._log.warning("cluster not read", attempt=failures, error=error)
                await self._clock.sleep(_RETRY.delay(failures))

    async def report(self, what: str, pool: str) -> Document | None:
        """What would be done for a pool now (``plan``), or whether records and provider agree (``audit``).

        None while the controller does not run.
        """
        if self._reports is None:
            return None
        return self._reports.plan(pool) if what == "plan" else await self._reports.audit(pool)

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
        timer = self._passes.timer
        return json.dumps(
            {
                "start": timestamps.rfc3339(timer.start) if timer.start else None,
                "end": timestamps.rfc3339(timer.end) if timer.end else None,
                "lastSeconds": timer.last_s,
                "averageSeconds": timer.average_s,
                "count": timer.count,
                "pools": self._passes.passes,
                "refusedPods": self._events.refused,
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
        self._passes.wake(name)
        if self._report_requests is not None:
            self._report_requests.wake()

    def _wake_packed(self) -> None:
        self._passes.wake_packed()

    def _wake_disruption(self) -> None:
        self._disruption.wake()

    async def _is_recorded(self, machine: str) -> bool:
        return await self._exists(MACHINE, machine)

    async def _exists(self, kind: AnyKind, name: str) -> bool:
        """Whether the server has it: caches lag, and what one does not show is a first sign."""
        try:
            await self._client.get(kind, name)
        except NotFound:
            return False
        return True

    async def _reconcile(self, key: ObjectKey) -> Result:
        machine = self._listers.machine(key.name)
        ends = machine is not None and await self._is_poolless(machine)
        if machine is not None and ends and not await self._drains(machine):
            await self._terminate(key.name)
        return await self._executor.reconcile(key)

    async def _is_poolless(self, machine: Machine) -> bool:
        """Whether its pool is deleted, and the machine is not on its way out.

        A deleted pool stays until its machines have ended. One that a controller has ordered before it
        died may be recorded after that: it would be booted and serve no one.
        """
        name, pool = machine.spec.pool, self._listers.pool(machine.spec.pool)
        if machine.is_ending or machine.phase is MachinePhase.TERMINATED:
            return False
        if pool is not None:
            return pool.metadata.deletion_timestamp is not None
        if await self._exists(NODEPOOL, name):
            return False
        self._log.warning("machine of no pool ends", machine=machine.metadata.name, pool=name)
        return True

    async def _drains(self, machine: Machine) -> bool:
        """Whether a machine of a deleted pool is drained before it ends: pods are on it.

        Not one whose pool object is gone: that has the grace, and its status shows what a drain waits for.
        """
        if machine.phase not in _DRAINED or self._listers.pool(machine.spec.pool) is None:
            return False
        record = record_of(machine)
        if record is not None and record.reason == POOL_DELETED:
            return True
        if not self._listers.remaining_on(machine.node):
            return False
        noted = {DISRUPTION_ANNOTATION: deleted_pool_record(machine, self._clock.now()).text()}
        patch = {"metadata": {**preconditions(machine.metadata), "annotations": noted}}
        self._listers.wrote(await self._client.patch(MACHINE, machine.metadata.name, patch=patch))
        self._disruption.wake()
        return True

    async def _terminate(self, name: str) -> bool:
        """Have a machine end; whether it was there."""
        patch: Document = {"spec": {"terminate": True}}
        try:
            self._listers.wrote(await self._client.patch(MACHINE, name, patch=patch))
        except NotFound:
            return False
        return True
