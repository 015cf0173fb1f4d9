"""A whole control plane on virtual time: real rooms around a memory store, and a network that may be bad.

Every component is what runs in production: its own client, informers and services, made by the same
factories, on its own transport. Only the network, the store's disk and the pods' programs are
simulated. Components crash and come back with new random streams, as new processes do; the API
server may go away and return on the same store.
"""

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

from grange.api.http import ADMIN, Request, Response, User
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.api.status import ServiceUnavailable
from grange.apiserver.application import Application
from grange.base import metrics
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery, supervise
from grange.client.client import Client
from grange.client.transport import Transport
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.sim.disk import WeakDisk
from grange.sim.faults import Network, NetworkFaults
from grange.sim.invariants import WriteHistory
from grange.sim.recovery import ServicesRecover
from grange.sim.suspension import SuspendableClock
from grange.store.interface import Store
from grange.store.memory import MemoryStore

# Requests that never end in a world at rest: heartbeats, and bookmarks.
HEARTBEATS = ("/coordination.k8s.io/leases/", "/core/events/")

_RESTART = Exponential(initial_s=0.2, cap_s=5.0)


class Component(Protocol):
    """Something that works until it is cancelled."""

    async def run(self) -> None:
        """Work; returns only by cancellation."""


Factory = Callable[[Deps], Component]


