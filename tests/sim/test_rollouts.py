"""Rollouts under faults: never below the minimum, and at rest with the last template afterwards.

What fails here are controllers, scheduler, network, server and disk, but no machine and in most worlds no
program, so every pod that stops being ready was taken on purpose; the minimum is judged at every write.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from tests.sim.lateness import late_writes
from tests.sim.test_replication import BAD_NETWORK, ROOMY, crashes, populate, service

from grange.agent.runtimes.fake import FakeMachine
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
from grange.base.clock import Clock, LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.chaos import Chaos
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.world import World, simulated

ROLLOUT: Document = {
    "maxUnavailable": 1,
    "maxSurge": 1,
    # A program that crashes after three seconds is never available, even if that is reported late
    # because the server was away or its disk full.
    "minReadySeconds": 30,
    "progressDeadlineSeconds": 150,
    "autoRollback": True,
}

_ASKED_S = 3.0  # a user asks the server, and his deletion arrives; meanwhile another pod breaks


class MinimumIsKept:
    """Once a service is up, so many of its pods are ready at every revision.

    Args:
        clock: the true time.

    Attributes:
        minimum: by the label ``app``.
        breakable: programs break by themselves. Then only what is taken on purpose is judged: no
            pod that has been ready for ``min_ready_s`` goes while fewer than the minimum stay.
        min_ready_s: after so long a pod counts as available.
    """

    def __init__(self, clock: Clock) -> None:
        self.minimum: dict[str, int] = {}
        self.breakable = False
        self.min_ready_s = 0.0
        self._clock = clock
        self._ready: dict[str, dict[str, float]] = {}  # since when
        self._broken: dict[str, dict[str, float]] = {}  # the same, by themselves
        self._silent: dict[str, set[str]] = {}  # those whose node is silent: no rollout took them
        self._stamps: dict[str, str | None] = {}  # of the Ready condition, by uid

    def lower(self, app: str, replicas: int) -> None:
        """A user is about to ask for so many replicas, of which none may be missing."""
        if app in self.minimum:
            self.minimum[app] = min(self.minimum[app], replicas)

    def see(self, change: ObservedWrite) -> None:
        """Count the ready pods of the service whose pod has changed."""
        if not change.concerns(POD):
            return
        pod = msgspec.convert(change.document, Pod)
        app, now = pod.metadata.labels.get("app", ""), self._clock.monotonic()
        ready, broken = self._ready.setdefault(app, {}), self._broken.setdefault(app, {})
        since = ready.pop(change.uid, None)
        broken.pop(change.uid, None)
        taken = change.deleted or bool(pod.metadata.deletion_timestamp)
        found = pods.condition(pod, "Ready")
        silent = self._silent.setdefault(app, set())
        was_silent = change.uid in silent
        silent.discard(change.uid)
        if not taken and found is not None and found.reason == "NodeNotReady":
            silent.add(change.uid)
        stamp = found.last_transition_time if found is not None else None
        if stamp != self._stamps.get(change.uid) and pods.is_ready(pod):
            since = None  # it broke and recovered before that was reported: ready again
        self._stamps[change.uid] = stamp
        if not taken and pods.is_ready(pod):
            ready[change.uid] = now if since is None else since
        elif not taken and since is not None:
            broken[change.uid] = now
        if was_silent or change.uid in silent:
            return
        there = len(ready) + (0 if taken else len(silent))
        if self.breakable:
            if not taken or since is None or now - since < self.min_ready_s + _ASKED_S:
                return
            there += sum(now - at < _ASKED_S for at in broken.values())
        minimum = self.minimum.get(app, 0)
        invariant(
            there >= minimum,
            "a rollout keeps the minimum",
            app=app,
            ready=there,
            minimum=minimum,
            pod=change.key,
            revision=change.revision,
        )


def template(app: str, version: int, fault: str = "") -> Document:
    """A program that serves, or one that breaks sooner or later, or fits on no node."""
    document: Document = service(app, 0)["spec"]["template"]
    document["metadata"]["labels"]["version"] = str(version)
    container = document["spec"]["containers"][0]
    container["command"] = [PROGRAMS.get(fault, "serve")]
    if fault == "too large":
        container["resources"]["requests"]["cpu"] = "100"
    return document


FAULTS = ("crashes", "too large")
# Ready for a while; available for a while, which no rollout can distinguish from a good one in time.
LATER_FAULTS = ("breaks early", "breaks late")
PROGRAMS = {"crashes": "crash", "breaks early": "flicker", "breaks late": "fade"}


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


def chaos_of(world: World, rng: Stream, machines: Mapping[str, FakeMachine]) -> Chaos:
    """Faults of everything but machines and, in most worlds, programs."""
    kept = frozenset(f"agent-{name}" for name in machines)
    chaos = Chaos(world, machines, rng=rng, excluded=kept)
    chaos.disturbances = [
        chaos.crash,
        chaos.crash,
        chaos.cut_off,
        chaos.server_away,
        chaos.lose_history,
        chaos.fill_disk,
    ]
    # Else a crash could be reported so late that its pod had been ready for ``minReadySeconds``.
    chaos.respite_s = 15.0
    chaos.add_some(chaos.rare, rng.fork("rare"))
    return chaos


def besides(world: World, machines: Mapping[str, FakeMachine]) -> list[str]:
    """Everybody who is no agent: controllers and scheduler."""
    agents = {f"agent-{name}" for name in machines}
    return [name for name in world.components if name not in agents]


@pytest.mark.seeds(2)
async def test_templates_roll_out_under_faults(seed: int, log: Logger, records: Records) -> None:
    """A good template, a bad one that is rolled back, a pause, and a good one again."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept(clock)
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(judge)
        machines = await populate(world, rng, ROOMY)
        draw = rng.fork("wishes")
        replicas = {"web": draw.integer(2, 4), "heap": draw.integer(2, 6)}
        for name, placement in (("web", "OnePerNode"), ("heap", "Packed")):
            document = controller(name, replicas[name], placement=placement)
            await world.client.create(REPLICATIONCONTROLLER, document, "default")
        for name in replicas:
            await world.until(lambda name=name: settled(world, name, 1), limit_s=300)  # type: ignore[misc]  # a loop's own name
        judge.minimum = {name: count - 1 for name, count in replicas.items()}
        judge.min_ready_s = ROLLOUT["minReadySeconds"]
        chaos = chaos_of(world, rng.fork("chaos"), machines)
        judge.breakable = chaos.break_newest in chaos.disturbances
        late = late_writes(world, rng.fork("late"), besides(world, machines))
        faults, later = FAULTS, rng.fork("faults")
        if later.uniform(0.0, 1.0) < 0.25:
            faults, judge.breakable = LATER_FAULTS, True
        async with Nursery() as nursery:
            nursery.start(chaos.run(300))
            nursery.start(late.run(300))
            for version in (2, 3, 4):
                for name in replicas:
                    fault = draw.choice(faults) if version == 3 else ""
                    await patched(world, name, template=template(name, version, fault))
                await clock.sleep(draw.uniform(5.0, 100.0))
                paused = draw.choice([False, False, True])
                await patched(world, draw.choice(list(replicas)), rollout={"paused": paused})
                await clock.sleep(draw.uniform(5.0, 100.0))
        await chaos.restore()
        # A deadline does not ask why: nodes that were lost from sight come back first.
        await world.until(lambda: nodes_are_back(world), limit_s=900)
        # nor does it wait for those who read a watch that hangs, or whose writes come late
        await clock.sleep(max(chaos.deaf_s, late.late_s))
        for name in replicas:
            await patched(world, name, template=template(name, 5), rollout={"paused": False})
        for name in replicas:
            await world.until(lambda name=name: settled(world, name, 5), limit_s=900)  # type: ignore[misc]  # a loop's own name
        await clock.sleep(200 + chaos.deaf_s)  # news that is on its way may unsettle it once more
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
    assert crashes(records) == []


