"""Rollouts under faults: never below the minimum, and at rest with the last template afterwards.

What fails here are controllers, scheduler, network, server and disk, but no machine and no program, so
every pod that stops being ready was taken on purpose; the minimum is judged at every write.
"""

from contextlib import suppress
from typing import Any

import msgspec
from tests.sim.test_replication import BAD_NETWORK, ROOMY, crashes, populate, service

from grange.api.kinds import (
    AUDITRECORD,
    NODE,
    POD,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    node as nodes,
    pod as pods,
)
from grange.api.kinds.pod import Pod
from grange.api.meta import Document, controller_of
from grange.api.status import ApiError
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.chaos import Chaos
from grange.sim.invariants import Change
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.world import World, simulated

ROLLOUT: Document = {
    "maxUnavailable": 1,
    "maxSurge": 1,
    # A program that crashes after three seconds is never available, even if that is told late
    # because the server was away or its disk full.
    "minReadySeconds": 30,
    "progressDeadlineSeconds": 150,
    "autoRollback": True,
}


class MinimumIsKept:
    """Once a service is up, so many of its pods are ready at every revision."""

    def __init__(self) -> None:
        self.minimum: dict[str, int] = {}  # by the label ``app``
        self._ready: dict[str, set[str]] = {}

    def see(self, change: Change) -> None:
        """Count the ready pods of the service whose pod has changed."""
        if not change.concerns(POD):
            return
        pod = msgspec.convert(change.document, Pod)
        app = pod.metadata.labels.get("app", "")
        ready = self._ready.setdefault(app, set())
        ready.discard(change.uid)
        if not change.deleted and not pod.metadata.deletion_timestamp and pods.is_ready(pod):
            ready.add(change.uid)
        minimum = self.minimum.get(app, 0)
        invariant(
            len(ready) >= minimum,
            "a rollout keeps the minimum",
            app=app,
            ready=len(ready),
            minimum=minimum,
            pod=change.key,
            revision=change.revision,
        )


def template(app: str, version: int, fault: str = "") -> Document:
    """A program that serves, or one that crashes after three seconds, or fits on no node."""
    document: Document = service(app, 0)["spec"]["template"]
    document["metadata"]["labels"]["version"] = str(version)
    container = document["spec"]["containers"][0]
    container["command"] = ["crash" if fault == "crashes" else "serve"]
    if fault == "too large":
        container["resources"]["requests"]["cpu"] = "100"
    return document


FAULTS = ("crashes", "too large")


def controller(name: str, replicas: int, **spec: Any) -> Document:
    """A controller of the first template; its pods are labelled as those of ``app``."""
    app = spec.pop("app", name)
    return service(name, replicas, **{"rollout": ROLLOUT, "template": template(app, 1), **spec})


async def patched(world: World, name: str, **spec: Any) -> None:
    """Change a controller, however long the server stays away."""
    while True:
        with suppress(ApiError):
            await world.client.patch(REPLICATIONCONTROLLER, name, "default", patch={"spec": spec})
            return
        await world.clock.sleep(1.0)


async def nodes_are_back(world: World) -> bool:
    """Whether every node is Ready and nothing keeps pods off it."""
    found = (await world.client.list(NODE)).items
    return all(nodes.is_ready(node) and not node.spec.taints for node in found)


async def settled(world: World, name: str, version: int) -> bool:
    """Whether all pods of a controller are of a version, and nothing is rolling."""
    try:
        found = await world.client.get(REPLICATIONCONTROLLER, name, "default")
        live = (await world.client.list(POD)).items
    except ApiError:
        return False
    state = found.status.rollout
    if state is None or state.phase != "Complete":
        return False
    owned = [
        pod.metadata.labels.get("version")
        for pod in live
        if (owner := controller_of(pod.metadata)) is not None and owner.name == name
    ]
    return owned == [str(version)] * found.spec.replicas


def chaos_of(world: World, rng: Stream, agents: frozenset[str]) -> Chaos:
    """Misfortunes of everything but machines and programs."""
    chaos = Chaos(world, {}, rng=rng, spared=agents)
    chaos.misfortunes = [
        chaos.crash,
        chaos.crash,
        chaos.cut_off,
        chaos.server_away,
        chaos.lose_history,
        chaos.fill_disk,
    ]
    return chaos


