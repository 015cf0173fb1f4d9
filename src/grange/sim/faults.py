"""A bad network as a wrapper around any transport: seeded, recorded, and able to calm down.

What can happen is what happens on real networks. A request may be late; it may be lost on the way
there (nothing was done) or its answer on the way back (it was done, and the caller cannot know). A
watch may break, between two events or in the middle of one, and what was already delivered may come
once more. A partition cuts one component off until it heals. A watch may hang: the connection stays
open and nothing comes, until it breaks or goes on with what has piled up. And a process that stands
still gets no answers before it goes on; what it has sent is on its way all the same. Last, a proxy
or a kernel may hold a write and deliver it much later, whatever has become of its sender.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field, replace

from grange.api.http import Request, Response
from grange.api.status import ApiError, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.errors import StreamBroken
from grange.client.transport import Transport
from grange.sim.trouble import Trouble

LATE = "grange-sim-late"
"""Header of a write that was held and is delivered late; for those who judge what arrives."""

_READS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """How bad it is; the default is a perfect network.

    Attributes:
        latency_s: each way takes between zero and so many seconds.
        lose_request: chance that a request never arrives.
        lose_answer: chance that it arrives and the answer does not.
        answer_timeout_s: how long a caller waits for a lost answer.
        cut_stream: chance, at each chunk of a stream, that it breaks there.
        repeat_chunk: chance that a chunk of whole lines comes twice.
    """

    latency_s: float = 0.0
    lose_request: float = 0.0
    lose_answer: float = 0.0
    answer_timeout_s: float = 5.0
    cut_stream: float = 0.0
    repeat_chunk: float = 0.0

    @property
    def loses(self) -> bool:
        """Whether requests, answers or events may be lost."""
        return self.lose_request > 0.0 or self.lose_answer > 0.0 or self.cut_stream > 0.0


@dataclass(frozen=True, slots=True)
class _Hang:
    """Streams of a component that were open by then deliver nothing for a while.

    Attributes:
        since: monotonic seconds.
        until: the same; then each breaks or goes on.
    """

    since: float
    until: float


@dataclass(slots=True)
class _Still:
    """A component that stands still.

    Attributes:
        since: monotonic seconds. What is sent at this very moment was sent just before.
        over: set when it goes on.
    """

    since: float
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class _Holding:
    """Writes of a component are held on their way.

    Attributes:
        chance: of each write.
        deletions: of each deletion and eviction; there are few, and they do most harm.
        most_s: each is delivered after between zero and so many seconds.
    """

    chance: float
    deletions: float
    most_s: float


class Network:
    """The network between the components of one world.

    Args:
        clock: whose seconds the latencies are.
        rng: forked once a component, so that one component's traffic does not change another's faults.
        faults: how bad it is.

    Attributes:
        history: every fault so far, with its time, for the report of a failing seed.
        held: writes that are held now.
        trouble: what is broken now; the world adds what is not the network's.
    """

    def __init__(self, *, clock: Clock, rng: Stream, faults: NetworkFaults | None = None) -> None:
        self.trouble = Trouble(clock)
        self.history: list[str] = []
        self.clock = clock
        self.faults = faults or NetworkFaults()
        self._rng = rng
        self._cut_off: dict[str, None] = {}
        self._silenced: dict[str, None] = {}
        self._hangs: dict[str, _Hang] = {}
        self._still: dict[str, _Still] = {}
        self._holding: dict[str, _Holding] = {}
        self._under_way = Nursery("held writes")
        self.held = 0

    def transport(self, inner: Transport, component: str, life: str = "") -> "FaultyTransport":
        """The component's way to the API server.

        Args:
            inner: the good way.
            component: who.
            life: which of its lives, if it has several; each has its own stream of faults.
        """
        return FaultyTransport(inner, component, life or component, self)

    @property
    def faults(self) -> NetworkFaults:
        """How bad it is; may be replaced at any time."""
        return self._faults

    @faults.setter
    def faults(self, faults: NetworkFaults) -> None:
        self._faults = faults
        if faults.loses:
            self.trouble.begin("network")
        else:
            # Who waits for an answer that was lost learns of it so late.
            self.trouble.end("network", after_s=faults.answer_timeout_s)

    def stream(self, life: str) -> Stream:
        """The faults of one life of a component."""
        return self._rng.fork(life)

    def partition(self, component: str) -> None:
        """Cut a component off: its requests are refused, its streams break."""
        self._cut_off[component] = None
        self.trouble.begin(f"partition of {component}")
        self.note(component, "is cut off")

    def heal(self, component: str) -> None:
        """Let it through again."""
        if component in self._cut_off:
            del self._cut_off[component]
            self.trouble.end(f"partition of {component}")
            self.note(component, "is back")

    def hang(self, component: str, seconds: float) -> None:
        """Half of the component's open streams deliver nothing for so long; new ones are good."""
        now = self.clock.monotonic()
        self._hangs[component] = _Hang(now, now + seconds)
        self.trouble.happened("hanging watches", lasts_s=seconds)
        self.note(component, f"gets nothing on some watches for {seconds:.1f} s")

    def hanging(self, component: str) -> _Hang | None:
        """The last time that its streams hung, or hang."""
        return self._hangs.get(component)

    def hold(self, component: str) -> None:
        """The component stands still: it gets no answers and sends nothing."""
        self._still.setdefault(component, _Still(self.clock.monotonic()))
        self.trouble.begin(f"suspension of {component}")

    def go_on(self, component: str) -> None:
        """It runs again; nothing if it does."""
        if (still := self._still.pop(component, None)) is not None:
            still.over.set()
            self.trouble.end(f"suspension of {component}")

    def is_still(self, component: str) -> bool:
        """Whether it stands still."""
        return component in self._still

    async def running(self, component: str, *, sends: bool = False) -> None:
        """Wait until the component runs.

        Args:
            component: who.
            sends: it is about to send something, which it may have done just before it stopped.
        """
        while (still := self._still.get(component)) is not None:
            if sends and still.since == self.clock.monotonic():
                return
            await still.over.wait()

    def hold_writes(
        self, component: str, *, most_s: float, chance: float = 1.0, deletions: float = 1.0
    ) -> None:
        """From now on writes of a component may be held; the component gets no answer to them.

        A held write is delivered whatever happens to its sender meanwhile: a crash, a partition, or
        the end of its session.

        Args:
            component: who.
            most_s: each is delivered after between zero and so many seconds.
            chance: of each write.
            deletions: of each deletion and eviction.
        """
        self._holding[component] = _Holding(chance, deletions, most_s)
        self.trouble.begin(f"held writes of {component}")
        self.note(component, "has its writes held")

    def pass_writes(self, component: str) -> None:
        """Writes pass at once again; those that are held stay so until they are delivered."""
        if self._holding.pop(component, None) is not None:
            self.note(component, "has its writes passed on")
            ended_s = self.faults.answer_timeout_s
            self.trouble.end(f"held writes of {component}", after_s=ended_s)

    def holding(self, component: str) -> _Holding | None:
        """How writes of a component are held; None when they are not."""
        return self._holding.get(component)

    def deliver(self, inner: Transport, request: Request, component: str, wait_s: float) -> None:
        """Deliver a write after a while; its outcome is not reported.

        Args:
            inner: the way to the server.
            request: the write.
            component: who sent it.
            wait_s: how long it is held.
        """
        self.note(component, f"{request.method} {request.path} is held for {wait_s:.1f} s")
        self.held += 1
        late = replace(request, headers={**request.headers, LATE: component})

        async def arrive() -> None:
            await self.clock.sleep(wait_s)
            self.held -= 1
            self.trouble.happened("a late write")
            try:
                response = await inner.send(late)
            except ApiError as error:
                self.note(component, f"{request.method} {request.path} is late: {error}")
            else:
                done = f"{request.method} {request.path} is late: {response.status}"
                self.note(component, done)

        self._under_way.start(arrive(), name=f"late {request.method} {request.path}")

    async def run(self) -> None:
        """Deliver what is held, until cancelled."""
        async with self._under_way:
            await asyncio.Event().wait()

    def cut(self, life: str) -> None:
        """Silence one life of a component for good: it has crashed, whatever its tasks still do."""
        self._silenced[life] = None

    def reaches(self, component: str, life: str) -> bool:
        """Whether what this life of the component sends arrives."""
        return component not in self._cut_off and life not in self._silenced

    def calm(self) -> None:
        """From now on everything arrives at once; what was broken stays broken, what is held, held."""
        self.faults = replace(NetworkFaults(), answer_timeout_s=self.faults.answer_timeout_s)
        for component in list(self._cut_off):
            self.heal(component)
        for component in list(self._holding):
            self.pass_writes(component)

    def note(self, component: str, what: str) -> None:
        """Add to the history."""
        self.history.append(f"{self.clock.monotonic():.3f} {component} {what}")


