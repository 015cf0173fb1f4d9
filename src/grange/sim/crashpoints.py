"""Crashes at every await of the seam: whatever a component asks of the world may be its last request.

A component meets the world at its requests only: those of its transport and those to a pool of
machines. Between two of them nothing that it does is seen by anybody, so a crash at any await is the
same as a crash just before the next request takes effect, or just after the last one did and before
its answer arrived. Here the requests of a story are counted, and in a second run of the same
story the component dies at one of them.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from grange.api.http import Request, Response
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.status import ServiceUnavailable
from grange.client.transport import Transport
from grange.reconcile.machine_pool import MachinePool
from grange.sim.faults import close_chunks
from grange.sim.world import World

T = TypeVar("T")

_FOREVER_S = 1e9
MISSED_S = 20.0
"""Within this time the others have the work of a member that died (docs/explanation/farm.md)."""


class Crashed(ServiceUnavailable):
    """Who asks is dead: until its cancellation arrives it meets what looks like a broken network."""


class CrashSide(Enum):
    """Whether the request at which a component dies takes effect."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """Where a component dies, or something else happens.

    Attributes:
        number: of the request, from 0, among those that are counted.
        side: whether it has taken effect by then; who dies there sees its answer in no case.
    """

    number: int
    side: CrashSide

    def __str__(self) -> str:
        return f"{self.side.value} request {self.number}"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request.

    Attributes:
        component: who asked.
        what: in words.
    """

    component: str
    what: str


def every_point(requests: int) -> Sequence[CrashPoint]:
    """Both sides of so many requests."""
    return [CrashPoint(number, side) for number in range(requests) for side in CrashSide]


class CrashPoints:
    """Counts requests between ``begin`` and ``end``, and kills the process that makes a certain one.

    Made before the components are added whose requests are to be counted. Who was killed may be
    started again: it has a new life then.

    Args:
        world: whose components.
        actors: whose requests count; None counts everybody's.
        point: where to kill; None kills none.
        instead: what happens there instead of a death; the request and its answer are not harmed.

    Attributes:
        asked: the requests that counted, in order.
        struck: the request at which a process was killed, or that had ``instead`` happen; None so far.
    """

    def __init__(
        self,
        world: World,
        *,
        actors: Collection[str] | None,
        point: CrashPoint | None = None,
        instead: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.asked: list[Asked] = []
        self.struck: Asked | None = None
        self._world = world
        self._actors = actors
        self._point = point
        self._instead = instead
        self._counting = False
        self._lives: Counter[str] = Counter()
        self._dead: set[tuple[str, int]] = set()
        world.taps.append(self._tap)

    def begin(self) -> None:
        """Count from now on."""
        self._counting = True

    def end(self) -> None:
        """Count no longer."""
        self._counting = False

    def pool(self, inner: MachinePool, component: str) -> MachinePool:
        """A component's way to a pool of machines."""
        return _TappedPool(self, inner, component)

    async def ask(
        self,
        asked: Asked,
        act: Callable[[], Awaitable[T]],
        discard: Callable[[T], Awaitable[object]] | None = None,
        *,
        life: int | None = None,
    ) -> T:
        """Make a request, or die of it.

        Args:
            asked: what it is.
            act: makes it.
            discard: releases an answer that does not arrive.
            life: which of the component's lives asks, from 1; its latest by default.

        Raises:
            Crashed: who asks is dead already.
        """
        mine = (asked.component, self._lives[asked.component] if life is None else life)
        if mine in self._dead:
            raise Crashed(f"{asked.component} is dead")
        if not self._counting or (self._actors is not None and asked.component not in self._actors):
            return await act()
        point, number = self._point, len(self.asked)
        self.asked.append(asked)
        if point is None or point.number != number:
            return await act()
        if self._instead is not None:
            return await self._interfere(asked, act, point, self._instead)
        if point.side is CrashSide.AFTER:
            answer = await act()
            if discard is not None:
                await discard(answer)
        self._dead.add(mine)
        await self._kill(asked, point)
        raise Crashed(f"{asked.component} is dead")

    async def _interfere(
        self,
        asked: Asked,
        act: Callable[[], Awaitable[T]],
        point: CrashPoint,
        instead: Callable[[], Awaitable[object]],
    ) -> T:
        self.struck = asked
        self._world.network.note(asked.component, f"is interfered with {point}: {asked.what}")
        if point.side is CrashSide.BEFORE:
            await instead()
            return await act()
        answer = await act()
        await instead()
        return answer

    async def _kill(self, asked: Asked, point: CrashPoint) -> None:
        self.struck = asked
        self._world.network.note(asked.component, f"dies {point}: {asked.what}")
        self._world.crash(asked.component, missed_s=MISSED_S)
        await self._world.clock.sleep(_FOREVER_S)  # until the cancellation comes to this task

    def _tap(self, inner: Transport, component: str) -> Transport:
        self._lives[component] += 1
        return _TappedTransport(self, inner, component, self._lives[component])


class _TappedTransport:
    def __init__(self, points: CrashPoints, inner: Transport, component: str, life: int) -> None:
        self._points = points
        self._inner = inner
        self._component = component
        self._life = life

    async def send(self, request: Request) -> Response:
        asked = Asked(self._component, f"{request.method} {request.path}")
        return await self._points.ask(
            asked,
            lambda: self._inner.send(request),
            lambda answer: close_chunks(answer.chunks),
            life=self._life,
        )

    async def close(self) -> None:
        await self._inner.close()


class _TappedPool:
    def __init__(self, points: CrashPoints, inner: MachinePool, component: str) -> None:
        self._points = points
        self._inner = inner
        self._component = component

    async def claim(
        self,
        request_id: str,
        *,
        holder: str,
        demand: ReplicationController,
        count: int,
        epoch: int,
    ) -> Sequence[str]:
        return await self._points.ask(
            Asked(self._component, f"pool claim {count}"),
            lambda: self._inner.claim(
                request_id, holder=holder, demand=demand, count=count, epoch=epoch
            ),
        )

    async def release(self, names: Collection[str], *, holder: str, epoch: int) -> None:
        await self._points.ask(
            Asked(self._component, f"pool release {','.join(names)}"),
            lambda: self._inner.release(names, holder=holder, epoch=epoch),
        )

    async def holders(self) -> Mapping[str, str]:
        return await self._points.ask(Asked(self._component, "pool holders"), self._inner.holders)
