"""A cloud in memory: instances whose state follows from the clock, and capacity that may run out."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal

from grange.api.kinds.machine import MachineOffering
from grange.api.kinds.node import NodeAddress
from grange.base.clock import Clock
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceGoneError,
    InstanceState,
    Interruption,
    LaunchRequest,
    MisconfiguredError,
)
from grange.machines.providers.simulated.cloud_faults import FaultSource, no_fault

_ZONES = ("a", "b")


def _kind(name: str, cpu: int, memory_gib: int, price: str) -> InstanceType:
    cost = Decimal(price)
    offerings = [
        Offering(zone, spot, cost / 4 if spot else cost)
        for zone in _ZONES
        for spot in (False, True)
    ]
    capacity = {"cpu": str(cpu), "memory": f"{memory_gib}Gi", "pods": "110"}
    return InstanceType(name, capacity, offerings=tuple(offerings))


TYPES = (
    _kind("large", 8, 32, "0.40"),
    _kind("medium", 4, 16, "0.20"),
    _kind("small", 2, 8, "0.10"),
)
"""Made-up types, each in the zones ``a`` and ``b``, on demand and spot."""

IMAGES = {"default": "image-2"}
"""Images by the name that pools ask for."""


@dataclass(frozen=True, slots=True)
class CloudLatencies:
    """How long things take, in seconds.

    Attributes:
        call: every call.
        boot: from launch or start until an instance runs.
        stop: until it is off.
        end: until it is gone.
        list_lag: what is listed is the state of so long ago.
        late: what is done late is done after so long.
    """

    call: float = 0.05
    boot: float = 2.0
    stop: float = 1.0
    end: float = 1.0
    list_lag: float = 0.0
    late: float = 20.0


@dataclass(frozen=True, slots=True)
class AnnouncedEnd:
    """An instance that will be taken away.

    Attributes:
        instance_id: which.
        at: when, monotonic seconds.
        warning: nothing is taken away, perhaps.
    """

    instance_id: str
    at: float
    warning: bool

    def notice(self, now: float) -> Interruption:
        """As it is announced at a monotonic time."""
        within_s = max(0.0, self.at - now)
        return Interruption(self.instance_id, "instance is reclaimed", within_s, self.warning)


@dataclass(slots=True)
class SimulatedInstance:
    """An instance.

    Attributes:
        instance: what does not change; its state and addresses are those of the start.
        cluster: its tag.
        request: what it was launched by.
        changes: states by the time from which they hold, in order; None is gone.
        wiped: how often it was wiped.
        volume_gib: size of its disk.
    """

    instance: Instance
    cluster: str
    request: LaunchRequest
    changes: list[tuple[float, InstanceState | None]] = field(default_factory=list)
    wiped: int = 0
    volume_gib: int = 0

    def state_at(self, now: float) -> InstanceState | None:
        """Its state at a monotonic time; None: not yet or no longer there."""
        state: InstanceState | None = None
        for since, following in self.changes:
            if since <= now:
                state = following
        return state

    def seen(self, now: float) -> Instance | None:
        """What a look at that time shows."""
        state = self.state_at(now)
        if state is None:
            return None
        shown = state is InstanceState.RUNNING
        return replace(self.instance, state=state, addresses=self.instance.addresses * shown)

    def become(self, now: float, *changes: tuple[float, InstanceState | None]) -> None:
        """From now on it goes through these states, each after so many seconds."""
        self.changes = [change for change in self.changes if change[0] <= now]
        self.changes += [(now + after, state) for after, state in changes]


class SimulatedCloud:
    """What outlives every control plane: the instances.

    Args:
        clock: time.
        types: what can be bought.
        latencies: how long things take.
        faults: decides about each call.

    Attributes:
        instances: all that ever were, by token of their launch.
        capacity: how many of an offering (type, zone, spot) can still be had; missing: any number.
        latencies: may be changed at any time.
        faults: may be replaced at any time.
        launches: how many instances were really launched.
        stoppable: whether instances can be switched off and on.
        wipeable: whether they can be wiped.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        types: Iterable[InstanceType] = TYPES,
        latencies: CloudLatencies | None = None,
        faults: FaultSource = no_fault,
    ) -> None:
        self.types = {kind.name: kind for kind in types}
        self.latencies = latencies or CloudLatencies()
        self.faults = faults
        self.instances: dict[str, SimulatedInstance] = {}
        self.capacity: dict[tuple[str, str, bool], int] = {}
        self.launches = 0
        self.stoppable = self.wipeable = True
        self.clock = clock
        self._late: list[tuple[float, Callable[[], object]]] = []
        self._announced: list[AnnouncedEnd] = []
        self._announcement = asyncio.Event()

    # --- what calls do -------------------------------------------------------------------------

    def launch(self, request: LaunchRequest, cluster: str) -> Instance:
        """Launch, or find what was launched under the token.

        Raises:
            CapacityError, InstanceGoneError, MisconfiguredError: see ``Provider.launch``.
        """
        now = self.now()
        known = self.instances.get(request.token)
        if known is not None:
            found = known.seen(now)
            if found is None:
                raise InstanceGoneError(f"instance of {request.token} has ended; order another")
            return found
        chosen = self._choose(request)
        self.launches += 1
        number = self.launches
        address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        instance = Instance(
            id=f"sim-{number:05d}",
            machine=request.token,
            instance_type=chosen.instance_type,
            zone=chosen.zone,
            spot=chosen.spot,
            price_per_hour=f"{self._price(chosen)}",
            addresses=(NodeAddress(type="InternalIP", address=address),),
        )
        made = SimulatedInstance(instance, cluster, request, volume_gib=request.volume_gib)
        made.become(now, (0.0, InstanceState.PENDING), (self.latencies.boot, InstanceState.RUNNING))
        self.instances[request.token] = made
        return replace(instance, addresses=())

    def end(self, instance_id: str) -> None:
        """Begin to end an instance."""
        found, now = self.find(instance_id), self.now()
        if found is None or found.state_at(now) in {None, InstanceState.ENDING}:
            return
        found.become(now, (0.0, InstanceState.ENDING), (self.latencies.end, None))

    def stop(self, instance_id: str) -> None:
        """Begin to switch an instance off.

        Raises:
            InstanceGoneError: there is none.
        """
        found = self._there(instance_id)
        if found.state_at(self.now()) in {InstanceState.PENDING, InstanceState.RUNNING}:
            off = (0.0, InstanceState.STOPPING), (self.latencies.stop, InstanceState.STOPPED)
            found.become(self.now(), *off)

    def start(self, instance_id: str) -> None:
        """Begin to switch an instance on.

        Raises:
            InstanceGoneError: there is none.
        """
        found = self._there(instance_id)
        if found.state_at(self.now()) in {InstanceState.STOPPING, InstanceState.STOPPED}:
            on = (0.0, InstanceState.PENDING), (self.latencies.boot, InstanceState.RUNNING)
            found.become(self.now(), *on)

    def vanish(self, instance_id: str) -> None:
        """An instance is gone at once, without anybody having asked for it."""
        if (found := self.find(instance_id)) is not None:
            found.become(self.now(), (0.0, None))

    def interrupt(self, instance_id: str, within_s: float, *, warning: bool = False) -> None:
        """Announce that an instance is taken away, and do so then unless it is only a warning."""
        now = self.now()
        self._announced.append(AnnouncedEnd(instance_id, now + within_s, warning))
        self._announcement.set()
        if not warning:
            self._late.append((now + within_s, lambda: self.vanish(instance_id)))

    def announced(self, cluster: str) -> list[AnnouncedEnd]:
        """The announcements about a cluster's instances that were not taken yet."""
        ids = {one.instance.id for one in self.instances.values() if one.cluster == cluster}
        return [one for one in self._announced if one.instance_id in ids]

    def taken(self, announced: AnnouncedEnd) -> None:
        """An announcement was read: it does not come again."""
        if announced in self._announced:
            self._announced.remove(announced)

    async def announcement(self, until: float | None) -> None:
        """Wait for the next one, no longer than until a monotonic time."""
        self._announcement.clear()
        try:
            async with self.clock.timeout(None if until is None else until - self.now()):
                await self._announcement.wait()
        except TimeoutError:
            pass  # one comes again

    def wipe(self, instance_id: str) -> None:
        """Remove what a holder left.

        Raises:
            InstanceGoneError: there is none.
        """
        self._there(instance_id).wiped += 1

    # --- what is asked ---------------------------------------------------------------------------

    def listed(self, cluster: str) -> list[Instance]:
        """What a list shows, which may be a state of some time ago."""
        at = self.now() - self.latencies.list_lag
        tagged = (one for one in self.instances.values() if one.cluster == cluster)
        return [found for one in tagged if (found := one.seen(at)) is not None]

    def running(self) -> list[SimulatedInstance]:
        """The instances that run now."""
        now, running = self.now(), InstanceState.RUNNING
        return [one for one in self.instances.values() if one.state_at(now) is running]

    def alive(self) -> list[SimulatedInstance]:
        """The instances that are not gone."""
        now = self.now()
        return [one for one in self.instances.values() if one.state_at(now) is not None]

    def find(self, instance_id: str) -> SimulatedInstance | None:
        """The instance of an id, gone or not."""
        for one in self.instances.values():
            if one.instance.id == instance_id:
                return one
        return None

    def now(self) -> float:
        """Monotonic seconds; what is due by now is done."""
        now = self.clock.monotonic()
        due = [act for at, act in self._late if at <= now]
        self._late = [item for item in self._late if item[0] > now]
        for act in due:
            act()
        return now

    def later(self, act: Callable[[], object]) -> None:
        """Have something done late."""
        self._late.append((self.clock.monotonic() + self.latencies.late, act))

    def _there(self, instance_id: str) -> SimulatedInstance:
        found = self.find(instance_id)
        if found is None or found.state_at(self.now()) is None:
            raise InstanceGoneError(f"instance {instance_id} is gone; order another")
        return found

    def _choose(self, request: LaunchRequest) -> MachineOffering:
        """The first offering that can be had, which has one less from now on.

        Raises:
            CapacityError: none can be had.
            MisconfiguredError: an offering or the image does not exist.
        """
        if request.image and request.image not in IMAGES.values():
            raise MisconfiguredError(f"image {request.image}: there is none; change bootImage")
        for offering in request.offerings:
            kind = self.types.get(offering.instance_type)
            if kind is None:
                wrong = offering.instance_type
                raise MisconfiguredError(f"instance type {wrong}: there is none; change the pool")
            zones = [offering.zone] if offering.zone else [o.zone for o in kind.offerings]
            for zone in dict.fromkeys(zones):
                key = offering.instance_type, zone, offering.spot
                if self.capacity.get(key, 1) > 0:
                    if key in self.capacity:
                        self.capacity[key] -= 1
                    return MachineOffering(*key)
        wanted = request.offerings[0].instance_type
        raise CapacityError(f"instance type {wanted}: no capacity; wait or allow other types")

    def _price(self, chosen: MachineOffering) -> Decimal:
        for offering in self.types[chosen.instance_type].offerings:
            if (offering.zone, offering.spot) == (chosen.zone, chosen.spot):
                return offering.price
        return Decimal(0)
