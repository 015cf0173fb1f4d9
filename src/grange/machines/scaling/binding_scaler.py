"""One pod, one machine: which waiting pod gets which machine, and what to order and end for that.

The steps are those of elotl/kip's BindingNodeScaler: bindings that stand in the records are kept, pods
and machines without one are matched, the other pods get a machine ordered, standby is filled, and what
is left over ends. Unlike there the order is fixed, a stored binding must still match, a pod has one
machine, equal standby entries add up, idle machines get some grace, and everything has its reason.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import SPOT_ALWAYS, SPOT_NEVER, NodePool
from grange.api.kinds.pod import Pod
from grange.api.machine_phases import MachinePhase
from grange.machines.catalogue import InstanceType
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import InstanceSelector, holds
from grange.machines.scaling.kept_standby import KeptStandby, is_being_switched_off
from grange.machines.scaling.machine_facts import is_spot, type_of, zone_of
from grange.machines.scaling.machine_orders import MachineOrders
from grange.machines.scaling.machine_readiness import NOT_CONSIDERED, readiest_first, readiness
from grange.machines.scaling.pod_needs import (
    PodNeed,
    UnusableNeed,
    gib,
    machine_gib,
    need_of,
    waits_for,
)
from grange.machines.scaling.pool_budget import PoolBudget
from grange.machines.scaling.standby import wanted
from grange.machines.scaling_plan import (
    MachineStart,
    MachineStop,
    PodBinding,
    PodSkip,
    ScalingPlan,
)

_P = MachinePhase


class BindingNodeScaler:
    """Decides which machines a dedicated pool needs. Pure: nothing is written or called.

    Args:
        pool: whose machines.
        catalogue: of its provider.
        capacity: what could not be had lately; only launches go by it, never matches.
        boot_image: of new machines.
        template_hash: of the pool's present template, for new machines.
        cordoned: names of machines that no more pods come to; unless they are claimed they are left alone.
        requested: what others than pods need, one a machine; pods go first.
    """

    def __init__(
        self,
        pool: NodePool,
        catalogue: Sequence[InstanceType],
        capacity: CapacityMemory,
        *,
        boot_image: str = "",
        template_hash: str = "",
        cordoned: Collection[str] = (),
        requested: Sequence[PodNeed] = (),
    ) -> None:
        self._pool = pool
        self._asked = requested
        self._cordoned = cordoned
        self._spec = pool.spec
        self._selector = InstanceSelector(catalogue, pool.spec)
        self._capacity = capacity
        self._boot_image = boot_image
        self._template_hash = template_hash
        self._default_gib = gib(pool.spec.volume.default_size)

    def compute(
        self, nodes: Sequence[Machine], pods: Sequence[Pod], *, now: datetime
    ) -> ScalingPlan:
        """A plan for the pool; see ``ScalingAlgorithm``."""
        needs, skips = self._needs(pods)
        kept, unbind, free = self._kept_bindings(nodes, needs)
        bound = {binding.pod_uid for binding in kept}
        open_needs = sorted(
            (need for uid, need in needs.items() if uid not in bound), key=lambda n: n.order
        )
        bind, unserved = self._match(open_needs, free)
        resume = [
            binding.machine for binding in bind if free.pop(binding.machine).phase is _P.STOPPED
        ]
        orders = MachineOrders(
            self._pool,
            self._selector,
            self._capacity,
            PoolBudget(self._spec.limits, self._selector, nodes),
            boot_image=self._boot_image,
            template_hash=self._template_hash,
            known={node.metadata.name for node in nodes},
            now=now,
        )
        start: list[MachineStart] = []
        for need in unserved:
            ordered = orders.for_pod(need)
            if isinstance(ordered, str):
                skips.append(PodSkip(need.pod, need.uid, ordered))
                continue
            start.append(ordered)
            bind.append(PodBinding(need.pod, need.uid, ordered.name, "ordered for it"))
        requested, unmet, promised = self._requested(free, orders)
        resume += [name for name in promised if free.pop(name).phase is _P.STOPPED]
        stopping = [
            node
            for node in nodes
            if is_being_switched_off(node) and node.metadata.name not in self._cordoned
        ]
        standby, refused, kept_free, park = self._standby([*free.values(), *stopping], orders, now)
        taken = {binding.machine for binding in bind}
        if not self._spec.timeouts.idle_seconds:
            # The others end at once, but for those that a holder is to have.
            unbind = [name for name in unbind if name in self._cordoned or name in promised]
        return ScalingPlan(
            start=(*start, *requested, *standby),
            stop=(*park, *self._surplus(free, kept_free | {*unbind}, now)),
            bind=(*kept, *bind),
            skip=(*skips, *unmet, *refused),
            resume=tuple(resume),
            unbind=tuple(name for name in unbind if name not in taken),
        )

    # --- what stands -----------------------------------------------------------------------------

    def _needs(self, pods: Sequence[Pod]) -> tuple[dict[str, PodNeed], list[PodSkip]]:
        """The waiting pods by UID, and those that ask for what cannot be understood."""
        needs: dict[str, PodNeed] = {}
        skips: list[PodSkip] = []
        for pod in pods:
            if not waits_for(pod, self._pool.metadata.name):
                continue
            try:
                needs[pod.metadata.uid] = need_of(pod, self._spec)
            except UnusableNeed as error:
                skips.append(PodSkip(str(pod.key), pod.metadata.uid, str(error)))
        return needs, skips

    def _kept_bindings(
        self, nodes: Sequence[Machine], needs: Mapping[str, PodNeed]
    ) -> tuple[list[PodBinding], list[str], dict[str, Machine]]:
        """Bindings that hold, machines whose binding does not, and free machines, the readiest first."""
        kept: dict[str, PodBinding] = {}
        unbind: list[str] = []
        free: dict[str, Machine] = {}
        for machine in sorted(nodes, key=readiest_first):
            if readiness(machine) == NOT_CONSIDERED:
                break  # as what follows
            if machine.is_ending:
                continue
            uid = machine.status.bound_pod_uid
            need = needs.get(uid)
            if machine.phase is _P.CLAIMED:
                # By a pod that is bound to its node, or is about to be.
                if need is not None:
                    kept[uid] = self._keep(machine, need, "claimed by it")
                continue
            cordoned = machine.metadata.name in self._cordoned
            usable = need is not None and uid not in kept and not cordoned
            if need is not None and usable and self._matches(need, machine):
                kept[uid] = self._keep(machine, need, "bound to it")
                continue
            if uid:
                unbind.append(machine.metadata.name)
            if not cordoned:
                free[machine.metadata.name] = machine
        return list(kept.values()), unbind, free

    def _keep(self, machine: Machine, need: PodNeed, reason: str) -> PodBinding:
        return PodBinding(need.pod, need.uid, machine.metadata.name, reason, kept=True)

    # --- pods that have no machine -----------------------------------------------------------------

    def _is_current(self, machine: Machine) -> bool:
        return machine.spec.template_hash in {"", self._template_hash} or not self._template_hash

    def _match(
        self, needs: Sequence[PodNeed], free: Mapping[str, Machine]
    ) -> tuple[list[PodBinding], list[PodNeed]]:
        """Give each pod the machine that suits it best of those that are left."""
        by_shape: dict[tuple[object, ...], deque[Machine]] = {}
        for machine in free.values():
            by_shape.setdefault(_shape(machine), deque()).append(machine)
        fitting: dict[tuple[object, ...], list[deque[Machine]]] = {}
        bind: list[PodBinding] = []
        unserved: list[PodNeed] = []
        for need in needs:
            groups = fitting.get(need.shape)
            if groups is None:
                groups = [g for g in by_shape.values() if g and self._matches(need, g[0])]
                groups.sort(key=lambda group: self._rank(need, group[0]))
                fitting[need.shape] = groups
            while groups and not groups[0]:
                groups.pop(0)
            if not groups:
                unserved.append(need)
                continue
            machine = groups[0].popleft()
            bind.append(PodBinding(need.pod, need.uid, machine.metadata.name, "suits it"))
        return bind, unserved

    def _rank(self, need: PodNeed, machine: Machine) -> tuple[bool, int, object, str, str]:
        """The exact type first, then the one that is soonest ready, the cheapest, the oldest."""
        name = machine.spec.instance_type
        price = self._selector.price(type_of(machine), zone_of(machine), spot=is_spot(machine))
        wanted_type = not need.instance_type or need.instance_type == name
        created = machine.metadata.creation_timestamp or ""
        return (not wanted_type, readiness(machine), price or 0, created, machine.metadata.name)

    def _matches(self, need: PodNeed, machine: Machine) -> bool:
        """Whether the machine is of the kind that the pod asks for."""
        return (
            self._type_matches(need, machine)
            and (need.spot != SPOT_NEVER or not is_spot(machine))
            and (need.spot != SPOT_ALWAYS or is_spot(machine))
            and need.zone in ("", zone_of(machine))
            and need.private_ip_only == machine.spec.resources.private_ip_only
            and need.dedicated_cpu == machine.spec.resources.dedicated_cpu
            and (
                not self._spec.volume.fixed_size
                or (need.volume_gib or self._default_gib)
                == (machine_gib(machine) or self._default_gib)
            )
        )

    def _type_matches(self, need: PodNeed, machine: Machine) -> bool:
        name = type_of(machine)
        if need.instance_type:
            return need.instance_type == name
        room = self._selector.room(name)
        return room is not None and holds(room, need.request)

    # --- claims by others than pods ----------------------------------------------------------------

    def _requested(
        self, free: Mapping[str, Machine], orders: MachineOrders
    ) -> tuple[list[MachineStart], list[PodSkip], list[str]]:
        """Machines to order for requests, refusals, and free machines that are kept for them."""
        if not self._asked:
            return [], [], []
        # Holders look at labels and taints as well, which one of another template may not have.
        current = {name: machine for name, machine in free.items() if self._is_current(machine)}
        kept, unserved = self._match(self._asked, current)
        start: list[MachineStart] = []
        refused: list[PodSkip] = []
        for need in unserved:
            ordered = orders.for_pod(need)
            if isinstance(ordered, str):
                refused.append(PodSkip("", "", f"{need.pod}: {ordered}"))
                continue
            reason = f"{need.pod} has asked for it"
            start.append(replace(ordered, pods=(), pod_uid="", reason=reason))
        return start, refused, [binding.machine for binding in kept]

    # --- standby and surplus -----------------------------------------------------------------------

    def _standby(
        self, free: Sequence[Machine], orders: MachineOrders, now: datetime
    ) -> tuple[list[MachineStart], list[PodSkip], set[str], list[MachineStop]]:
        """Machines to order for standby, refusals, free machines that are kept, and those to switch off.

        Args:
            free: machines without pods, and those that are being switched off.
            orders: of this pass.
            now: wall time: schedules open and close by it.
        """
        standby = KeptStandby(
            self._pool, boot_image=self._boot_image, template_hash=self._template_hash, now=now
        )
        start: list[MachineStart] = []
        refused: list[PodSkip] = []
        used: set[str] = set()
        park: list[MachineStop] = []
        for shape, count in wanted(self._spec.standby, now).items():
            left = (machine for machine in free if machine.metadata.name not in used)
            kept, missing = standby.choose(left, shape, count)
            for machine in kept:
                used.add(machine.metadata.name)
                if shape.stopped and machine.phase is _P.AVAILABLE:
                    name, version = machine.metadata.name, machine.metadata.resource_version
                    park.append(MachineStop(name, version, "kept switched off", park=True))
            for _ in range(missing):
                ordered = orders.for_standby(shape)
                if isinstance(ordered, str):
                    refused.append(PodSkip("", "", f"standby {shape.instance_type}: {ordered}"))
                    break
                start.append(ordered)
        return start, refused, used, park

    def _surplus(
        self, free: Mapping[str, Machine], used: set[str], now: datetime
    ) -> list[MachineStop]:
        """What nothing needs, the least ready first, then the youngest."""
        left = [machine for name, machine in free.items() if name not in used]
        return [
            MachineStop(
                machine.metadata.name, machine.metadata.resource_version, "nothing needs it"
            )
            for machine in reversed(left)
            if self._idle_s(machine, now) >= self._spec.timeouts.idle_seconds
        ]

    def _idle_s(self, machine: Machine, now: datetime) -> float:
        since = machine.status.available_time or machine.metadata.creation_timestamp
        return (now - timestamps.parse_or(since, now)).total_seconds()


def _shape(machine: Machine) -> tuple[object, ...]:
    """Machines of one shape match the same pods, and equally well but for their age."""
    resources = machine.spec.resources
    return (
        type_of(machine),
        machine.spec.instance_type,
        is_spot(machine),
        zone_of(machine),
        resources.private_ip_only,
        resources.dedicated_cpu,
        resources.volume_size,
        readiness(machine),
    )
