"""Carries out what ``machine_lifecycle`` decides: one step of one machine at a time.

Each step is one write or one call. What was written wakes the next; what was called is repeated until
a look shows that it was done.
"""

from collections.abc import Awaitable, Callable, Mapping

from grange.api import timestamps
from grange.api.kinds import MACHINE, NODE, POD
from grange.api.kinds.machine import INSTANCE_FINALIZER, Machine
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.nodepool import NodePoolSpec
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachineEvent, MachinePhase
from grange.api.meta import ObjectKey
from grange.api.status import NotFound
from grange.base.backoff import Exponential
from grange.base.rng import Stream
from grange.machines.controller import machine_nodes
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.launch_budgets import offering_of
from grange.machines.controller.machine_boot import Bootstrap, launch_request
from grange.machines.controller.machine_holder import HolderState, holder_state
from grange.machines.controller.machine_lifecycle import (
    LAUNCHING,
    MachineInputs,
    MachineStep,
    NextStep,
    next_step,
)
from grange.machines.controller.metrics import FOUND
from grange.machines.controller.provider_calls import MISCONFIGURED, CallResult, instance_fields
from grange.machines.controller.provider_watch import ProviderWatch
from grange.machines.providers.provider import InstanceState, MisconfiguredError
from grange.reconcile import finalizers
from grange.reconcile.controller import Done, Requeue, Result

_S, _P = MachineStep, MachinePhase
_ENDS = frozenset({MachineEvent.END, MachineEvent.GONE})
_BOOTS = frozenset({_P.CREATING, _P.CREATED})
_BOOT_OVER = frozenset({*_ENDS, MachineEvent.JOINED})