class World:
    """One control plane; made by ``simulated``.

    Attributes:
        clock: the true time.
        client: a client whose network is always good, for the one who watches.
        network: of everybody else.
        history: every write, judged.
        recovery: judges how long services stay short when nothing is broken.
        store: where it is all kept.
        disk: what the store is kept on.
        witnesses: called for each request that the server handled, whatever becomes of its answer.
        taps: put around the transport of each component that is started, in order; given its name.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        faults: NetworkFaults | None = None,
        store: Store | None = None,
    ) -> None:
        self.clock = clock
        self.network = Network(clock=clock, rng=rng.fork("network"), faults=faults)
        trouble = self.network.trouble
        self.disk = WeakDisk(store or MemoryStore(), rng=rng.fork("disk"), trouble=trouble)
        self.store: Store = self.disk
        self.history = WriteHistory(self.store)
        self.recovery = ServicesRecover(trouble, clock)
        self.recovery.judges = False
        self.history.add(self.recovery)
        self.witnesses: list[Callable[[Request, Response], None]] = []
        self.taps: list[Callable[[Transport, str], Transport]] = []
        self._rng = rng
        self._log = log
        self._application: Application | None = None
        self._boots = 0
        self._nursery = Nursery("world")
        self._factories: dict[str, tuple[Factory, Clock]] = {}
        self._clocks: dict[str, SuspendableClock] = {}
        self._lives: dict[str, int] = {}
        self._running: dict[str, Child[None]] = {}
        self.client = Client(InProcess(self._handle, ADMIN), clock=clock, strict=True)

    # --- the API server -----------------------------------------------------------------------

    async def _handle(self, request: Request) -> Response:
        if self._application is None:
            raise ServiceUnavailable("the API server is down")
        response = await self._application.handle(request)
        for witness in self.witnesses:
            witness(request, response)
        return response

    async def start_server(self) -> None:
        """Start an API server on the store, if none runs.

        Raises:
            ApiError: the store refuses; it is still down.
        """
        if self._application is not None:
            return
        self._boots += 1
        application = Application(
            self.store,
            Scheme(BUILT_IN),
            clock=self.clock,
            rng=self._rng.fork(f"apiserver.{self._boots}"),
            log=self._log.bind(room="apiserver"),
        )
        await application.bootstrap()
        self._application = application
        self.network.trouble.end("server away")

    def stop_server(self) -> None:
        """Stop it: requests are refused, watches end; what was acknowledged stays."""
        if self._application is not None:
            self.network.note("apiserver", "stops")
            self.network.trouble.begin("server away")
            self._application.end_streams()
            self._application = None

    # --- components ---------------------------------------------------------------------------

    def add(self, name: str, factory: Factory, *, clock: Clock | None = None) -> None:
        """Start a component.

        Args:
            name: unique; also its user name and the name of its streams.
            factory: makes it from its ``Deps``; called again after each crash.
            clock: its own idea of the time, made from ``clock_of(name)``; the true one by default.
        """
        if name in self._factories:
            raise ValueError(f"there is a component {name} already")
        self._factories[name] = (factory, clock or self.clock_of(name))
        self._start(name)

    def clock_of(self, name: str) -> SuspendableClock:
        """The true time as a component has it, which stands still when the component does."""
        return self._clocks.setdefault(name, SuspendableClock(self.clock))

    @property
    def components(self) -> list[str]:
        """Their names, in the order of adding."""
        return list(self._factories)

    def crash(self, name: str, *, missed_s: float | None = None) -> None:
        """Kill a component: from now on nothing it does reaches anybody.

        Args:
            name: which.
            missed_s: others have taken its work over after so long; unless given, the world is
                broken until it is started again.
        """
        child = self._running.pop(name, None)
        if child is not None:
            self.network.note(name, "crashes")
            if missed_s is None:
                self.network.trouble.begin(f"crash of {name}")
            else:
                self.network.trouble.happened(f"crash of {name}", lasts_s=missed_s)
            self.network.cut(self._life(name))
            child.cancel()
            self._wake(name)  # what is dead does not stand still: it has ended

    def restart(self, name: str) -> None:
        """Start a crashed component again, as a new process."""
        if name not in self._running:
            self.network.note(name, "starts again")
            self.network.trouble.end(f"crash of {name}")
            self._start(name)

    def suspend(self, name: str, *, machine: bool) -> None:
        """A component stands still; what it has sent arrives, and nothing else happens in it.

        Args:
            name: which; its clock must be made from ``clock_of(name)``.
            machine: its machine sleeps, and so does its monotonic clock.
        """
        if name in self._running:
            self.network.note(name, "sleeps with its machine" if machine else "is stopped")
            self.network.hold(name)
            self.clock_of(name).suspend(machine=machine)

    def resume(self, name: str) -> None:
        """It goes on where it was; nothing if it runs, or has crashed meanwhile."""
        if self.network.is_still(name):
            self.network.note(name, "goes on")
            self._wake(name)

    def _wake(self, name: str) -> None:
        self.clock_of(name).resume()
        self.network.go_on(name)

    def _life(self, name: str) -> str:
        return f"{name}.{self._lives[name]}"

    def _start(self, name: str) -> None:
        self._lives[name] = self._lives.get(name, 0) + 1
        self._running[name] = self._nursery.start(self._live(name), name=name)

    async def _live(self, name: str) -> None:
        factory, clock = self._factories[name]
        rng = self._rng.fork(f"component.{self._life(name)}")
        log = self._log.bind(component=name)
        user = User(f"system:{name}", ADMIN.groups)
        way = InProcess(self._handle, user)
        transport: Transport = self.network.transport(way, name, self._life(name))
        for tap in self.taps:
            transport = tap(transport, name)
        client = Client(transport, clock=clock, strict=True)
        informers = InformerFactory(client, clock=clock, rng=rng.fork("informers"), log=log)
        deps = Deps(client, informers, clock, rng.fork("service"), log, metrics.registry())
        service = factory(deps)
        async with Nursery(name) as nursery:
            nursery.start(informers.run(), name=f"{name} informers")
            nursery.start(
                supervise(name, service.run, clock=clock, log=log, backoff=_RESTART), name=name
            )

    # --- watching -----------------------------------------------------------------------------

    async def until(
        self,
        condition: Callable[[], Coroutine[Any, Any, bool]],
        *,
        limit_s: float,
        every_s: float = 0.5,
    ) -> float:
        """Wait for a condition and return how many virtual seconds that took.

        Raises:
            TimeoutError: it did not come true in time.
        """
        started = self.clock.monotonic()
        while not await condition():
            if self.clock.monotonic() - started > limit_s:
                raise TimeoutError(f"not within {limit_s:g} virtual seconds")
            await self.clock.sleep(every_s)
        return self.clock.monotonic() - started

    async def fixed_point(self, seconds: float) -> list[str]:
        """Let time pass and return what was written meanwhile: nothing, at a fixed point.

        Signs of life do not count.
        """
        before = self.store.revision
        await self.clock.sleep(seconds)
        return [
            f"{revision} {key}{' deleted' if deleted else ''}"
            for revision, key, deleted in self.history.since(before, without=HEARTBEATS)
        ]


@asynccontextmanager
async def simulated(
    *,
    clock: Clock,
    rng: Stream,
    log: Logger,
    faults: NetworkFaults | None = None,
    store: Store | None = None,
    limit_s: float = 7200.0,
) -> AsyncGenerator[World, None]:
    """A world with an API server and nothing else yet; everything in it ends with the block.

    Raises:
        TimeoutError: the block took longer than ``limit_s`` virtual seconds.
        BaseExceptionGroup: an invariant did not hold, or the body failed; what the network did
            until then is in its notes.
    """
    world = World(clock=clock, rng=rng, log=log, faults=faults, store=store)
    await world.start_server()
    try:
        async with clock.timeout(limit_s), world._nursery as nursery:
            nursery.start(world.history.run(), name="history")
            nursery.start(world.network.run(), name="held writes")
            try:
                yield world
                world.recovery.check()
            finally:
                for name in world.components:
                    world.resume(name)  # or it could not even end
            nursery.cancel()
    except BaseException as error:
        error.add_note("what went wrong on purpose:\n  " + "\n  ".join(world.network.history))
        raise
    finally:
        world.stop_server()
        await world.store.close()
