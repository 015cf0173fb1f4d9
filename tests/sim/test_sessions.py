"""Test sessions under faults: two members share them while programs fail and users interfere.

At every write one attempt of a session runs, its driver once, and on its own machines; ends never
change (``session_judges``). When the faults stop every session moves within 10 s (``session_moves``)
until it ends, and nothing is left of it. Evidence is collected meanwhile, and fails, too: no verdict and
no end depends on it, and what is called complete is there.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.sim.evidence_faults import EvidenceFaults, EvidenceMembers, tap_logs
from tests.sim.session_judges import AttemptsRunAlone, SessionsEndOnce
from tests.sim.session_moves import all_move
from tests.sim.test_farm import skewed
from tests.sim.test_replication import BAD_NETWORK, crashes

from grange.agent.runtimes.fake import FakeMachine, Script
from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, POD, TESTSESSION
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.testsession import FINAL_PHASES, SESSION_LABEL
from grange.api.meta import Document
from grange.api.status import ApiError
from grange.app.manager import Manager
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.sim import simulated_nodes
from grange.sim.chaos import Chaos, Disturbance
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.world import World, simulated

MEMBERS = ("one", "two")
POOLS: Mapping[str, int] = {"workers": 3, "drivers": 2}
SESSIONS = ("a", "b", "c", "d")
TROUBLE_S = 120.0
SETTLED_S = 300.0
FEW_CHANCES = (
    30  # of faults of evidence: seed 30667 has none, as its API server is hardly ever there
)
WATCHES_RESUME_S = (
    45.0  # an informer whose streams broke again and again waits so long for the next
)


class SessionProcess:
    """A member of the farm that runs the session controller, put together as in a real process."""

    def __init__(self, deps: Deps, name: str, evidence: EvidenceMembers) -> None:
        self._deps = deps
        self._collector = evidence.collector(name, deps)
        self._manager = Manager(
            FarmConfig(member=name),
            lambda _: deps,
            frozenset({"testsession"}),
            sharded=evidence.sharded(self._collector),
        )

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            nursery.start(self._collector.run(), name="evidence")
            for role in self._manager.runnables():
                clock, log = self._deps.clock, self._deps.log
                nursery.start(supervise(role.name, role.run, clock=clock, log=log))


class TestPrograms(dict[str, Script]):
    """Drivers end as they are drawn, workers run or fail; when ``calm``, all is well."""

    __test__ = False

    def __init__(self, draw: Stream) -> None:
        super().__init__(simulated_nodes.SCRIPTS)
        self.calm = False
        self._draw = draw

    def get(self, key: str, default: Any = None) -> Any:
        draw = self._draw
        if key == "drive":
            code = 0 if self.calm else draw.choice([0, 0, 0, 1])
            length = 2.0 if self.calm else draw.uniform(0.0, 20.0)
            return Script(duration_s=length, exit_code=code, term_s=draw.uniform(0.0, 3.0))
        if key == "work":
            fails = not self.calm and draw.integer(0, 7) == 0
            if fails:
                return Script(duration_s=draw.uniform(0.0, 20.0), exit_code=1)
            term_s = None if not self.calm and draw.integer(0, 7) == 0 else draw.uniform(0.0, 3.0)
            return Script(term_s=term_s)
        return super().get(key, default)


def session_document(name: str, draw: Stream) -> Document:
    """A session of some components, with pools or without."""
    pooled = draw.integer(0, 3) > 0

    def component(command: str, pool: str) -> Document:
        own: Document = {"command": [command]}
        return {**own, "pool": pool} if pooled else own

    spec: Document = {
        "driver": component("drive", "drivers"),
        "servers": [component("work", "workers")],
        "timeouts": {
            "provisionSeconds": draw.integer(20, 90),
            "runSeconds": draw.integer(15, 60),
            "cleanupSeconds": draw.integer(10, 45),
        },
        "retries": {"infrastructure": draw.integer(0, 2), "failure": draw.integer(0, 1)},
    }
    if draw.integer(0, 1):
        spec["clients"] = [{**component("work", "workers"), "count": draw.integer(1, 2)}]
    if draw.integer(0, 3) == 0:
        spec["concurrency"] = {"group": "g", "policy": draw.choice(["Supersede", "Queue"])}
    if draw.integer(0, 3) == 0:
        spec["ttlSecondsAfterFinished"] = draw.integer(0, 20)
    if draw.integer(0, 3) == 0:
        spec["timeouts"]["queueSeconds"] = draw.integer(20, 100)
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


class SessionUsers:
    """What users do meanwhile."""

    def __init__(self, world: World, draw: Stream) -> None:
        self._world, self._draw = world, draw

    def all(self) -> list[Disturbance]:
        return [self.submit, self.submit, self.submit, self.create_again, self.cancel, self.evict]

    async def submit(self) -> None:
        """Create a session, where there is none of the name."""
        document = session_document(self._draw.choice(SESSIONS), self._draw)
        with suppress(ApiError):
            await self._world.client.create(TESTSESSION, document, "default")

    async def create_again(self) -> None:
        """Delete a session at any time, and create another of the same name."""
        name = self._draw.choice(SESSIONS)
        document = session_document(name, self._draw)
        with suppress(ApiError):
            policy = self._draw.choice(["Background", "Foreground"])
            await self._world.client.delete(TESTSESSION, name, "default", propagation=policy)
            await self._world.clock.sleep(self._draw.uniform(0.0, 3.0))
            await self._world.client.create(TESTSESSION, document, "default")

    async def cancel(self) -> None:
        """Cancel a session."""
        patch = {"spec": {"cancel": self._draw.choice(["Collect", "Now"])}}
        with suppress(ApiError):
            name = self._draw.choice(SESSIONS)
            await self._world.client.patch(TESTSESSION, name, "default", patch=patch)

    async def evict(self) -> None:
        """Evict a pod."""
        with suppress(ApiError):
            pods = (await self._world.client.list(POD, "default")).items
            if pods:
                name = self._draw.choice(pods).metadata.name
                await self._world.client.evict(name, "default")


async def populate(
    world: World, draw: Stream, evidence: EvidenceMembers
) -> tuple[dict[str, FakeMachine], TestPrograms]:
    """Machines in pools, two members, and everybody else."""
    programs = TestPrograms(draw.fork("programs"))
    machines = {}
    for pool, count in POOLS.items():
        for number in range(count):
            name = f"{pool}-{number}"
            machines[name] = simulated_nodes.add_node(world, name, labels={"pool": pool})
            machines[name].scripts = programs
    simulated_nodes.add_controllers(world, besides="testsession")
    for name in MEMBERS:
        clock = skewed(world, name, draw.fork(name))
        process = partial(SessionProcess, name=name, evidence=evidence)
        world.add(name, process, clock=clock)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, sum(POOLS.values()))
    await world.client.create(LEASEPOLICY, {"metadata": {"name": "default"}, "spec": {}})
    return machines, programs


async def unfinished(world: World) -> list[str]:
    """What is not as it should be at the end: sessions that go on, and what is left of them."""
    try:
        sessions = (await world.client.list(TESTSESSION)).items
        pods = (await world.client.list(POD, "default")).items
        leases = (await world.client.list(MACHINELEASE, "default")).items
        nodes = (await world.client.list(NODE)).items
    except ApiError as error:
        return [str(error)]
    found = [
        f"session {session.metadata.name} is {session.status.phase}: {session.status.message}"
        for session in sessions
        if session.status.phase not in FINAL_PHASES or session.metadata.deletion_timestamp
    ]
    found += [f"pod {pod.metadata.name}" for pod in pods if SESSION_LABEL in pod.metadata.labels]
    found += [f"lease {lease.metadata.name} is {lease.status.phase}" for lease in leases]
    leased = [node for node in nodes if MACHINE_LEASE in node.metadata.labels]
    found += [f"node {node.metadata.name} is leased" for node in leased]
    return found


async def nodes_are_ready(world: World) -> bool:
    """Whether every machine is there and Ready."""
    nodes = (await world.client.list(NODE)).items
    ready = [
        any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
        for node in nodes
    ]
    return len(ready) == sum(POOLS.values()) and all(ready)


@pytest.mark.seeds(3)
async def test_sessions_survive_a_week_of_faults(
    seed: int, log: Logger, records: Records, tmp_path: Path
) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    ends, faults = SessionsEndOnce(), EvidenceFaults(rng.fork("evidence"))
    evidence = EvidenceMembers(tmp_path, faults)
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.taps.append(partial(tap_logs, faults=faults, clock=clock))
        machines, programs = await populate(world, rng.fork("nodes"), evidence)
        alone = AttemptsRunAlone(machines)
        for judge in (alone, ends):
            world.history.add(judge)
        world.witnesses.append(alone.witness)
        users = SessionUsers(world, rng.fork("users"))
        for name in SESSIONS:
            document = session_document(name, rng.fork(name))
            await world.client.create(TESTSESSION, document, "default")
        troubles = [Chaos(world, machines, rng=rng.fork(f"chaos.{n}")) for n in range(2)]
        members = Chaos(
            world,
            machines,
            rng=rng.fork("members"),
            excluded=frozenset(world.components) - {*MEMBERS},
        )
        members.disturbances = [members.crash, members.nothing]
        if rng.fork("late").integer(0, 1):
            members.disturbances = [members.hold_writes, members.hold_writes, members.crash]
        async with Nursery() as nursery:
            for chaos in troubles:
                chaos.disturbances += users.all() * 2
                chaos.add_some([chaos.hang_watches, chaos.suspend], rng.fork("rare"))
                nursery.start(chaos.run(TROUBLE_S))
            nursery.start(members.run(TROUBLE_S))
        programs.calm = faults.calm = True
        await troubles[0].restore()
        await clock.sleep(max(members.late_s + troubles[0].deaf_s, WATCHES_RESUME_S))
        await world.until(partial(nodes_are_ready, world), limit_s=120.0)
        await all_move(world, machines, partial(unfinished, world), limit_s=SETTLED_S)
        for name in ("x", "y"):
            document = session_document(name, rng.fork(name))
            for field in ("ttlSecondsAfterFinished", "concurrency"):  # both are to end, and to stay
                document["spec"].pop(field, None)
            await world.client.create(TESTSESSION, document, "default")
        await all_move(world, machines, partial(unfinished, world), limit_s=SETTLED_S)
        await clock.sleep(60)  # finished sessions expire
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        assert await unfinished(world) == []
        assert ends.ends
        assert faults.struck or faults.chances < FEW_CHANCES
        assert evidence.missing((await world.client.list(TESTSESSION)).items) == []
        assert evidence.judged >= 2, "of x and y at least"
    assert crashes(records) == []
