"""Which machines of packed pools are empty, drifted, expired or under-utilised, and what each method decides."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import zip_longest

from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import WHEN_UNDERUTILIZED, NodePool
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.machines.disruption.disruption_allowance import allowed_disruptions
from grange.machines.disruption.disruption_candidates import (
    DisruptionCandidate,
    PodBudgets,
    blocking_pod,
    candidate_of,
    moving_pods,
    quiet_since,
)
from grange.machines.disruption.disruption_plan import (
    DRIFTED,
    EMPTY,
    EXPIRED,
    INTERRUPTED,
    UNDERUTILIZED,
    DisruptionDecision,
)
from grange.machines.disruption.disruption_progress import is_disrupted, replacing
from grange.machines.disruption.relocation import RelocationPlanner
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.packing_pods import occupies, waits_for_machine
from grange.machines.scaling.packing_scaler import PackingNodeScaler
from grange.machines.scaling.packing_standby import is_off, standby_machines
from grange.machines.scaling_plan import MachineStart, MachineStop

TOGETHER_MAX, SINGLE_MAX = 100, 20
"""Machines that are considered to go together, and one by one, in a look."""

WORK_MAX = 40_000
"""Pods that are counted in a look, those of each packing again: so long other work waits."""

LOOK_S = 60.0
"""Time alone changes decisions no sooner than this, unless a machine is watched for less."""

_MEANT = "pods that wait are meant for it"
_BOOTING = frozenset({MachinePhase.CREATING, MachinePhase.CREATED})


@dataclass(frozen=True, slots=True)
class DisruptionInputs:
    """What looks have in common.

    Attributes:
        pools: packed pools by name.
        scaler: of all of them.
        cluster: what else there is.
        budgets: of pods.
        changes: when pods came to or left machines, where that is known.
    """

    pools: Mapping[str, PackedPool]
    scaler: PackingNodeScaler
    cluster: ClusterState
    budgets: PodBudgets
    changes: Mapping[str, datetime]


class DisruptionMethods:
    """What each method decides about all machines at one moment.

    Args:
        inputs: what does not change between looks.
        machines: of the pools, whatever their phase.
        pods: all pods.
        now: wall time.
        must_go: names of machines that their provider takes away.

    Attributes:
        candidates: machines that may be disrupted, by name.
        kept: why others may not, and why candidates stay.
        after_s: seconds after which time alone may change what was decided.
    """

    def __init__(
        self,
        inputs: DisruptionInputs,
        machines: Sequence[Machine],
        pods: Sequence[Pod],
        now: datetime,
        must_go: Collection[str] = (),
    ) -> None:
        self._inputs = inputs
        self._machines = machines
        self._now, self._must_go = now, must_go
        self.kept: dict[str, str] = {}
        self.after_s = LOOK_S
        self._leaving: list[Pod] = []
        self._packings = max(3, WORK_MAX // (len(pods) + 1))
        self.candidates: dict[str, DisruptionCandidate] = {}
        plan = inputs.scaler.compute(machines, pods, now=now)
        phases = {machine.metadata.name: machine.phase for machine in machines}
        meant = {
            each.machine: "a MachineLease that waits is meant to have it" for each in plan.reserve
        }
        meant |= dict.fromkeys((each.machine for each in plan.bind), _MEANT)
        self._in_flux = bool(plan.start) or any(phases.get(name) in _BOOTING for name in meant)
        bound = {binding.pod_uid for binding in plan.bind}
        waiting = [pod for pod in pods if pod.metadata.uid in bound and waits_for_machine(pod)]
        nominated = dict.fromkeys(replacing(machines), _MEANT) | meant
        self._off = [
            each for each in machines if is_off(each) and each.metadata.name not in nominated
        ]
        self._collect(pods, nominated)
        self._relocations = RelocationPlanner(
            inputs.scaler,
            machines,
            pods,
            waiting,
            leaving=self._leaving,
            # Pods of a machine that is taken away may have standby machines.
            empty=()
            if must_go
            else {name for name, each in self.candidates.items() if not each.pods},
            now=now,
        )

    def _collect(self, pods: Sequence[Pod], nominated: Mapping[str, str]) -> None:
        of_node: dict[str, list[Pod]] = {}
        for pod in pods:
            if node := occupies(pod):
                of_node.setdefault(node, []).append(pod)
        nodes = {node.metadata.name: node for node in self._inputs.cluster.nodes}
        for machine in sorted(self._machines, key=lambda each: each.metadata.name):
            pool = self._inputs.pools.get(machine.spec.pool)
            if pool is None:
                continue
            name = machine.metadata.name
            if is_disrupted(machine) or machine.is_ending:
                self._leaving += moving_pods(of_node.get(machine.node, ()))
            found = candidate_of(
                machine,
                nodes.get(machine.node),
                pool.pool,
                of_node.get(machine.node, ()),
                nominated=nominated,
                changes=self._inputs.changes,
                now=self._now,
                must_go=name in self._must_go,
            )
            if isinstance(found, str):
                self.kept[name] = found
            else:
                self.candidates[name] = found

    # --- methods -------------------------------------------------------------------------------------

    def empty(self) -> DisruptionDecision | None:
        """Machines without pods, all that the budgets allow."""
        return self.decided(EMPTY, [each for each in self.candidates.values() if not each.pods])

    def expired(self) -> DisruptionDecision | None:
        """The oldest machine that is too old."""
        old = [each for each in self.candidates.values() if self._age_over(each) is not None]
        return self._first(EXPIRED, sorted(old, key=lambda each: (each.created, each.name)))

    def drifted(self) -> DisruptionDecision | None:
        """A machine that its pool would not make like this any more, the one that is cheapest to disrupt.

        Standby is replaced by the pass over its pool, and is none any more when that is done.
        """
        drifted = [each for each in self.candidates.values() if self._drift(each)]
        standby = self._standby() if drifted else {}
        found = [each for each in drifted if each.pods or not self._stands(each, standby)]
        return self._first(DRIFTED, sorted(found, key=lambda each: (each.cost, each.name)))

    def together(self) -> DisruptionDecision | None:
        """As many machines as can go for none or for one cheaper machine: two or more."""
        ranked = self._underutilized()
        ranked.sort(key=lambda each: (-float(each.price) / each.cost, each.name))
        ranked = self._allowed(UNDERUTILIZED, ranked)
        ranked = ranked[: min(TOGETHER_MAX, 2**self._packings)]
        best: DisruptionDecision | None = None
        low, high = 2, len(ranked)
        while low <= high:
            middle = (low + high) // 2
            found = self.decided(UNDERUTILIZED, ranked[:middle])
            if found is None:
                high = middle - 1
            else:
                best, low = found, middle + 1
        return best

    def single(self, start_after: str) -> tuple[DisruptionDecision | None, str]:
        """One machine; pools take turns, and a look goes on where the last one ended."""
        ranked = sorted(self._underutilized(), key=lambda each: (each.cost, each.name))
        by_pool: dict[str, list[DisruptionCandidate]] = {}
        for candidate in ranked:
            by_pool.setdefault(candidate.pool.metadata.name, []).append(candidate)
        queue = [
            each for turn in zip_longest(*by_pool.values()) for each in turn if each is not None
        ]
        names = [each.name for each in queue]
        at = names.index(start_after) + 1 if start_after in names else 0
        queue = [*queue[at:], *queue[:at]]
        most = min(SINGLE_MAX, self._packings)
        for candidate in queue[:most]:
            found = self.decided(UNDERUTILIZED, [candidate])
            if found is not None:
                return found, ""
        return None, queue[most - 1].name if len(queue) > most else ""

    # --- one decision --------------------------------------------------------------------------------

    def decided(
        self, reason: str, candidates: Sequence[DisruptionCandidate]
    ) -> DisruptionDecision | None:
        """The decision about just these machines; fewer only where they are empty. None if there is none."""
        if not candidates:
            return None
        if reason == EMPTY:
            return self._end_empty(candidates)
        if reason == INTERRUPTED:
            relocation = self._relocations.relocate(candidates)
            decision = self._decision(reason, candidates, relocation.starts, forced=True)
            return replace(decision, unplaced=relocation.reason)
        forced = reason == EXPIRED and all(self._is_forced(each) for each in candidates)
        if not forced and not self._may_go(reason, candidates):
            return None
        relocation = self._relocations.relocate(candidates)
        if not relocation.fits and not forced:
            self._stay(candidates, relocation.reason)
            return None
        starts: tuple[MachineStart, ...] = relocation.starts
        if reason == UNDERUTILIZED and starts:
            if len(starts) > 1:
                self._stay(candidates, "its pods would need more than one machine")
                return None
            cheaper = self._relocations.cheaper(candidates, starts[0])
            if isinstance(cheaper, str):
                self._stay(candidates, cheaper)
                return None
            starts = (cheaper,)
        return self._decision(reason, candidates, starts, forced=forced)

    def _end_empty(self, candidates: Sequence[DisruptionCandidate]) -> DisruptionDecision | None:
        standby = self._standby()
        quiet = [
            each
            for each in candidates
            if not each.pods and not self._stands(each, standby) and self._is_quiet(each, each.pool)
        ]
        allowed = self._allowed(EMPTY, quiet)
        if not allowed:
            return None
        return self._decision(EMPTY, allowed, ())

    def _standby(self) -> Mapping[str, str]:
        free = [each.machine for each in self.candidates.values() if not each.pods]
        return standby_machines(self._inputs.pools.values(), [*free, *self._off], self._now)

    def _stands(self, candidate: DisruptionCandidate, standby: Mapping[str, str]) -> bool:
        if candidate.name in standby:
            self.kept[candidate.name] = "standby"
        return candidate.name in standby

    def _may_go(self, reason: str, candidates: Sequence[DisruptionCandidate]) -> bool:
        """Whether nothing but the other pods and machines keeps them."""
        for candidate in candidates:
            blocked = blocking_pod(candidate, self._inputs.budgets)
            grace = candidate.pool.spec.disruption.termination_grace_period_seconds
            # A drain with an end gets pods out of the way, however long they hold it up.
            if blocked and (reason == UNDERUTILIZED or grace is None):
                self.kept[candidate.name] = blocked
                return False
            if reason == UNDERUTILIZED and not self._is_quiet(candidate, candidate.pool):
                return False
        return len(self._allowed(reason, candidates)) == len(candidates)

    def _allowed(
        self, reason: str, candidates: Sequence[DisruptionCandidate]
    ) -> list[DisruptionCandidate]:
        """As many of them, in their order, as the budgets of their pools allow."""
        left: dict[str, int] = {}
        found: list[DisruptionCandidate] = []
        for candidate in candidates:
            pool = candidate.pool.metadata.name
            if pool not in left:
                left[pool] = allowed_disruptions(
                    candidate.pool.spec.disruption,
                    reason,
                    [each for each in self._machines if each.spec.pool == pool],
                    self._serving(pool),
                    self._now,
                )
            if left[pool] > 0:
                left[pool] -= 1
                found.append(candidate)
            else:
                self.kept[candidate.name] = f"disruption budgets of pool {pool} ({reason})"
        return found

    def _serving(self, pool: str) -> list[str]:
        not_ready = "its node is not ready"
        return [
            each.metadata.name
            for each in self._machines
            if each.spec.pool == pool
            and not each.is_ending
            and not is_disrupted(each)
            and self.kept.get(each.metadata.name) != not_ready
        ]

    def _underutilized(self) -> list[DisruptionCandidate]:
        """Machines with pods that may go for their price, as far as one can see without packing."""
        if self._in_flux:
            self.kept.update(dict.fromkeys(self.candidates, "machines are on their way"))
            return []
        found = []
        for each in self.candidates.values():
            if each.pool.spec.disruption.policy != WHEN_UNDERUTILIZED:
                self.kept[each.name] = f"policy {each.pool.spec.disruption.policy}"
            elif each.pods and self._is_quiet(each, each.pool):
                blocked = blocking_pod(each, self._inputs.budgets)
                if blocked:
                    self.kept[each.name] = blocked
                else:
                    found.append(each)
        return found

    def _is_quiet(self, candidate: DisruptionCandidate, pool: NodePool) -> bool:
        rest = timedelta(seconds=pool.spec.disruption.consolidate_after_seconds)
        quiet = quiet_since(candidate, self._now)
        if quiet < rest:
            seconds = (rest - quiet).total_seconds()
            self.after_s = min(self.after_s, seconds)
            self.kept[candidate.name] = f"it changed lately; looked at again in {seconds:.0f} s"
        return quiet >= rest

    def _first(
        self, reason: str, candidates: Sequence[DisruptionCandidate]
    ) -> DisruptionDecision | None:
        for candidate in candidates:
            found = self.decided(reason, [candidate])
            if found is not None:
                return found
        return None

    def _age_over(self, candidate: DisruptionCandidate) -> timedelta | None:
        """By how much a machine is too old; None if it is not."""
        most = candidate.pool.spec.disruption.expire_after_seconds
        over = self._now - candidate.created - timedelta(seconds=most)
        return over if most and over >= timedelta(0) else None

    def _is_forced(self, candidate: DisruptionCandidate) -> bool:
        grace = candidate.pool.spec.disruption.termination_grace_period_seconds
        over = self._age_over(candidate)
        return over is not None and grace is not None and over >= timedelta(seconds=grace)

    def _drift(self, candidate: DisruptionCandidate) -> str:
        """In what a machine differs from those that its pool makes now; empty for nothing."""
        pool = self._inputs.pools[candidate.machine.spec.pool]
        spec = candidate.machine.spec
        if spec.template_hash and pool.template_hash and spec.template_hash != pool.template_hash:
            return "its pool's template has changed"
        if spec.boot_image and pool.boot_image and spec.boot_image != pool.boot_image:
            return f"image {spec.boot_image}, new ones have {pool.boot_image}"
        return ""

    def _stay(self, candidates: Iterable[DisruptionCandidate], reason: str) -> None:
        for candidate in candidates:
            self.kept[candidate.name] = reason

    def _decision(
        self,
        reason: str,
        candidates: Sequence[DisruptionCandidate],
        starts: tuple[MachineStart, ...],
        *,
        forced: bool = False,
    ) -> DisruptionDecision:
        messages = {
            EMPTY: "no pods",
            EXPIRED: "older than its pool allows",
            INTERRUPTED: "its provider takes it away",
            UNDERUTILIZED: "its pods fit elsewhere for less",
        }
        stops = []
        for each in candidates:
            message = messages.get(reason) or self._drift(each)
            meta = each.machine.metadata
            stops.append(MachineStop(meta.name, meta.resource_version, f"{reason}: {message}"))
            self.kept.pop(meta.name, None)
        first = stops[0].reason
        into = ", ".join(start.spec.instance_type for start in starts)
        message = f"{first}; replaced by {into}" if into else first
        return DisruptionDecision(reason, tuple(stops), starts, message, forced=forced)
