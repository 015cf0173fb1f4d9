"""One pass over a pool: a plan is made of what is there, and its decisions are written.

Nothing is called here. A machine that is ordered is a record; the executor launches it. What was
decided on a state that has changed meanwhile is refused by the server, and the next pass decides again.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import DEDICATED, NodePool
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachineEvent, MachinePhase
from grange.api.meta import Document
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.launch_choice import launch_choice, without_starts
from grange.machines.controller.machine_writes import MachineWrites
from grange.machines.controller.node_dispenser import NodeDispenser, binding_fields
from grange.machines.controller.pool_template import template_hash
from grange.machines.controller.provider_calls import MISCONFIGURED
from grange.machines.controller.provider_watch import ProviderWatch
from grange.machines.disruption.disruption_progress import is_disrupted
from grange.machines.scaling.binding_scaler import BindingNodeScaler
from grange.machines.scaling.machine_requests import open_needs, requests_of
from grange.machines.scaling_plan import MachineStart, MachineStop, PodBinding, ScalingPlan


class PassResult(NamedTuple):
    """What a pass came to.

    Attributes:
        plan: what was decided; None where nothing could be.
        reason, message: why it could not, or why the pool's provider is not ready all the same.
        image: that new machines get.
        plan_s: seconds that the plan took, during which nothing else was done.
        changed: something was refused because it had changed: another pass decides again.
    """

    plan: ScalingPlan | None = None
    reason: str = ""
    message: str = ""
    image: str = ""
    plan_s: float = 0.0
    changed: bool = False

    @property
    def refusal(self) -> str:
        """Why the pool cannot be used, for people; empty if it can, or while its provider has yet to answer."""
        return f"{self.reason}: {self.message}" if self.plan is None and self.message else ""


class PoolPass:
    """Plans and writes for one pool at a time.

    Args:
        context: tools.
        dispenser: gives machines to pods.
        rng: of the choice among too many launches.
    """

    def __init__(
        self, context: NodeControllerContext, dispenser: NodeDispenser, rng: Stream
    ) -> None:
        self._listers, self._events, self._clock = context.listers, context.events, context.clock
        self._writes = MachineWrites(context)
        self._dispenser, self._rng = dispenser, rng

    async def run(self, pool: NodePool, watch: ProviderWatch) -> PassResult:
        """Plan for a pool and carry the plan out.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        if watch.catalogue is None:
            return PassResult(reason="CatalogueUnknown", message=watch.error)
        boot = watch.image(pool.spec.boot_image)
        if boot.image is None:
            return PassResult(reason="ImageUnknown", message=boot.error)
        # Nodes before pods: a pod that is seen without its node would get another machine.
        machines = self._listers.machines_of(pool.metadata.name)
        pods = self._listers.pods_for(pool.metadata.name)
        began = self._clock.monotonic()
        plan = self.plan(pool, watch, machines, pods, boot.image)
        plan_s = self._clock.monotonic() - began
        changed = await self._carry_out(pool, watch, plan, machines, pods)
        reason, message = trouble(pool, watch, self._clock.now())
        return PassResult(plan, reason, message, boot.image, plan_s, changed)

    def plan(
        self,
        pool: NodePool,
        watch: ProviderWatch,
        machines: Sequence[Machine],
        pods: Sequence[Pod],
        image: str,
    ) -> ScalingPlan:
        """What the pool needs now; nothing is written."""
        if pool.spec.mode != DEDICATED:
            return ScalingPlan()
        watch.memory.prune(now := self._clock.now())
        requests = requests_of(pool, now)
        scaler = BindingNodeScaler(
            pool,
            watch.catalogue or (),
            watch.memory,
            boot_image=image,
            template_hash=template_hash(pool),
            cordoned={each.metadata.name for each in machines if self.is_cordoned(each)},
            requested=open_needs(requests, self._listers.machines()) if requests else (),
        )
        plan = scaler.compute(machines, pods, now=now)
        refusal = watch.refusals.reason(pool, now)
        return without_starts(plan, lambda start: refusal or watch.budgets.refusal(start.spec, now))

    def is_cordoned(self, machine: Machine) -> bool:
        """Whether no pod may come to a machine: its node is cordoned, or it is being replaced."""
        if is_disrupted(machine):
            return True
        node = self._listers.node_of(machine)
        return node is not None and node.spec.unschedulable

    # --- what is written -------------------------------------------------------------------------

    async def _carry_out(
        self,
        pool: NodePool,
        watch: ProviderWatch,
        plan: ScalingPlan,
        machines: Sequence[Machine],
        pods: Sequence[Pod],
    ) -> bool:
        """Write a plan; whether something had changed meanwhile."""
        known = {machine.metadata.name: machine for machine in machines}
        waiting = {pod.metadata.uid: pod for pod in pods}
        ordered = {start.name for start in plan.start}
        bound = {binding.machine for binding in plan.bind}
        launching = self._listers.launching(pool)
        starts = launch_choice(
            plan.start,
            pool.spec.max_boot_per_iteration,
            self._rng,
            partial(watch.budgets.affordable, launching=launching),
        )
        work = [
            *(
                self._bind(known[binding.machine], waiting[binding.pod_uid], binding)
                for binding in plan.bind
                if binding.machine not in ordered
            ),
            *(self._unbind(known[name]) for name in plan.unbind),
            *(self._resume(known[name]) for name in plan.resume if name not in bound),
            *(self._stop(known[stop.name], stop) for stop in plan.stop),
            *(self._order(pool, start, waiting) for start in starts),
        ]
        async with Nursery("pass") as nursery:
            children = [nursery.start(one) for one in work]
        self._dispenser.publish(pool.metadata.name, plan)
        self._events.skipped(
            {
                skip.pod_uid: (waiting[skip.pod_uid], skip.reason)
                for skip in plan.skip
                if skip.pod_uid in waiting
            }
        )
        self._events.prune(self._listers.waits)
        return any(child.result() for child in children)

    async def _bind(self, machine: Machine, pod: Pod, binding: PodBinding) -> bool:
        if self._dispenser.is_usable(machine) or machine.phase is MachinePhase.CLAIMED:
            return await self._dispenser.give(machine, pod)
        if machine.phase is MachinePhase.STOPPED:
            return await self._writes.move(
                machine, MachineEvent.RESUMED, "Resumed", f"for pod {pod.key}", binding_fields(pod)
            )
        if binding.kept:
            return False
        return await self._writes.update(machine, binding_fields(pod))

    async def _unbind(self, machine: Machine) -> bool:
        now = timestamps.rfc3339(self._clock.now())
        nothing: Document = {"boundPodName": None, "boundPodUID": None}
        return await self._writes.update(machine, {**nothing, "availableTime": now})

    async def _resume(self, machine: Machine) -> bool:
        return await self._writes.move(
            machine, MachineEvent.RESUMED, "Resumed", "a holder has asked for it"
        )

    async def _stop(self, machine: Machine, stop: MachineStop) -> bool:
        if machine.metadata.resource_version != stop.version:
            return True
        event = MachineEvent.PARK if stop.park else MachineEvent.END
        return await self._writes.move(machine, event, "Surplus", stop.reason)

    async def _order(self, pool: NodePool, start: MachineStart, waiting: Mapping[str, Pod]) -> bool:
        pod = waiting.get(start.pod_uid)
        machine = await self._writes.order(pool, start)
        if machine is None:
            return True
        self._events.ordered(pod, machine)
        # What is created has no status. Should it stay so, the next pass binds the machine.
        return await self._writes.update(machine, binding_fields(pod) if pod is not None else {})


def trouble(pool: NodePool, watch: ProviderWatch, now: datetime) -> tuple[str, str]:
    """Reason and message of why a provider is not ready, though what it has is known; empty where it is."""
    if refusal := watch.refusals.reason(pool, now):
        return MISCONFIGURED, refusal
    return ("ProviderFailing", watch.error) if watch.error else ("", "")
