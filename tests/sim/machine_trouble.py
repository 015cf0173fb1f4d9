"""A world in which the node controller dies at its requests and calls, and its provider fails."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.support.machine_world import MachineWorld

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.kinds import NODE, POD
from grange.api.kinds.pod import Pod, is_active
from grange.base.clock import Clock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.providers import ProviderTools
from grange.machines.providers.provider import Provider
from grange.machines.providers.simulated.cloud import SimulatedCloud
from grange.machines.providers.simulated.cloud_faults import CloudFault
from grange.machines.providers.simulated.simulated_provider import SimulatedProvider
from grange.machines.scaling.node_match import instance_of
from grange.sim.api_fixture import opened

T = TypeVar("T")

SIDES = ("before", "after", "late", "waiting")
"""Dying before a request is done, after it, before it while it is done some time later, or while nothing is asked."""

LATE_S = (0.5, 40.0)
WAITING_S = (0.0, 12.0)
DOWN_S = (0.0, 20.0)
_FOREVER_S = 1e9


@dataclass(slots=True)
class Doom:
    """Where the controller dies next.

    Attributes:
        left: requests, reads included, and calls until then; None: it does not.
        side: see ``SIDES``.
    """

    left: int | None = None
    side: str = "before"


class TroubledWorld(MachineWorld):
    """A world that kills its controller.

    Attributes:
        doom: where it dies next.
        asked: requests and calls that it has made.
        deaths: how often it died.
        fault_share: share of the calls to the provider that have a fault.
        given: UIDs of the pods that each machine was ever given, by its name.
        recorded: ids of the instances that a record has ever had.
    """

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.doom = Doom()
        self.asked: list[str] = []
        self.deaths = 0
        self.fault_share = 0.0
        self.given: dict[str, list[str]] = {}
        self.recorded: set[str] = set()
        self.draw = rng.fork("trouble")
        self._down = False
        self.cloud.faults = self._fault
        self.intercept = self._intercept

    def provider(self, name: str, config: Mapping[str, Any], tools: ProviderTools) -> Provider:
        return TroubledProvider(self, self.cloud, tools.cluster)

    async def point(self, what: str, act: Callable[[], Awaitable[T]]) -> T:
        """Make a request or a call, or die of it."""
        self.asked.append(what)
        if self._down:
            await self.clock.sleep(_FOREVER_S)  # it is dead already
        if self.doom.left is None:
            return await act()
        self.doom.left -= 1
        if self.doom.left >= 0:
            return await act()
        self.doom.left = None
        if self.doom.side == "waiting":
            self.nursery.start(self._die_waiting(what))
            return await act()
        if self.doom.side == "after":
            await act()
        elif self.doom.side == "late":
            self.nursery.start(self._later(act))
        if not self._down:
            self.nursery.start(self._revive(self.doom.side, what))
        await self.clock.sleep(_FOREVER_S)
        raise AssertionError("cancelled before")

    async def _die_waiting(self, what: str) -> None:
        await self.clock.sleep(self.draw.uniform(*WAITING_S))
        if not self._down:
            await self._revive("waiting", what)

    async def _revive(self, side: str, what: str) -> None:
        self._down = True
        self.deaths += 1
        self.log.info("the controller dies", side=side, what=what)
        if self.task is not None:
            self.task.cancel()
        await self.clock.sleep(self.draw.uniform(*DOWN_S))
        self._down = False
        await self.restart()

    async def _later(self, act: Callable[[], Awaitable[object]]) -> None:
        await self.clock.sleep(self.draw.uniform(*LATE_S))
        try:
            await act()
        except Exception as error:  # noqa: BLE001  what the dead one asked for may be refused
            self.log.info("a late request is refused", error=error)

    async def _intercept(
        self, request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if request.query.get("watch"):
            return await handle(request)
        what = f"{request.method} {request.path}"
        return await self.point(what, lambda: self._judged(request, handle))

    async def _judged(
        self, request: Request, handle: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await handle(request)
        if request.path.endswith("/binding") and response.status < 300:
            document = codec.decode_document(request.body)
            name, uid = document["target"]["name"], document["metadata"]["uid"]
            self._see_binding(name, uid, (await self.client.list(POD)).items)
        if request.method == "PATCH" and "/machines/" in request.path and response.status < 300:
            status = codec.decode_document(response.body).get("status", {})
            self.recorded |= {status["instanceID"]} if status.get("instanceID") else set()
        return response

    async def nodes_left(self) -> list[str]:
        """Names of the nodes that are there and that the controller deletes.

        A node that the cluster named is known by its instance alone. If that vanishes before an answer or a list
        shows it, no record names it: the cluster, which names nodes after instances, deletes it.
        """
        nodes = (await self.client.list(NODE)).items
        known = {"", *self.recorded}
        return [one.metadata.name for one in nodes if instance_of(one) in known]

    def _see_binding(self, node: str, uid: str, pods: "list[Pod] | tuple[Pod, ...]") -> None:
        (machine,) = [name for name in self.cloud.instances if self.node_name(name) == node]
        given = self.given.setdefault(machine, [])
        if uid not in given:
            given.append(uid)
        on_it = [pod.key for pod in pods if pod.spec.node_name == node and is_active(pod)]
        invariant(len(on_it) <= 1, "a machine has one pod", machine=machine, pods=on_it)
        wiped = self.cloud.instances[machine].wiped
        invariant(
            len(given) <= 1 + wiped, "a used machine is wiped before it is given", machine=machine
        )

    def _fault(self, call: str, subject: str) -> CloudFault | None:
        if self.draw.uniform(0.0, 1.0) >= self.fault_share:
            return None
        usual = [fault for fault in CloudFault if fault is not CloudFault.MISCONFIGURED]
        return self.draw.choice(usual)


class TroubledProvider(SimulatedProvider):
    """A provider whose calls the controller may die of."""

    def __init__(self, world: TroubledWorld, cloud: SimulatedCloud, cluster: str) -> None:
        super().__init__(cloud, cluster)
        self._world = world

    async def _call(self, call: str, subject: str, act: Callable[[], T]) -> T:
        whole = super()._call
        return await self._world.point(f"{call} {subject}", lambda: whole(call, subject, act))


@asynccontextmanager
async def troubled_world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[TroubledWorld]:
    """A world whose controller runs until it dies, and again."""
    async with opened(TroubledWorld(clock, rng, log)) as world:
        world.nursery.start(world.agents())
        world.begin()
        yield world
