"""What the node controller would do for a pool now, and whether its records and its provider agree.

Nothing is written and nothing is ended here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import DEDICATED, NodePool
from grange.api.machine_phases import MachinePhase
from grange.api.meta import Document
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.launch_budgets import LaunchBudgets
from grange.machines.controller.packed_pass import PackedPass
from grange.machines.controller.pool_pass import PoolPass
from grange.machines.controller.provider_table import ProviderTable
from grange.machines.controller.provider_watch import ProviderWatch
from grange.machines.providers.provider import Instance, ProviderError
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling_plan import ScalingPlan

_P = MachinePhase
_UNLAUNCHED = frozenset({_P.CREATING, _P.TERMINATING, _P.TERMINATED})
_FREE = frozenset({_P.AVAILABLE, _P.STOPPED})
_AGAIN_S = 3.0  # lists lag: only what two of them show is a difference


class PoolReports:
    """Reports about pools, for people.

    Args:
        context: tools.
        dedicated, packed: make the plans.
        providers: of the pools.
        kept: why machines of packed pools stay, by name.
    """

    def __init__(
        self,
        context: NodeControllerContext,
        dedicated: PoolPass,
        packed: PackedPass,
        providers: ProviderTable,
        kept: Callable[[], Mapping[str, str]],
    ) -> None:
        self._listers, self._clock = context.listers, context.clock
        self._dedicated, self._packed = dedicated, packed
        self._providers, self._kept = providers, kept

    # --- plans -----------------------------------------------------------------------------------

    def plan(self, name: str) -> Document:
        """Each decision of a pass over a pool that would be made now, with its reason."""
        pool = self._listers.pool(name)
        plan, refusal = (None, "there is none") if pool is None else self._planned(pool)
        decisions = [] if plan is None else self._decisions(name, plan)
        return {"time": self._stamp(), "refusal": refusal, "decisions": decisions}

    def _planned(self, pool: NodePool) -> tuple[ScalingPlan | None, str]:
        name, watch = pool.metadata.name, self._providers.usable(pool)
        if pool.metadata.deletion_timestamp is not None:
            return None, "the pool is being deleted: its machines end"
        if isinstance(watch, str):
            return None, watch
        refused, _ = self._packed.usable(pool, watch)
        if refused.reason:
            return (
                None,
                f"{refused.reason}: {refused.message or 'the provider has not answered yet'}",
            )
        if pool.spec.mode == DEDICATED:
            machines, pods = self._listers.machines_of(name), self._listers.pods_for(name)
            image = watch.image(pool.spec.boot_image).image or ""
            return self._dedicated.plan(pool, watch, machines, pods, image), ""
        usable, budgets = self._usable()
        shared = [one for one in self._listers.machines() if one.spec.pool in budgets]
        return self._packed.plan(usable, shared, budgets), ""

    def _usable(self) -> tuple[list[PackedPool], Mapping[str, LaunchBudgets]]:
        found: list[PackedPool] = []
        budgets: dict[str, LaunchBudgets] = {}
        for pool in self._listers.pools():
            watch = self._providers.usable(pool)
            ends = pool.metadata.deletion_timestamp is not None
            if pool.spec.mode == DEDICATED or ends or isinstance(watch, str):
                continue
            _, packed = self._packed.usable(pool, watch)
            if packed is not None:
                found.append(packed)
                budgets[packed.name] = watch.budgets
        return found, budgets

    def _decisions(self, pool: str, plan: ScalingPlan) -> list[Document]:
        own = {one.metadata.name for one in self._listers.machines_of(pool)}
        starts = [one for one in plan.start if one.spec.pool == pool]
        found = [
            _decision(
                "start",
                one.name,
                ",".join(one.pods),
                one.reason or "pods wait for it",
                instanceType=one.spec.instance_type,
            )
            for one in starts
        ]
        found += [
            _decision("resume", one, "", "pods or a lease wait for it")
            for one in plan.resume
            if one in own
        ]
        found += [
            _decision("keep" if one.kept else "bind", one.machine, one.pod, one.reason)
            for one in plan.bind
            if one.machine in own
        ]
        found += [
            _decision("unbind", one, "", "its pod waits no longer, or it does not suit")
            for one in plan.unbind
            if one in own
        ]
        found += [
            _decision("park" if one.park else "stop", one.name, "", one.reason)
            for one in plan.stop
            if one.name in own
        ]
        found += [
            _decision("reserve", one.machine, "", one.reason)
            for one in plan.reserve
            if one.machine in own
        ]
        found += [_decision("skip", "", one.pod, one.reason) for one in plan.skip]
        kept = {**self._kept(), **self._free(pool, {one["machine"] for one in found})}
        return found + [_decision("keep", one, "", kept[one]) for one in sorted(own & {*kept})]

    def _free(self, name: str, decided: Collection[str]) -> Mapping[str, str]:
        """Why machines of a dedicated pool stay that no pod has and that nothing else is decided about."""
        pool = self._listers.pool(name)
        if pool is None or pool.spec.mode != DEDICATED:
            return {}
        idle = f"standby, or free for less than {pool.spec.timeouts.idle_seconds} s"
        return {
            one.metadata.name: "its node is cordoned" if self._dedicated.is_cordoned(one) else idle
            for one in self._listers.machines_of(name)
            if one.phase in _FREE and not one.is_ending and one.metadata.name not in decided
        }

    # --- audits ----------------------------------------------------------------------------------

    async def audit(self, name: str) -> Document:
        """What the records of a pool's machines and the instances of its provider have different.

        The provider is asked twice where the first list shows a difference, since lists lag.
        """
        pool = self._listers.pool(name)
        watch = "there is none" if pool is None else self._providers.of_pool(pool)
        if isinstance(watch, str):
            return {"time": self._stamp(), "refusal": watch, "differences": []}
        try:
            found, count = await self._differences(name, watch)
            if found:
                await self._clock.sleep(_AGAIN_S)
                again, count = await self._differences(name, watch)
                found = [one for one in again if one in found]
        except ProviderError as error:
            return {"time": self._stamp(), "refusal": f"{error}", "differences": []}
        machines = len(self._listers.machines_of(name))
        counts = {"machines": machines, "instances": count}
        return {"time": self._stamp(), "refusal": "", **counts, "differences": found}

    def _stamp(self) -> str:
        """Now: a report is as old as its end."""
        return timestamps.rfc3339(self._clock.now())

    async def _differences(self, pool: str, watch: ProviderWatch) -> tuple[list[Document], int]:
        instances = await watch.calls.within("instances", watch.calls.provider.instances())
        records = {one.metadata.name: one for one in self._listers.machines()}
        found = differences(pool, records, instances, watch.calling)
        own = [one for one in instances if one.machine in records]
        return found, sum(records[one.machine].spec.pool == pool for one in own)


def differences(
    pool: str,
    records: Mapping[str, Machine],
    instances: Sequence[Instance],
    calling: Collection[str] = (),
) -> list[Document]:
    """What records and instances have different, sorted by machine.

    Args:
        pool: whose records are looked at.
        records: of all machines of the cluster, by name.
        instances: of its provider.
        calling: machines whose launch is under way.
    """
    found: list[Document] = []
    by_machine: dict[str, list[Instance]] = {}
    for one in sorted(instances, key=lambda one: one.id):
        by_machine.setdefault(one.machine, []).append(one)
        if one.machine not in records:
            found.append(_difference(one.machine, one.id, "NoRecord", "no Machine of its name"))
    for name, machine in sorted(records.items()):
        if machine.spec.pool != pool or name in calling:
            continue
        wanted, there = machine.status.instance_id, by_machine.get(name, [])
        if not there and machine.phase not in _UNLAUNCHED:
            text = f"the Machine is {machine.phase.value}"
            found.append(_difference(name, wanted, "NoInstance", text))
        if machine.phase is _P.TERMINATED:
            found += [
                _difference(name, one.id, "StillThere", "its Machine has ended") for one in there
            ]
        elif wanted and there and there[0].id != wanted:
            text = f"the Machine names {wanted}"
            found.append(_difference(name, there[0].id, "OtherInstance", text))
        text = "the Machine has another one"
        found += [_difference(name, one.id, "SecondInstance", text) for one in there[1:]]
    return sorted(found, key=lambda one: (one["machine"], one["instance"]))


def _decision(action: str, machine: str, pod: str, reason: str, **more: str) -> Document:
    return {"action": action, "machine": machine, "pod": pod, "reason": reason, **more}


def _difference(machine: str, instance: str, problem: str, message: str) -> Document:
    return {"machine": machine, "instance": instance, "problem": problem, "message": message}