async def test_replicas_move_between_controllers_under_faults(
    seed: int, log: Logger, records: Records
) -> None:
    """No replica is lost between them, whichever process crashes when."""
    clock, rng = LoopClock(EPOCH), Stream(seed)
    judge = MinimumIsKept(clock)
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        world.history.add(judge)
        machines = await populate(world, rng, ROOMY)
        replicas = rng.fork("wishes").integer(2, 6)
        fault = rng.fork("template").choice(["", "", *FAULTS])
        if fault == "crashes":
            fault = rng.fork("faults").choice(["crashes", "breaks early"])
        changed = template("web", 2, fault)
        for document in (
            controller("one", replicas, placement="Packed", app="web"),
            controller("two", 0, placement="Packed", app="web", template=changed),
        ):
            await world.client.create(REPLICATIONCONTROLLER, document, "default")
        await world.until(lambda: settled(world, "one", 1), limit_s=300)
        judge.minimum = {"web": replicas - 1}
        judge.min_ready_s = ROLLOUT["minReadySeconds"]
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
        chaos = chaos_of(world, rng.fork("chaos"), machines)
        judge.breakable = chaos.break_newest in chaos.disturbances
        late = late_writes(world, rng.fork("late"), besides(world, machines))
        async with Nursery() as nursery:
            nursery.start(chaos.run(200))
            nursery.start(late.run(200))
        await chaos.restore()
        await clock.sleep(late.late_s)

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
        await clock.sleep(200 + chaos.deaf_s)  # news that is on its way may unsettle it once more
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        ended = (await world.client.get(ROLLINGUPDATE, "roll", "default")).status.phase
        reported = [
            item.spec.event
            for item in (await world.client.list(AUDITRECORD)).items
            if item.spec.message.startswith("RollingUpdate ")
        ]
        ends = {"Complete": "RolloutCompleted", "RolledBack": "RolloutRolledBack"}
        assert sorted(reported) == sorted(["RolloutStarted", ends[ended]])
    assert crashes(records) == []
