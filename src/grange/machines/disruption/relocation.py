"""Whether the pods of machines fit elsewhere, and with which new machine."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

import msgspec

from grange.api.kinds.machine import Machine, MachineOffering
from grange.api.kinds.pod import Pod
from grange.machines.disruption.disruption_candidates import DisruptionCandidate
from grange.machines.scaling.machine_facts import is_spot, type_of
from grange.machines.scaling.packing_scaler import PackingNodeScaler
from grange.machines.scaling_plan import MachineStart


@dataclass(frozen=True, slots=True)
class Relocation:
    """Where pods go without some machines.

    Attributes:
        fits: all of them have a place.
        starts: machines to order for those that do not fit what is there.
        reason: why they do not all have a place.
    """

    fits: bool
    starts: tuple[MachineStart, ...] = ()
    reason: str = ""


class RelocationPlanner:
    """A cluster at one moment, from which machines can be taken in thought.

    Machines without pods take none: they are standby, or go themselves, and moving pods onto them would only
    make other machines empty.

    Args:
        scaler: of all packed pools.
        machines: of these pools.
        pods: all pods.
        waiting: pods that wait for the scheduler and fit what is there: they keep their place.
        leaving: pods on machines that are disrupted already: they need a place, too.
        empty: names of machines without pods.
        now: wall time.
    """

    def __init__(
        self,
        scaler: PackingNodeScaler,
        machines: Sequence[Machine],
        pods: Sequence[Pod],
        waiting: Sequence[Pod],
        *,
        leaving: Sequence[Pod],
        empty: Collection[str],
        now: datetime,
    ) -> None:
        self._scaler = scaler
        self._machines = [
            _ending(each) if each.metadata.name in empty else each for each in machines
        ]
        self._waiting = [*waiting, *leaving]
        left = {pod.metadata.uid for pod in leaving}
        self._pods = [pod for pod in pods if pod.metadata.uid not in left]
        self._now = now

    def relocate(self, candidates: Sequence[DisruptionCandidate]) -> Relocation:
        """Where the pods of machines go when these are no more."""
        gone = {candidate.name for candidate in candidates}
        moving = [pod for candidate in candidates for pod in candidate.pods]
        uids = {pod.metadata.uid for pod in moving}
        # They count against the limits of their pool until they have ended.
        machines = [
            _ending(each) if each.metadata.name in gone else each for each in self._machines
        ]
        others = [pod for pod in self._pods if pod.metadata.uid not in uids]
        result = self._scaler.pack(
            machines, others, [*self._waiting, *moving], now=self._now, keep_others=True
        )
        bins = result.bins
        booting = {
            pod.uid
            for host, taken in zip(bins.hosts, bins.taken, strict=True)
            if host.booting
            for pod in taken
        }
        if result.skips or result.unplaced:
            names = [skip.pod for skip in result.skips]
            names += [pod.name for unit in result.unplaced for pod in unit.pods]
            return Relocation(fits=False, reason=f"pod {names[0]} fits nowhere else")
        if booting & uids:
            return Relocation(fits=False, reason="its pods would need machines that still boot")
        plan = self._scaler.plan_of(result, self._now)
        return Relocation(fits=True, starts=plan.start)

    def cheaper(
        self, candidates: Sequence[DisruptionCandidate], start: MachineStart
    ) -> MachineStart | str:
        """The replacement with the offerings that save enough, or why none does.

        A replacement is one machine, cheaper than all that it replaces by the share that their pools
        ask for, and not of a type that is as cheap as one of them: that one could stay instead.
        """
        total = sum((candidate.price for candidate in candidates), Decimal(0))
        percent = max(each.pool.spec.disruption.min_savings_percent for each in candidates)
        most = total * (100 - percent) / 100
        types = {type_of(each.machine) for each in candidates}
        left = [way for way in start.spec.candidates if 0 < _price(way) <= most < total]
        if not percent:
            left = [way for way in start.spec.candidates if 0 < _price(way) < total]
        shared = types & {way.instance_type for way in left}
        if shared and len(candidates) > 1:
            least = min(each.price for each in candidates if type_of(each.machine) in shared)
            left = [way for way in left if _price(way) < least]
        # What is bought for its price moves to no market that is just cheaper at this moment.
        if any(is_spot(each.machine) for each in candidates):
            left = [way for way in left if not way.spot]
        if not left:
            return f"no single machine for its pods is cheaper by {percent} %"
        spec = msgspec.structs.replace(
            start.spec,
            candidates=tuple(left),
            instance_type=left[0].instance_type,
            spot=left[0].spot,
        )
        return replace(start, spec=spec)


def _price(way: MachineOffering) -> Decimal:
    return Decimal(way.price_per_hour or 0)


def _ending(machine: Machine) -> Machine:
    return msgspec.structs.replace(
        machine, spec=msgspec.structs.replace(machine.spec, terminate=True)
    )