class FaultyTransport:
    """A transport on a bad network."""

    def __init__(self, inner: Transport, component: str, life: str, network: Network) -> None:
        self._inner = inner
        self._component = component
        self._life = life
        self._network = network
        self._rng = network.stream(life)
        self._late = network.stream(f"{life}.late")

    async def send(self, request: Request) -> Response:
        """Carry one request, if the network lets it through.

        Raises:
            ServiceUnavailable: a read was lost on the way there, or the component is cut off.
            Timeout: a write was lost on the way there, an answer on the way back, or it is held
                and may arrive later; the writer cannot distinguish the two.
        """
        await self._network.running(self._component, sends=True)
        try:
            return await self._carry(request)
        finally:
            await self._network.running(self._component)

    async def _carry(self, request: Request) -> Response:
        faults = self._network.faults
        await self._travel(faults)
        if not self._network.reaches(self._component, self._life):
            raise ServiceUnavailable(f"{self._component} is cut off")
        if self._happens(faults.lose_request):
            self._network.note(self._component, f"lost {request.method} {request.path}")
            if request.method not in _READS:
                raise Timeout("the connection broke before the answer")  # as if it had happened
            raise ServiceUnavailable("the connection broke")
        if (wait_s := self._held_s(request)) is not None:
            self._network.deliver(self._inner, request, self._component, wait_s)
            await self._network.clock.sleep(faults.answer_timeout_s)
            raise Timeout("no answer came")
        response = await self._inner.send(request)
        if self._happens(faults.lose_answer) or not self._network.reaches(
            self._component, self._life
        ):
            self._network.note(self._component, f"lost answer to {request.method} {request.path}")
            await close_chunks(response.chunks)
            await self._network.clock.sleep(faults.answer_timeout_s)
            raise Timeout("no answer came")
        await self._travel(faults)
        if response.chunks is None:
            return response
        return replace(response, chunks=self._stream(response.chunks, request))

    def _held_s(self, request: Request) -> float | None:
        """For how long the request is held; None if it passes."""
        holding = self._network.holding(self._component)
        if holding is None or request.method in _READS:
            return None
        destroys = request.method == "DELETE" or request.path.endswith("/eviction")
        if self._late.uniform(0.0, 1.0) >= (holding.deletions if destroys else holding.chance):
            return None
        return self._late.uniform(0.0, holding.most_s)

    async def close(self) -> None:
        """Release the inner transport."""
        await self._inner.close()

    async def _stream(
        self, chunks: AsyncIterator[bytes], request: Request
    ) -> AsyncGenerator[bytes, None]:
        opened, seen = self._network.clock.monotonic(), None
        try:
            async for chunk in chunks:
                faults = self._network.faults
                await self._travel(faults)
                hang = self._network.hanging(self._component)
                if hang is not None and hang is not seen and hang.since >= opened:
                    seen = hang
                    await self._hang(hang, request)
                await self._network.running(self._component)
                if not self._network.reaches(self._component, self._life) or self._happens(
                    faults.cut_stream
                ):
                    kept = self._rng.integer(0, len(chunk))
                    self._network.note(
                        self._component, f"cut {request.path} after {kept} of {len(chunk)} bytes"
                    )
                    if kept:
                        yield chunk[:kept]
                    raise StreamBroken("the stream broke")
                yield chunk
                if chunk.endswith(b"\n") and self._happens(faults.repeat_chunk):
                    self._network.note(self._component, f"repeated a chunk of {request.path}")
                    yield chunk
            await self._network.running(self._component)
        finally:
            await close_chunks(chunks)

    async def _hang(self, hang: _Hang, request: Request) -> None:
        """Take part in a hang, or not; raises if the stream breaks at its end."""
        left_s = hang.until - self._network.clock.monotonic()
        if left_s <= 0.0 or self._rng.integer(0, 1):
            return
        self._network.note(self._component, f"hangs on {request.path}")
        await self._network.clock.sleep(left_s)
        if self._rng.integer(0, 1):
            self._network.note(self._component, f"{request.path} breaks after it has hung")
            raise StreamBroken("the stream broke")
        self._network.note(self._component, f"{request.path} goes on after it has hung")

    async def _travel(self, faults: NetworkFaults) -> None:
        if faults.latency_s > 0.0:
            await self._network.clock.sleep(self._rng.uniform(0.0, faults.latency_s))

    def _happens(self, chance: float) -> bool:
        return chance > 0.0 and self._rng.uniform(0.0, 1.0) < chance


async def close_chunks(chunks: AsyncIterator[bytes] | None) -> None:
    """Close a response's stream, if it has one."""
    close = getattr(chunks, "aclose", None)  # not every closable stream is a generator
    if close is not None:
        await close()