class MachineExecutor:
    """Leads machines through their lives.

    Args:
        context: tools.
        bootstrap: prepares the joining of machines.
        watch_of: the provider of a machine; None where it cannot be used.
        rng: of pauses.
    """

    def __init__(
        self,
        context: NodeControllerContext,
        bootstrap: Bootstrap,
        watch_of: Callable[[Machine], ProviderWatch | None],
        rng: Stream,
    ) -> None:
        self._client, self._listers, self._updater = (
            context.client,
            context.listers,
            context.updater,
        )
        self._events, self._config, self._clock = context.events, context.config, context.clock
        self._metrics = context.metrics
        self._bootstrap, self._watch_of, self._rng = bootstrap, watch_of, rng
        self._pauses = Exponential(self._config.retry_s, self._config.retry_max_s, jitter=0.2)
        self._failures: dict[str, int] = {}
        self._called: dict[tuple[str, MachineStep], float] = {}  # when a call was answered last
        self._steps: Mapping[
            MachineStep, Callable[[MachineInputs, NextStep, ProviderWatch], Awaitable[Result]]
        ] = {
            _S.RECORD_LAUNCH: self._record_launch,
            _S.LAUNCH: self._launch,
            _S.MOVE: self._move,
            _S.UPDATE: self._update,
            _S.INITIALIZE: self._initialize,
            _S.CLOSE: self._close,
            _S.WIPE: self._wipe,
            _S.STOP: self._switch_off,
            _S.START: self._switch_on,
            _S.LOOK: self._look,
            _S.TERMINATE: self._terminate,
            _S.DELETE_NODE: self._delete_node,
            _S.DELETE_RECORD: self._delete_record,
        }

    async def reconcile(self, key: ObjectKey) -> Result:
        """Do what a machine needs next.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        machine = self._listers.machine(key.name)
        if machine is None:
            self._forget(key.name)
            return Done()
        watch = self._watch_of(machine)
        if watch is None:
            return Requeue(self._config.instances_interval_s)
        known = await self._known(machine, watch)
        step = next_step(known, self._clock.now())
        if step.step is _S.WAIT:
            return Done() if step.after_s is None else Requeue(max(0.05, step.after_s))
        return await self._steps[step.step](known, step, watch)

    # --- what is known ---------------------------------------------------------------------------

    async def _known(self, machine: Machine, watch: ProviderWatch) -> MachineInputs:
        name, status = machine.metadata.name, machine.status
        pool, node = self._listers.pool(machine.spec.pool), self._listers.node_of(machine)
        spec = pool.spec if pool is not None else NodePoolSpec()
        holder = HolderState()
        if machine.phase is _P.CLAIMED and status.bound_pod_uid:
            holder = await self._holder(machine, node)
        return MachineInputs(
            machine,
            spec,
            instance=watch.instance(name),
            missing=watch.is_missing(name),
            ended=watch.looked_since(self._called.get((name, _S.TERMINATE))),
            node=node,
            initialized=node is not None and machine_nodes.is_initialized(node, machine, spec),
            closed=machine_nodes.closed_since(node) if node is not None else None,
            pods=bool(self._listers.pods_on(machine.node)),
            holder=holder,
            can_wipe=watch.calls.provider.can_wipe,
            can_stop=watch.calls.provider.can_stop,
            terminated_ttl_s=self._config.terminated_ttl_s,
        )

    async def _holder(self, machine: Machine, node: Node | None) -> HolderState:
        """What became of the pod that claimed it."""
        name, uid = machine.node, machine.status.bound_pod_uid
        pod = self._listers.pod_of(uid)
        if pod is None:
            # Caches lag: what one does not show is a first sign, and the server decides.
            pod = await self._read_pod(machine.status.bound_pod_name, uid)
        return holder_state(pod, name, self._clock.now(), ready=node is not None and is_ready(node))

    async def _read_pod(self, name: str, uid: str) -> Pod | None:
        namespace, _, own = name.partition("/")
        try:
            pod = await self._client.get(POD, own, namespace)
        except NotFound:
            return None
        return pod if pod.metadata.uid == uid else None

    # --- writes ----------------------------------------------------------------------------------

    async def _record_launch(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        now = timestamps.rfc3339(self._clock.now())
        fields = {"launchTime": now, "stage": LAUNCHING}
        self._listers.wrote(await self._updater.update(known.machine, fields))
        return Requeue(0.0)

    async def _move(self, known: MachineInputs, step: NextStep, watch: ProviderWatch) -> Result:
        if step.event is None:
            raise ValueError(f"{step}: a move has an event")
        found = known.instance
        fields = instance_fields(found) if found is not None else {}
        if step.event is MachineEvent.JOINED and known.node is not None:
            fields["nodeName"] = known.node.metadata.name
        moved = await self._updater.move(
            known.machine, step.event, reason=step.reason, message=step.message, fields=fields
        )
        self._listers.wrote(moved)
        self._forget(moved.metadata.name)
        self._events.moved(known.machine, moved, step.reason, step.message)
        self._count(known.machine, step)
        if step.event in _ENDS and known.machine.phase is not _P.TERMINATING:
            self._eject(known.machine, step)
        if step.event in _ENDS and known.machine.phase in _BOOTS:
            self._report_failure(known.machine, step.message)
        if step.event in _BOOT_OVER:
            await self._bootstrap.finish(moved)
        return Requeue(0.0)

    def _report_failure(self, machine: Machine, message: str) -> None:
        """Report to the pods and the lease that wait for a machine that it does not come."""
        for pod in self._listers.pods_meant_for(machine):
            self._events.launch_failed(pod, machine, message)
        if (lease := self._listers.lease_meant_for(machine)) is not None:
            self._events.launch_failed(lease, machine, message)

    def _count(self, before: Machine, step: NextStep) -> None:
        """Count an event of a boot."""
        if step.event is MachineEvent.LAUNCHED:
            self._metrics.launched(before, FOUND)
        elif step.event is MachineEvent.JOINED:
            self._metrics.booted(before, self._clock.now())
        elif step.event in _ENDS:
            self._metrics.ended(before, step.reason)

    def _eject(self, machine: Machine, step: NextStep) -> None:
        """Report the end of a machine to the pods that are on it."""
        for pod in self._listers.pods_on(machine.node):
            self._events.ejected(pod, machine, step.message)

    async def _update(self, known: MachineInputs, step: NextStep, watch: ProviderWatch) -> Result:
        found = instance_fields(known.instance) if known.instance is not None else {}
        fields = {**found, "stage": step.stage or None}
        self._listers.wrote(await self._updater.update(known.machine, fields))
        return Requeue(0.0)

    async def _initialize(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        if known.node is not None:
            patch = machine_nodes.initialization(known.node, known.machine, known.pool)
            await self._client.patch(NODE, known.node.metadata.name, patch=patch)
        return Done()  # the change of the node comes back

    async def _close(self, known: MachineInputs, step: NextStep, watch: ProviderWatch) -> Result:
        if known.node is not None:
            patch = machine_nodes.closing(known.node, self._clock.now())
            await self._client.patch(NODE, known.node.metadata.name, patch=patch)
        return Done()  # the change of the node comes back

    async def _delete_node(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        if known.node is not None:
            meta = known.node.metadata
            try:
                await self._client.delete(NODE, meta.name, uid=meta.uid)
            except NotFound:
                return Done()
        return Done()

    async def _delete_record(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        machine = known.machine
        try:
            if machine.metadata.deletion_timestamp is None:
                await self._client.delete_as_read(MACHINE, machine)
            else:
                await finalizers.remove(self._client, MACHINE, machine, INSTANCE_FINALIZER)
        except NotFound:
            return Done()
        return Done()

    # --- calls -----------------------------------------------------------------------------------

    async def _launch(self, known: MachineInputs, step: NextStep, watch: ProviderWatch) -> Result:
        offering, now = offering_of(known.machine.spec), self._clock.now()
        if (pause := watch.budgets.pause(offering, now)) is not None:
            return Requeue(max(0.05, (pause.until - now).total_seconds()))
        if not watch.budgets.begin(offering):
            return Requeue(self._config.retry_s)
        try:
            return await self._launch_now(known, watch)
        finally:
            watch.budgets.end(offering)

    async def _launch_now(self, known: MachineInputs, watch: ProviderWatch) -> Result:
        machine, name = known.machine, known.machine.metadata.name
        pool = self._listers.pool(machine.spec.pool)
        try:
            secrets = await self._bootstrap.prepare(machine, known.pool)
        except MisconfiguredError as error:
            if pool is not None:
                watch.refusals.refuse(pool, f"{error}", self._clock.now())
            self._metrics.refused(machine, error)
            refused = await self._updater.move(
                machine, MachineEvent.LAUNCH_REFUSED, reason=MISCONFIGURED, message=f"{error}"
            )
            return await self._after_launch(machine, CallResult(refused, done=True))
        watch.launching(name)
        try:
            result = await watch.calls.launch(machine, launch_request(machine, secrets), pool)
        finally:
            watch.launched(name)
        return await self._after_launch(machine, result)

    async def _after_launch(self, before: Machine, result: CallResult) -> Result:
        after = result.machine
        if after.phase is not before.phase:
            last = after.status.history[-1]
            self._events.moved(before, after, last.reason, last.message)
            if after.phase is _P.TERMINATED:
                self._report_failure(after, last.message)
                await self._bootstrap.finish(after)
        return self._after(before, result, _S.LAUNCH)

    async def _terminate(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        found = known.instance
        wait_s = self._wait_s(known.machine, _S.TERMINATE)
        if found is None or (found.state is InstanceState.ENDING and wait_s > 0.0):
            return Requeue(max(0.05, wait_s))
        if wait_s > 0.0:
            return Requeue(wait_s)
        result = await watch.calls.terminate(known.machine, found)
        watch.look_soon()
        return self._after(known.machine, result, _S.TERMINATE)

    async def _look(self, known: MachineInputs, step: NextStep, watch: ProviderWatch) -> Result:
        watch.look_soon()
        return Done()

    async def _switch_off(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        if known.instance is None or (wait_s := self._wait_s(known.machine, _S.STOP)) > 0.0:
            return Requeue(self._config.retry_s if known.instance is None else wait_s)
        result = await watch.calls.stop(known.machine, known.instance)
        watch.look_soon()
        return self._after(known.machine, result, _S.STOP)

    async def _switch_on(
        self, known: MachineInputs, step: NextStep, watch: ProviderWatch
    ) -> Result:
        if known.instance is None or (wait_s := self._wait_s(known.machine, _S.START)) > 0.0:
            return Requeue(self._config.retry_s if known.instance is None else wait_s)
        if known.machine.phase is not _P.CREATED:
            self._events.off(known.machine, known.instance)
        result = await watch.calls.start(known.machine, known.instance)
        watch.look_soon()
        return self._after(known.machine, result, _S.START)

    async def _wipe(self, known: MachineInputs, step: NextStep, watch: ProviderWatch) -> Result:
        result = await watch.calls.wipe(known.machine, known.machine.status.instance_id)
        if result.done:
            last = result.machine.status.history[-1]
            self._events.moved(known.machine, result.machine, last.reason, last.message)
        return self._after(known.machine, result, _S.WIPE)

    def _after(self, before: Machine, result: CallResult, step: MachineStep) -> Result:
        """When to look again after a call."""
        name = before.metadata.name
        self._listers.wrote(result.machine)
        if not result.done:
            self._failures[name] = self._failures.get(name, 0) + 1
            pause_s = self._pauses.delay(self._failures[name], self._rng)
            return Requeue(max(pause_s, result.retry_after_s))
        self._failures.pop(name, None)
        if result.machine.phase is not before.phase:
            return Requeue(0.0)
        # It was answered and not seen yet: the list shows it, or it is asked again.
        self._called[name, step] = self._clock.monotonic()
        return Requeue(self._config.instances_interval_s)

    def _wait_s(self, machine: Machine, step: MachineStep) -> float:
        """Seconds until a call that was answered is made again."""
        called = self._called.get((machine.metadata.name, step))
        if called is None:
            return 0.0
        return called + self._config.instances_interval_s - self._clock.monotonic()

    def _forget(self, name: str) -> None:
        self._failures.pop(name, None)
        for key in [key for key in self._called if key[0] == name]:
            del self._called[key]
