"""Orders of machines: which offering a pod or a standby entry gets, within what can be had and afforded."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from grange.api import names
from grange.api.kinds.machine import (
    MachineOffering,
    MachinePlacement,
    MachineResources,
    MachineSpec,
)
from grange.api.kinds.nodepool import SPOT_ALWAYS, SPOT_NEVER, NodePool
from grange.api.pod_requests import Resources
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import (
    CANDIDATES_MAX,
    InstanceSelector,
    MachineChoice,
)
from grange.machines.scaling.pod_needs import PodNeed
from grange.machines.scaling.pool_budget import PoolBudget
from grange.machines.scaling.standby import StandbyShape
from grange.machines.scaling_plan import MachineStart

_READABLE = names.DNS_LABEL_MAX - names.DIGEST_LENGTH - 1


class MachineOrders:
    """The orders of one pass over a dedicated pool.

    Args:
        pool: whose machines.
        selector: of its instance types.
        capacity: what could not be had lately.
        budget: what is left of the pool's limits.
        boot_image: of new machines.
        template_hash: of the pool's present template.
        now: wall time.
    """

    def __init__(
        self,
        pool: NodePool,
        selector: InstanceSelector,
        capacity: CapacityMemory,
        budget: PoolBudget,
        *,
        boot_image: str,
        template_hash: str,
        now: datetime,
    ) -> None:
        self._pool = pool
        self._spec = pool.spec
        self._selector = selector
        self._capacity = capacity
        self._budget = budget
        self._boot_image = boot_image
        self._template_hash = template_hash
        self._now = now
        self._prefix = pool.metadata.name[:_READABLE].rstrip("-")
        self._known: dict[tuple[object, ...], list[MachineChoice] | str] = {}
        self._count = 0

    def for_pod(self, need: PodNeed) -> MachineStart | str:
        """The machine to order for a pod, or why there is none."""
        choices = self._known.get(need.shape)
        if choices is None:
            choices = self._known[need.shape] = self._choices(need)
        if isinstance(choices, str):
            return choices
        affordable = self._budget.within(choices)
        if isinstance(affordable, str):
            return affordable
        self._budget.take(first := affordable[0])
        size = need.volume_gib if self._spec.volume.fixed_size else 0
        request = need.request
        resources = MachineResources(
            cpu=f"{request.cpu_milli}m" if request.cpu_milli else "",
            memory=str(request.memory_bytes) if request.memory_bytes else "",
            gpu=",".join(f"{key}={count}" for key, count in sorted(request.scalars.items())),
            volume_size=f"{size}Gi" if size else self._spec.volume.default_size,
            dedicated_cpu=need.dedicated_cpu,
            sustained_cpu=True if first.sustained else need.sustained_cpu,
            private_ip_only=need.private_ip_only,
        )
        spec = self._machine(affordable, resources, need.zone)
        name = self._name(need.uid)
        return MachineStart(name, spec, (need.pod,), need.uid, f"pod {need.pod} waits")

    def _choices(self, need: PodNeed) -> list[MachineChoice] | str:
        """The ways to get a machine for such a pod now, best first, or why there is none."""
        if need.instance_type and self._selector.find(need.instance_type) is None:
            return f"instance type {need.instance_type}: the pool may not use it or has none"
        choices = self._selector.choices(
            need.request,
            named=need.instance_type,
            dedicated_cpu=need.dedicated_cpu,
            sustained_cpu=need.sustained_cpu,
        )
        if not choices:
            return f"no instance type of the pool holds {_shown(need.request)}"
        in_zone = [choice for choice in choices if need.zone in ("", choice.offering.zone)]
        if not in_zone:
            return f"zone {need.zone}: the provider does not offer a fitting type there"
        market = [
            choice
            for choice in in_zone
            if (need.spot != SPOT_NEVER or not choice.offering.spot)
            and (need.spot != SPOT_ALWAYS or choice.offering.spot)
        ]
        if not market:
            return f"spot {need.spot}: the provider does not offer a fitting type that way"
        # Spot first where it is preferred, then by price.
        market.sort(key=lambda choice: need.spot != SPOT_NEVER and not choice.offering.spot)
        can_be_had, refusal = self._available(market)
        return can_be_had or refusal

    def _available(self, choices: Sequence[MachineChoice]) -> tuple[list[MachineChoice], str]:
        """What may be tried now, and why nothing may."""
        refusals = [
            self._capacity.refusal(
                choice.instance_type.name,
                choice.offering.zone,
                spot=choice.offering.spot,
                now=self._now,
            )
            for choice in choices
        ]
        usable = [c for c, refused in zip(choices, refusals, strict=True) if refused is None]
        first = choices[0].instance_type.name
        return usable, f"instance type {first}: {refusals[0]}" if refusals[0] else ""

    def for_standby(self, shape: StandbyShape) -> MachineStart | str:
        """The machine to order for a standby entry, or why there is none."""
        choices = [
            choice
            for choice in self._selector.choices(Resources(), named=shape.instance_type)
            if choice.offering.spot == shape.spot
        ]
        if not choices:
            return "the provider does not offer it that way"
        can_be_had, refusal = self._available(choices)
        if not can_be_had:
            return refusal
        affordable = self._budget.within(can_be_had)
        if isinstance(affordable, str):
            return affordable
        self._budget.take(affordable[0])
        resources = MachineResources(volume_size=self._spec.volume.default_size)
        spec = self._machine(affordable, resources, "")
        seed = f"{shape.instance_type}/{shape.spot}/{shape.stopped}"
        return MachineStart(self._name(seed), spec, (), "", "standby")

    def _machine(
        self, choices: Sequence[MachineChoice], resources: MachineResources, zone: str
    ) -> MachineSpec:
        first = choices[0]
        return MachineSpec(
            pool=self._pool.metadata.name,
            provider=self._spec.provider,
            instance_type=first.instance_type.name,
            boot_image=self._boot_image,
            spot=first.offering.spot,
            resources=resources,
            placement=MachinePlacement(zone=zone),
            candidates=tuple(_candidates(choices)),
            labels=dict(self._spec.template.labels),
            taints=(*self._spec.template.taints, *self._spec.template.startup_taints),
            template_hash=self._template_hash,
        )

    def _name(self, seed: str) -> str:
        """A name that no machine before had, and that this pass would choose again."""
        at, self._count = self._count, self._count + 1
        unique = names.digest(self._pool.metadata.uid, seed, self._now.isoformat(), str(at))
        return f"{self._prefix}-{unique}"


def _candidates(choices: Iterable[MachineChoice]) -> Iterable[MachineOffering]:
    for choice in [*choices][:CANDIDATES_MAX]:
        offering = choice.offering
        yield MachineOffering(
            choice.instance_type.name, offering.zone, offering.spot, f"{offering.price}"
        )


def _shown(request: Resources) -> str:
    parts = [f"cpu {request.cpu_milli}m", f"memory {request.memory_bytes // 2**20}Mi"]
    return ", ".join([*parts, *(f"{name} {count}" for name, count in request.scalars.items())])
