"""A real API server in memory for the test of one controller, agent or scheduler, on virtual time.

Smaller than ``world.World``: no network, no invariants, no components that crash. What is under test
gets clients whose requests the test counts, refuses, answers otherwise or holds up; the test itself
has a client that nothing disturbs.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from grange.api import codec
from grange.api.http import ADMIN, Request, Response, User
from grange.api.kinds import BUILT_IN
from grange.api.scheme import AnyKind, Scheme
from grange.api.status import ApiError
from grange.apiserver.application import Application
from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.farm.leader_election import ElectedService
from grange.reconcile.informer import InformerFactory
from grange.store.interface import Store
from grange.store.memory import MemoryStore

Handler = Callable[[Request], Awaitable[Response]]
Gate = Callable[[Request], ApiError | None]


class ApiFixture:
    """An API server and what stands between it and those under test; made by ``opened``.

    Args:
        clock: of the server and of everybody.
        rng: of the server; those under test get forks or the same.
        log: of the server and of everybody.
        user: who those under test are.
        store: what the server has, closed by its owner; one in memory by default.

    Attributes:
        kinds: what the server knows.
        poll_s: virtual seconds between two looks of ``until``.
        store: what the server has.
        client: for the test itself; always answered.
        gate: judges each request of those under test; an error is answered instead of the server.
        answer_gate: judges it again when the server has done it; an error replaces the answer.
        intercept: answers in the place of the server, which it may ask.
        requests: (method, path) of each write of those under test, refused or not.
        held_watches: paths whose watches deliver nothing as long as they are in here.
        nursery: of everything that ends with the block.
    """

    kinds: tuple[AnyKind, ...] = BUILT_IN
    poll_s: float = 0.05

    def __init__(
        self,
        clock: Clock,
        rng: Stream,
        log: Logger,
        *,
        user: User = ADMIN,
        store: Store | None = None,
    ) -> None:
        self.clock, self.rng, self.log = clock, rng, log
        self.store = store or MemoryStore()
        self.application = Application(
            self.store, Scheme(self.kinds), clock=clock, rng=rng, log=log, authn=None
        )
        self.client = Client(InProcess(self.application.handle, user), clock=clock)
        self.gate: Gate = lambda request: None
        self.answer_gate: Gate = lambda request: None
        self.intercept: Callable[[Request, Handler], Awaitable[Response]] | None = None
        self.requests: list[tuple[str, str]] = []
        self.held_watches: set[str] = set()
        self.nursery = Nursery("fixture")
        self.registry = metrics.registry()
        self._user = user

    # --- for those under test ------------------------------------------------------------------

    async def handle(self, request: Request) -> Response:
        """The server as those under test see it."""
        if request.method != "GET":
            self.requests.append((request.method, request.path))
        if (error := self.gate(request)) is not None:
            return _failed(error)
        if self.intercept is not None:
            response = await self.intercept(request, self.application.handle)
        else:
            response = await self.application.handle(request)
        if (error := self.answer_gate(request)) is not None:
            return _failed(error)
        if response.chunks is None:
            return response
        return replace(response, chunks=self.deliver(request.path, response.chunks))

    async def deliver(self, path: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """A watch as those under test get it."""
        try:
            async for chunk in chunks:
                while path in self.held_watches:
                    await self.clock.sleep(0.1)
                yield chunk
        finally:
            close = getattr(chunks, "aclose", None)
            if close is not None:
                await close()

    def new_client(self) -> Client:
        """One more client for something under test."""
        return Client(InProcess(self.handle, self._user), clock=self.clock)

    def new_deps(self, rng: Stream | None = None) -> Deps:
        """What a service is made of: a client, and informers that the caller must run."""
        rng = rng or self.rng
        client = self.new_client()
        informers = InformerFactory(client, clock=self.clock, rng=rng, log=self.log)
        return Deps(client, informers, self.clock, rng, self.log, self.registry)

    def start(self, *services: ElectedService) -> list[Child[None]]:
        """Run services until they are cancelled or the block ends."""
        return [self.nursery.start(service.run()) for service in services]

    # --- time ----------------------------------------------------------------------------------

    async def settle(self, seconds: float = 2.0) -> None:
        """Let virtual time pass."""
        await self.clock.sleep(seconds)

    async def until(
        self, condition: Callable[[], Awaitable[bool]], *, limit_s: float = 60.0
    ) -> float:
        """Wait for a condition and return how many virtual seconds that took.

        Raises:
            TimeoutError: it did not come true in time.
        """
        started = self.clock.monotonic()
        async with self.clock.timeout(limit_s):
            while not await condition():
                await self.clock.sleep(self.poll_s)
        return self.clock.monotonic() - started


def _failed(error: ApiError) -> Response:
    return Response(error.code, codec.encode(error.status().document()))


F = TypeVar("F", bound=ApiFixture)


@asynccontextmanager
async def opened(fixture: F) -> AsyncGenerator[F, None]:
    """The fixture with its namespaces; everything that runs in it ends with the block."""
    await fixture.application.bootstrap()
    async with fixture.nursery:
        try:
            yield fixture
        finally:
            fixture.nursery.cancel()
    fixture.application.end_streams()
