"""What an unlucky week does to a control plane, in a few minutes of virtual time.

Each step draws one disturbance from a seeded stream. All of them end by themselves or with
``restore``, after which the world has no excuse for not settling.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from grange.agent.runtimes.fake import FakeMachine
from grange.api.kinds import POD
from grange.api.status import ApiError
from grange.base.rng import Stream
from grange.sim.world import World

Disturbance = Callable[[], Awaitable[None]]

LATE_S = 120.0
"""A write that is held arrives within so many seconds: long after a session of its sender."""

_NOTICED_S = 170.0  # an informer gives up a silent watch after 150 s of a clock that may be slow


class Chaos:
    """Disturbances for one world.

    Args:
        world: whose.
        machines: by name of the node.
        rng: what is drawn from.
        excluded: components that never crash and are never cut off.

    Attributes:
        disturbances: what is drawn from.
        respite_s: between two disturbances of the network.
        rare: disturbances for ``add_some``.
    """

    def __init__(
        self,
        world: World,
        machines: Mapping[str, FakeMachine],
        *,
        rng: Stream,
        excluded: frozenset[str] = frozenset(),
    ) -> None:
        self._world = world
        self._machines = dict(machines)
        self._rng = rng
        self._victims = [name for name in world.components if name not in excluded]
        self.respite_s = 0.0
        self._last_update = 0.0
        self.disturbances: list[Disturbance] = [
            self.crash,
            self.cut_off,
            self.server_away,
            self.lose_history,
            self.fill_disk,
            self.end_program,
            self.lose_power,
            self.delete_pod,
        ]
        self.rare: list[Disturbance] = [self.hang_watches, self.suspend, self.break_newest]

    def add_some(self, rare: Sequence[Disturbance], rng: Stream, *, chance: float = 0.25) -> None:
        """Add each of some disturbances with a chance, so that many seeds keep the mix they had.

        Args:
            rare: which.
            rng: a stream for this alone.
            chance: of each.
        """
        self.disturbances += [one for one in rare if rng.uniform(0.0, 1.0) < chance]

    @property
    def late_s(self) -> float:
        """So long after ``restore`` a write that was held may still arrive."""
        return LATE_S if self.hold_writes in self.disturbances else 0.0

    @property
    def deaf_s(self) -> float:
        """So long after ``restore`` a component may still read a watch that hangs."""
        return _NOTICED_S if self.hang_watches in self.disturbances else 0.0

    async def run(self, seconds: float) -> None:
        """Draw disturbances for so long, a few seconds apart; several may run at once."""
        clock = self._world.clock
        until = clock.monotonic() + seconds
        while clock.monotonic() < until:
            await clock.sleep(self._rng.uniform(0.0, 4.0))
            await self._rng.choice(self.disturbances)()

    async def restore(self) -> None:
        """The network is good, everybody runs, nothing is cut off, the disk has room.

        A watch that hangs goes on hanging: to notice that is its reader's own business.
        """
        self._world.network.calm()
        self._world.disk.full = False
        await self._world.start_server()
        for name in self._world.components:
            self._world.resume(name)
            self._world.restart(name)

    async def crash(self) -> None:
        """A component dies and comes back after a while."""
        name = self._rng.choice(self._victims)
        self._world.crash(name)
        await self._pause(10.0)
        self._world.restart(name)

    async def cut_off(self) -> None:
        """A component cannot reach the API server for a while."""
        name = self._rng.choice(self._victims)
        self._world.network.partition(name)
        await self._pause(30.0)
        self._world.network.heal(name)

    async def nothing(self) -> None:
        """All is well for a while."""
        await self._pause(20.0)

    async def hold_writes(self) -> None:
        """Many writes of a component are held on their way for a while, each delivered much later."""
        name = self._rng.choice(self._victims)
        self._world.network.hold_writes(name, chance=0.2, deletions=0.8, most_s=LATE_S)
        await self._pause(20.0)
        self._world.network.pass_writes(name)

    async def hang_watches(self) -> None:
        """Some watches of a component deliver nothing for a while, perhaps longer than its timeout."""
        self._world.network.hang(self._rng.choice(self._victims), self._rng.uniform(0.0, 300.0))

    async def suspend(self) -> None:
        """A component stands still, for longer than a Lease lasts perhaps, and goes on."""
        name = self._rng.choice(self._victims)
        self._world.suspend(name, machine=self._rng.choice([True, False]))
        await self._pause(60.0)
        self._world.resume(name)

    async def server_away(self) -> None:
        """The API server stops and comes back on the same store."""
        await self._respite()
        self._world.stop_server()
        await self._pause(10.0)
        while True:
            try:
                await self._world.start_server()
                self._last_update = self._world.clock.monotonic()
                return
            except ApiError:  # the disk is full at the same time
                await self._world.clock.sleep(1.0)

    async def lose_history(self) -> None:
        """The store forgets all history: a client that resumes must list again."""
        self._world.network.note("store", f"compacts to {self._world.store.revision}")
        await self._world.store.compact(self._world.store.revision)

    async def fill_disk(self) -> None:
        """The disk is full for a while: every write is refused."""
        await self._respite()
        self._world.network.note("disk", "is full")
        self._world.disk.full = True
        await self._pause(15.0)
        self._world.disk.full = False
        self._last_update = self._world.clock.monotonic()
        self._world.network.note("disk", "has room")

    async def end_program(self) -> None:
        """A program on some machine crashes."""
        name = self._rng.choice(list(self._machines))
        machine = self._machines[name]
        live = [
            run.run.id
            for pod in machine.pods.values()
            for run in pod.runs.values()
            if run.run.running
        ]
        if live:
            target = self._rng.choice(live)
            self._world.network.note(name, f"program {target} dies")
            machine.end(target, self._world.clock.now(), 137, 9)

    async def break_newest(self) -> None:
        """The program that started last, ready by now perhaps, breaks: once, then it serves."""
        live = [
            (run.run.started_at, run.run.id, machine)
            for machine in self._machines.values()
            for pod in machine.pods.values()
            for run in pod.runs.values()
            if run.run.running and run.run.id.attempt == 0
        ]
        if live:
            _, target, machine = max(live, key=lambda one: one[:2])
            self._world.network.note("newest", f"program {target} dies")
            machine.end(target, self._world.clock.now(), 1)

    async def lose_power(self) -> None:
        """A machine with everything on it stops, and comes back with nothing running."""
        name = self._rng.choice(list(self._machines))
        machine = self._machines[name]
        self._world.network.note(name, "loses power")
        self._world.crash(f"agent-{name}")
        for pod in machine.pods.values():
            for run in list(pod.runs.values()):
                machine.lose(run.run.id, self._world.clock.now())
        await self._pause(60.0)
        self._world.restart(f"agent-{name}")

    async def delete_pod(self) -> None:
        """A user deletes a pod, sometimes without grace."""
        try:
            pods = (await self._world.client.list(POD)).items
            if not pods:
                return
            pod = self._rng.choice(pods)
            grace_period_s = self._rng.choice([None, None, 0])
            self._world.network.note("user", f"deletes {pod.key} (grace {grace_period_s})")
            await self._world.client.delete(
                POD,
                pod.metadata.name,
                pod.metadata.namespace,
                uid=pod.metadata.uid,
                grace_period_s=grace_period_s,
            )
        except ApiError:
            return  # it was gone already

    async def _respite(self) -> None:
        left_s = self._last_update + self.respite_s - self._world.clock.monotonic()
        if left_s > 0.0:
            await self._world.clock.sleep(left_s)

    async def _pause(self, most_s: float) -> None:
        await self._world.clock.sleep(self._rng.uniform(0.0, most_s))
