"""Which machines of packed pools go, and why: empty, drifted, expired or under-utilised.

One method acts in a look: empty machines end together; a drifted or expired one is replaced; then several
under-utilised ones go for none or one cheaper machine, or a single one does. Machines are replaced before they
end, within the budgets of their pool, and only when nothing has changed on them for a while. That a
replacement must be cheaper by a share keeps decisions from undoing each other.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from grange.api.kinds.machine import Machine
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.machines.disruption.disruption_candidates import PodBudgets
from grange.machines.disruption.disruption_methods import DisruptionInputs, DisruptionMethods
from grange.machines.disruption.disruption_plan import (
    INTERRUPTED,
    DisruptionDecision,
    DisruptionPlan,
)
from grange.machines.disruption.disruption_progress import DISRUPTION_ANNOTATION
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.packing_scaler import PackingNodeScaler


class MachineDisruptor:
    """Decides about the machines of packed pools. Pure: nothing is written or called.

    Args:
        pools: all packed pools.
        cluster: what else there is.
        budgets: PodDisruptionBudgets.
        changes: when pods came to or left machines, where that is known.
    """

    def __init__(
        self,
        pools: Sequence[PackedPool],
        cluster: ClusterState,
        budgets: Iterable[PodDisruptionBudget] = (),
        changes: Mapping[str, datetime] | None = None,
    ) -> None:
        self._inputs = DisruptionInputs(
            {pool.name: pool for pool in pools},
            PackingNodeScaler(pools, cluster),
            cluster,
            PodBudgets(budgets),
            changes or {},
        )

    def decide(
        self,
        machines: Sequence[Machine],
        pods: Sequence[Pod],
        *,
        now: datetime,
        start_after: str = "",
    ) -> DisruptionPlan:
        """What to do with the machines; the same input gives the same decision.

        Args:
            machines: of the pools, whatever their phase.
            pods: all pods.
            now: wall time.
            start_after: ``resume_after`` of the last look.
        """
        look = DisruptionMethods(self._inputs, machines, pods, now)
        for method in (look.empty, look.expired, look.drifted, look.together):
            decision = method()
            if decision is not None:
                return DisruptionPlan(decision, look.kept)
        decision, resume_after = look.single(start_after)
        return DisruptionPlan(decision, look.kept, resume_after, look.after_s)

    def validate(
        self,
        reason: str,
        names: Collection[str],
        machines: Sequence[Machine],
        pods: Sequence[Pod],
        *,
        now: datetime,
    ) -> DisruptionDecision | None:
        """A decision as it is to be carried out some time after it was made; None: not any more.

        Args:
            reason: of the decision.
            names: of its machines, which are marked as disrupted by now or not.
            machines: as in ``decide``.
            pods: all pods.
            now: wall time.
        """
        free = [_unmarked(each) if each.metadata.name in names else each for each in machines]
        must_go = names if reason == INTERRUPTED else ()
        look = DisruptionMethods(self._inputs, free, pods, now, must_go)
        chosen = [look.candidates[name] for name in sorted(names) if name in look.candidates]
        if len(chosen) < len(names):
            return None
        found = look.decided(reason, chosen)
        return found if found is not None and found.names == frozenset(names) else None


def _unmarked(machine: Machine) -> Machine:
    annotations = {
        key: value
        for key, value in machine.metadata.annotations.items()
        if key != DISRUPTION_ANNOTATION
    }
    meta = msgspec.structs.replace(machine.metadata, annotations=annotations)
    return msgspec.structs.replace(machine, metadata=meta)
