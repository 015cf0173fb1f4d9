"""A bad network as a wrapper around any transport: seeded, recorded, and able to calm down.

What can happen is what happens on real networks. A request may be late; it may be lost on the way
there (nothing was done) or its answer on the way back (it was done, and the caller cannot know). A
watch may break, between two events or in the middle of one, and what was already delivered may come
once more. A partition cuts one component off until it heals.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, replace

from grange.api.status import ServiceUnavailable, Timeout
from grange.api.wire import Request, Response
from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.client.transport import Transport


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


class Network:
    """The network between the components of one world.

    Args:
        clock: whose seconds the latencies are.
        rng: forked once a component, so that one component's traffic does not move another's luck.
        faults: how bad it is.

    Attributes:
        faults: may be replaced at any time.
        history: every fault so far, with its time, for the report of a failing seed.
    """

    def __init__(self, *, clock: Clock, rng: Stream, faults: NetworkFaults | None = None) -> None:
        self.faults = faults or NetworkFaults()
        self.history: list[str] = []
        self.clock = clock
        self._rng = rng
        self._cut_off: dict[str, None] = {}
        self._silenced: dict[str, None] = {}

    def transport(self, inner: Transport, component: str, life: str = "") -> "FaultyTransport":
        """The component's way to the API server.

        Args:
            inner: the good way.
            component: who.
            life: which of its lives, if it has several; each has luck of its own.
        """
        return FaultyTransport(inner, component, life or component, self)

    def stream(self, life: str) -> Stream:
        """The luck of one life of a component."""
        return self._rng.fork(life)

    def partition(self, component: str) -> None:
        """Cut a component off: its requests are refused, its streams break."""
        self._cut_off[component] = None
        self.note(component, "is cut off")

    def heal(self, component: str) -> None:
        """Let it through again."""
        if component in self._cut_off:
            del self._cut_off[component]
            self.note(component, "is back")

    def cut(self, life: str) -> None:
        """Silence one life of a component for good: it has crashed, whatever its tasks still do."""
        self._silenced[life] = None

    def reaches(self, component: str, life: str) -> bool:
        """Whether what this life of the component sends arrives."""
        return component not in self._cut_off and life not in self._silenced

    def calm(self) -> None:
        """From now on everything arrives at once; what was broken stays broken."""
        self.faults = replace(NetworkFaults(), answer_timeout_s=self.faults.answer_timeout_s)
        for component in list(self._cut_off):
            self.heal(component)

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

    async def send(self, request: Request) -> Response:
        """Carry one request, if the network lets it through.

        Raises:
            ServiceUnavailable: it was lost on the way there, or the component is cut off.
            Timeout: it arrived; its answer was lost on the way back.
        """
        faults = self._network.faults
        await self._travel(faults)
        if not self._network.reaches(self._component, self._life):
            raise ServiceUnavailable(f"{self._component} is cut off")
        if self._happens(faults.lose_request):
            self._network.note(self._component, f"lost {request.method} {request.path}")
            raise ServiceUnavailable("the request was lost")
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

    async def close(self) -> None:
        """Release the inner transport."""
        await self._inner.close()

    async def _stream(
        self, chunks: AsyncIterator[bytes], request: Request
    ) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in chunks:
                faults = self._network.faults
                await self._travel(faults)
                if not self._network.reaches(self._component, self._life) or self._happens(
                    faults.cut_stream
                ):
                    kept = self._rng.integer(0, len(chunk))
                    self._network.note(
                        self._component, f"cut {request.path} after {kept} of {len(chunk)} bytes"
                    )
                    if kept:
                        yield chunk[:kept]
                    raise ServiceUnavailable("the stream broke")
                yield chunk
                if chunk.endswith(b"\n") and self._happens(faults.repeat_chunk):
                    self._network.note(self._component, f"repeated a chunk of {request.path}")
                    yield chunk
        finally:
            await close_chunks(chunks)

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
