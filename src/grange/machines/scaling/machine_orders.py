"""Orders of machines: which offering a pod or a standby entry gets, within what can be had and afforded."""

from collections.abc import Container, Sequence
from datetime import datetime
from functools import partial

from grange.api import quantity
from grange.api.kinds.machine import MachineOffering, MachineResources, MachineSpec
from grange.api.kinds.nodepool import SPOT_ALWAYS, SPOT_NEVER, NodePool
from grange.api.pod_requests import Resources
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import (
    CANDIDATES_MAX,
    InstanceSelector,
    MachineChoice,
    Usable,
)
from grange.machines.scaling.machine_specs import machine_name, machine_spec
from grange.machines.scaling.pod_needs import PodNeed
from grange.machines.scaling.pool_budget import PoolBudget
from grange.machines.scaling.standby import StandbyShape
from grange.machines.scaling_plan import MachineStart


class MachineOrders:
    """The orders of one pass over a dedicated pool.

    Args:
        pool: whose machines.
        selector: of its instance types.
        capacity: what could not be had lately.
        budget: what is left of the pool's limits.
        boot_image: of new machines.
        template_hash: of the pool's present template.
        known: names of the pool's machines.
        now: wall time.
    """

    def __init__(  # noqa: PLR0913  what a pass goes by
        self,
        pool: NodePool,
        selector: InstanceSelector,
        capacity: CapacityMemory,
        budget: PoolBudget,
        *,
        boot_image: str,
        template_hash: str,
        known: Container[str],
        now: datetime,
    ) -> None:
        self._pool = pool
        self._spec = pool.spec
        self._selector = selector
        self._capacity = capacity
        self._budget = budget
        self._boot_image = boot_image
        self._template_hash = template_hash
        self._now, self._names = now, known
        # What pods of one shape can get; many do not differ.
        self._known: dict[
            tuple[object, ...], tuple[list[MachineChoice], tuple[MachineOffering, ...]] | str
        ] = {}
        self._moment = now.isoformat()
        self._count = 0

    def for_pod(self, need: PodNeed) -> MachineStart | str:
        """The machine to order for a pod, or why there is none."""
        known = self._known.get(need.shape)
        if known is None:
            choices = self._choices(need)
            known = choices if isinstance(choices, str) else (choices, _candidates(choices))
            self._known[need.shape] = known
        if isinstance(known, str):
            return known
        choices, candidates = known
        affordable = self._budget.within(choices)
        if isinstance(affordable, str):
            return affordable
        if affordable is not choices:
            candidates = _candidates(affordable)
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
        spec = self._machine(candidates, resources, need.zone)
        name = self._name(need.uid)
        return MachineStart(name, spec, (need.pod,), need.uid, f"pod {need.pod} waits")

    def _choices(self, need: PodNeed) -> list[MachineChoice] | str:
        """The ways to get a machine for such a pod now, best first, or why there is none."""
        if need.instance_type and self._selector.find(need.instance_type) is None:
            return f"instance type {need.instance_type}: the pool may not use it or has none"
        # Spot first where it is preferred; then some room for what is on demand is left.
        markets = {SPOT_NEVER: (False,), SPOT_ALWAYS: (True,)}.get(need.spot, (True, False))
        found: list[MachineChoice] = []
        for at, spot in enumerate(markets, start=1):
            most = CANDIDATES_MAX * at // len(markets) - len(found)
            found += self._found(need, partial(self._may, need.zone, {spot}), most)
        return found or self._why_none(need, markets)

    def _found(self, need: PodNeed, usable: Usable, most: int) -> list[MachineChoice]:
        return self._selector.choices(
            need.request,
            named=need.instance_type,
            dedicated_cpu=need.dedicated_cpu,
            sustained_cpu=need.sustained_cpu,
            usable=usable,
            most=most,
        )

    def _may(self, zone: str, markets: Container[bool], kind: InstanceType, way: Offering) -> bool:
        in_question = way.spot in markets and zone in ("", way.zone)
        return in_question and self._refusal(kind.name, way) is None

    def _refusal(self, name: str, way: Offering) -> str | None:
        return self._capacity.refusal(name, way.zone, spot=way.spot, now=self._now)

    def _why_none(self, need: PodNeed, markets: Sequence[bool]) -> str:
        """What rules out the last offerings that were left."""
        if not self._found(need, lambda kind, way: True, 1):
            return f"no instance type of the pool holds {_shown(need.request)}"
        in_zone = self._found(need, lambda kind, way: need.zone in ("", way.zone), 1)
        if not in_zone:
            return f"zone {need.zone}: the provider does not offer a fitting type there"
        refused = self._found(
            need, lambda kind, way: need.zone in ("", way.zone) and way.spot in markets, 1
        )
        if not refused:
            return f"spot {need.spot}: the provider does not offer a fitting type that way"
        name = refused[0].instance_type.name
        return f"instance type {name}: {self._refusal(name, refused[0].offering)}"

    def for_standby(self, shape: StandbyShape) -> MachineStart | str:
        """The machine to order for a standby entry, or why there is none."""

        def offered(kind: InstanceType, way: Offering) -> bool:
            return way.spot == shape.spot

        choices = self._selector.choices(Resources(), named=shape.instance_type, usable=offered)
        if not choices:
            return "the provider does not offer it that way"
        can_be_had = [
            choice
            for choice in choices
            if self._refusal(shape.instance_type, choice.offering) is None
        ]
        if not can_be_had:
            refusal = self._refusal(shape.instance_type, choices[0].offering)
            return f"instance type {shape.instance_type}: {refusal}"
        affordable = self._budget.within(can_be_had)
        if isinstance(affordable, str):
            return affordable
        self._budget.take(affordable[0])
        resources = MachineResources(volume_size=self._spec.volume.default_size)
        spec = self._machine(_candidates(affordable), resources, "")
        seed = f"{shape.instance_type}/{shape.spot}/{shape.stopped}"
        return MachineStart(self._name(seed), spec, (), "", "standby")

    def _machine(
        self, candidates: tuple[MachineOffering, ...], resources: MachineResources, zone: str
    ) -> MachineSpec:
        return machine_spec(
            self._pool,
            candidates,
            resources,
            zone=zone,
            boot_image=self._boot_image,
            template_hash=self._template_hash,
        )

    def _name(self, seed: str) -> str:
        """A name that no machine before had, and that this pass would choose again."""
        at, self._count = self._count, self._count + 1
        return machine_name(self._pool, self._names, seed, self._moment, str(at))


def _candidates(choices: Sequence[MachineChoice]) -> tuple[MachineOffering, ...]:
    return tuple(
        MachineOffering(
            choice.instance_type.name,
            choice.offering.zone,
            choice.offering.spot,
            f"{choice.offering.price}",
        )
        for choice in choices
    )


def _shown(request: Resources) -> str:
    amounts = {
        "cpu": quantity.format_milli(request.cpu_milli),
        "memory": quantity.format_binary(request.memory_bytes),
        **{name: str(count) for name, count in request.scalars.items()},
    }
    asked = [f"{name} {amount}" for name, amount in amounts.items() if amount != "0"]
    return ", ".join(asked) or "the requests"
