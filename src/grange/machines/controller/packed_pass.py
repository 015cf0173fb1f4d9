"""One pass over all packed pools: which of them serves a pod is part of the decision.

The scheduler binds the pods; machines are ordered for those that it finds no node for.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from grange.api.kinds.machine import Machine
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.nodepool import NodePool
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachineEvent
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.launch_budgets import LaunchBudgets
from grange.machines.controller.launch_choice import launch_choice, without_starts
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.machine_writes import MachineWrites
from grange.machines.controller.pool_pass import PassResult, trouble
from grange.machines.controller.pool_template import template_hash
from grange.machines.controller.provider_calls import MISCONFIGURED
from grange.machines.controller.provider_watch import ProviderWatch
from grange.machines.scaling.lease_needs import lease_need
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.packing_pods import selected_pool
from grange.machines.scaling.packing_scaler import PackingNodeScaler
from grange.machines.scaling_plan import MachineStart, MachineStop, ScalingPlan


class PackedPass:
    """Plans and writes for the packed pools.

    Args:
        context: tools.
        rng: of the choice among too many launches.
    """

    def __init__(self, context: NodeControllerContext, rng: Stream) -> None:
        self._listers, self._events, self._clock = context.listers, context.events, context.clock
        self._writes, self._rng = MachineWrites(context), rng

    async def run(
        self, pools: Sequence[tuple[NodePool, ProviderWatch | str]]
    ) -> Mapping[str, PassResult]:
        """Plan for the pools and carry the plan out; what it came to, by pool.

        Args:
            pools: all packed pools, each with its provider or why that cannot be used.

        Raises:
            ApiError: a request failed; to be tried again.
        """
        results: dict[str, PassResult] = {}
        watches: dict[str, ProviderWatch] = {}
        usable: list[PackedPool] = []
        for pool, watch in pools:
            refused, packed = self.usable(pool, watch)
            if packed is None:
                results[pool.metadata.name] = refused
            elif isinstance(watch, ProviderWatch):
                watches[packed.name] = watch
                usable.append(packed)
        self._refuse(results, any_usable=bool(usable))
        if not usable:
            return results
        # Nodes before pods: a pod that is seen without its node would get another machine.
        machines = [
            one for pool, _ in pools for one in self._listers.machines_of(pool.metadata.name)
        ]
        began = self._clock.monotonic()
        plan = self.plan(usable, machines, {name: one.budgets for name, one in watches.items()})
        plan_s = self._clock.monotonic() - began
        changed = await self._carry_out(usable, watches, plan, machines)
        for packed in usable:
            own = tuple(start for start in plan.start if start.spec.pool == packed.name)
            skip = tuple(one for one in plan.skip if not one.pools or packed.name in one.pools)
            part = ScalingPlan(start=own, skip=skip)
            reason, message = trouble(packed.pool, watches[packed.name], self._clock.now())
            results[packed.name] = PassResult(
                part, reason, message, packed.boot_image, plan_s, changed
            )
        return results

    def plan(
        self,
        pools: Sequence[PackedPool],
        machines: Sequence[Machine],
        budgets: Mapping[str, LaunchBudgets],
    ) -> ScalingPlan:
        """What the pools need now; nothing is written.

        Args:
            pools: that can be planned for.
            machines: of them.
            budgets: of the launches of each pool, by its name.
        """
        now = self._clock.now()
        for pool in pools:
            pool.capacity.prune(now)
        state = cluster_of(self._listers)
        plan = PackingNodeScaler(pools, state).compute(machines, self._listers.pods(), now=now)
        return without_starts(plan, lambda one: budgets[one.spec.pool].refusal(one.spec, now))

    def usable(
        self, pool: NodePool, watch: ProviderWatch | str
    ) -> tuple[PassResult, PackedPool | None]:
        """The pool with what is known of its provider, or why nothing can be planned for it."""
        if isinstance(watch, str):
            return PassResult(reason=MISCONFIGURED, message=watch), None
        if watch.catalogue is None:
            return PassResult(reason="CatalogueUnknown", message=watch.error), None
        boot = watch.image(pool.spec.boot_image)
        if boot.image is None:
            return PassResult(reason="ImageUnknown", message=boot.error), None
        if refusal := watch.refusals.reason(pool, self._clock.now()):
            return PassResult(reason=MISCONFIGURED, message=refusal), None
        found = PackedPool(
            pool,
            watch.catalogue,
            watch.memory,
            boot_image=boot.image,
            template_hash=template_hash(pool),
        )
        return PassResult(), found

    def _refuse(self, results: Mapping[str, PassResult], *, any_usable: bool) -> None:
        """Report to pods that wait that no pool that they may use can be used.

        Args:
            results: of the pools that cannot, by name.
            any_usable: whether another pool can.
        """
        refusals = {name: result.refusal for name, result in results.items()}
        every = "; ".join(f"pool {name}: {why}" for name, why in refusals.items())
        known = not any_usable and all(refusals.values())
        skips: dict[str, tuple[Pod, str]] = {}
        for pod in self._listers.unschedulable() if refusals else ():
            selected = selected_pool(pod)
            if why := refusals.get(selected, ""):
                skips[pod.metadata.uid] = pod, f"pool {selected} cannot be used: {why}"
            elif known and not selected:
                skips[pod.metadata.uid] = pod, f"no pool can be used: {every}"
        self._events.skipped(skips)
        self._events.prune(self._listers.waits)

    async def _carry_out(
        self,
        pools: Sequence[PackedPool],
        watches: Mapping[str, ProviderWatch],
        plan: ScalingPlan,
        machines: Sequence[Machine],
    ) -> bool:
        known = {machine.metadata.name: machine for machine in machines}
        work = [
            self._writes.move(
                known[name], MachineEvent.RESUMED, "Resumed", "pods or a lease wait for it"
            )
            for name in plan.resume
        ]
        work += [self._stop(known[stop.name], stop) for stop in plan.stop]
        for packed in pools:
            own = [start for start in plan.start if start.spec.pool == packed.name]
            budgets, launching = watches[packed.name].budgets, self._listers.launching(packed.pool)
            chosen = launch_choice(
                own,
                packed.pool.spec.max_boot_per_iteration,
                self._rng,
                partial(budgets.affordable, launching=launching),
            )
            work += [self._order(packed.pool, one) for one in chosen]
        async with Nursery("packed pass") as nursery:
            children = [nursery.start(one) for one in work]
        waiting: dict[str, Pod | MachineLease] = {
            pod.metadata.uid: pod for pod in self._listers.pods()
        }
        waiting |= {lease.metadata.uid: lease for lease in self._listers.leases()}
        skips = {
            skip.pod_uid: (waiting[skip.pod_uid], skip.reason)
            for skip in plan.skip
            if skip.pod_uid in waiting
        }
        self._events.skipped(skips)
        self._events.prune(self._listers.waits)
        return any(child.result() for child in children)

    async def _stop(self, machine: Machine, stop: MachineStop) -> bool:
        if machine.metadata.resource_version != stop.version:
            return True
        event, reason = (
            (MachineEvent.PARK, "Standby") if stop.park else (MachineEvent.END, "Surplus")
        )
        return await self._writes.move(machine, event, reason, stop.reason)

    async def _order(self, pool: NodePool, start: MachineStart) -> bool:
        machine = await self._writes.order(pool, start)
        if machine is None:
            return True
        for name in start.pods:
            self._events.ordered(self._listers.pod_named(name), machine)
        if start.lease_uid:
            self._events.ordered(self._listers.lease_of(start.lease_uid), machine)
        return False


def cluster_of(listers: MachineListers) -> ClusterState:
    """What plans for shared machines take into account, apart from machines and pods."""
    return ClusterState(
        nodes=listers.nodes(),
        groups=listers.groups(),
        namespaces=listers.namespaces(),
        leases=[lease_need(lease) for lease in listers.leases()],
    )