async def test_templates_roll_out_among_misfortunes(
    seed: int, log: Logger, records: Records
) -> None:
    """A good template, a bad one that is rolled back, a pause, and a good one again."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(judge)
        agents = frozenset(f"agent-{name}" for name in await populate(world, rng, ROOMY))
        draw = rng.fork("wishes")
        replicas = {"web": draw.integer(2, 4), "heap": draw.integer(2, 6)}
        for name, placement in (("web", "OnePerNode"), ("heap", "Packed")):
            document = controller(name, replicas[name], placement=placement)
            await world.client.create(REPLICATIONCONTROLLER, document, "default")
        for name in replicas:
            await world.until(lambda name=name: settled(world, name, 1), limit_s=300)  # type: ignore[misc]  # a loop's own name
        judge.minimum = {name: count - 1 for name, count in replicas.items()}
        chaos = chaos_of(world, rng.fork("chaos"), agents)
        async with Nursery() as nursery:
            nursery.start(chaos.run(300))
            for version in (2, 3, 4):
                for name in replicas:
                    fault = draw.choice(FAULTS) if version == 3 else ""
                    await patched(world, name, template=template(name, version, fault))
                await clock.sleep(draw.uniform(5.0, 100.0))
                paused = draw.choice([False, False, True])
                await patched(world, draw.choice(list(replicas)), rollout={"paused": paused})
                await clock.sleep(draw.uniform(5.0, 100.0))
        await chaos.mend()
        # A deadline does not ask why: nodes that were lost from sight come back first.
        await world.until(lambda: nodes_are_back(world), limit_s=900)
        for name in replicas:
            await patched(world, name, template=template(name, 5), rollout={"paused": False})
        for name in replicas:
            await world.until(lambda name=name: settled(world, name, 5), limit_s=900)  # type: ignore[misc]  # a loop's own name
        await clock.sleep(200)  # news that is on its way may unsettle it once more
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
    assert crashes(records) == []


async def test_replicas_move_between_controllers_among_misfortunes(
    seed: int, log: Logger, records: Records
) -> None:
    """No replica is lost between them, whoever crashes when."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(judge)
        agents = frozenset(f"agent-{name}" for name in await populate(world, rng, ROOMY))
        replicas = rng.fork("wishes").integer(2, 6)
        changed = template("web", 2, rng.fork("template").choice(["", "", *FAULTS]))
        for document in (
            controller("one", replicas, placement="Packed", app="web"),
            controller("two", 0, placement="Packed", app="web", template=changed),
        ):
            await world.client.create(REPLICATIONCONTROLLER, document, "default")
        await world.until(lambda: settled(world, "one", 1), limit_s=300)
        judge.minimum = {"web": replicas - 1}
        update = {
            "metadata": {"name": "roll", "namespace": "default"},
            "spec": {
                "old": "one",
                "new": "two",
                "desired": replicas,
                "minimum": replicas - 1,
                "progressDeadlineSeconds": 150,
                "autoRollback": True,
            },
        }
        await world.client.create(ROLLINGUPDATE, update, "default")
        chaos = chaos_of(world, rng.fork("chaos"), agents)
        async with Nursery() as nursery:
            nursery.start(chaos.run(200))
        await chaos.mend()

        async def over() -> bool:
            try:
                found = await world.client.get(ROLLINGUPDATE, "roll", "default")
                live = (await world.client.list(REPLICATIONCONTROLLER)).items
            except ApiError:
                return False
            wanted = {item.metadata.name: item.spec.replicas for item in live}
            if found.status.phase == "Complete":
                return wanted == {"two": replicas}
            return found.status.phase == "RolledBack" and wanted == {"one": replicas, "two": 0}

        await world.until(over, limit_s=900)
        await clock.sleep(200)  # news that is on its way may unsettle it once more
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        ended = (await world.client.get(ROLLINGUPDATE, "roll", "default")).status.phase
        told = [
            item.spec.event
            for item in (await world.client.list(AUDITRECORD)).items
            if item.spec.message.startswith("RollingUpdate ")
        ]
        ends = {"Complete": "RolloutCompleted", "RolledBack": "RolloutRolledBack"}
        assert sorted(told) == sorted(["RolloutStarted", ends[ended]])
    assert crashes(records) == []
