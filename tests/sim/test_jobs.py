"""Jobs under faults: two members share them while programs fail, nodes vanish and users interfere.

At every write an index runs once at a time, ends never change, and each failure is charged once
(``job_judges``). When the faults stop every job ends soon, and nothing is left of those that are gone.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from tests.sim.job_judges import (
    LABELS,
    TERMINAL,
    IndexesRunOnce,
    JobsAreCounted,
    RestartsAreBarriers,
)
from tests.sim.test_farm import skewed
from tests.sim.test_replication import BAD_NETWORK, crashes

from grange.agent.runtimes.fake import FakeMachine, Script
from grange.api.kinds import GANGJOB, NODE, POD, PODGROUP, PRIORITYCLASS, SERVICE
from grange.api.kinds.gangjob import GangJob
from grange.api.meta import Document, Resource, controller_of
from grange.api.status import ApiError, Invalid
from grange.base.backoff import Exponential
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.controllers.gangjob.config import GangJobConfig
from grange.controllers.gangjob.controller import JobService
from grange.controllers.gangjob.job_pods import TRACKING_FINALIZER
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.member import Member
from grange.sim import builders, simulated_nodes
from grange.sim.chaos import Chaos, Disturbance
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.world import World, simulated

MEMBERS = ("one", "two")
NODES, CPUS = 4, "4"
JOBS = ("a", "b", "c", "d")
TROUBLE_S = 120.0
BACKOFF_S = 5.0
# 10 s, and what two roles, one after the other, take themselves: back-off, programs, their grace.
SETTLED_S = 10.0 + BACKOFF_S + 2 * (2.0 + 5.0)
CONFIG = GangJobConfig(replacement=Exponential(initial_s=0.5, cap_s=BACKOFF_S))
RESTARTABLE = (130, 137, 143)


class JobProcess:
    """A member of the farm that runs the job controller."""

    def __init__(self, deps: Deps, name: str) -> None:
        self._deps = deps
        self._member = Member(deps, FarmConfig(member=name))
        farm = self._member.farm("gangjob", GANGJOB)
        self._service = JobService(farm.fence(deps), GANGJOB_ADAPTER, CONFIG)
        farm.attach(self._service.loop)

    async def run(self) -> None:
        clock, log = self._deps.clock, self._deps.log
        async with Nursery("process") as nursery:
            for name, run in (("service", self._service.run), ("farm", self._member.run)):
                nursery.start(supervise(name, run, clock=clock, log=log))


class Programs(dict[str, Script]):
    """Programs that end as they are drawn, until they are ``calm``: then they succeed."""

    def __init__(self, draw: Stream) -> None:
        super().__init__(simulated_nodes.SCRIPTS)
        self.calm = False
        self._draw = draw

    def get(self, key: str, default: Any = None) -> Any:
        if key != "work":
            return super().get(key, default)
        if self.calm:
            return Script(duration_s=2.0)
        codes = [0] * 6 + [*RESTARTABLE] + [1, 42]
        return Script(
            duration_s=self._draw.uniform(0.5, 20.0),
            exit_code=self._draw.choice(codes),
            term_s=self._draw.uniform(0.0, 3.0),
            term_exit_code=self._draw.choice([0, None]),
        )


def job_document(name: str, draw: Stream) -> Document:
    """A job with roles and policies by chance."""
    container: Document = {
        "name": "main",
        "command": ["work"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    template: Document = {
        "metadata": {"labels": {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 5},
    }
    roles: dict[str, Document] = {}
    for role in ("main", "worker")[: draw.integer(1, 2)]:
        replicas = draw.integer(1, 3)
        roles[role] = {
            "replicas": replicas,
            "restartPolicy": draw.choice(["ExitCode", "ExitCode", "OnFailure", "Never"]),
            "template": template,
        }
        if draw.integer(0, 4) == 0:
            roles[role] |= {"backoffLimitPerIndex": 1, "maxFailedIndexes": replicas}
        elif draw.integer(0, 4) == 0:
            roles[role]["minReplicas"] = 1
    if len(roles) == 2 and draw.integer(0, 2) == 0:
        condition = draw.choice(["Ready", "Complete"])
        roles["worker"]["dependsOn"] = [{"role": "main", "condition": condition}]
    policy: Document = {
        "cleanPodPolicy": draw.choice(["All", "Running", "None"]),
        "schedulingPolicy": {"backend": draw.choice(["Grange", "None"])},
    }
    if draw.integer(0, 1):
        policy["backoffLimit"] = draw.integer(2, 20)
    if draw.integer(0, 3) == 0:
        policy["ttlSecondsAfterFinished"] = draw.integer(0, 20)
    spec: Document = {"replicaSpecs": roles, "runPolicy": policy}
    if draw.integer(0, 2) == 0:
        actions = [
            "RestartJob",
            "RestartRole",
            "RestartPod",
            "RestartPodInPlace",
            "Ignore",
            "FailJob",
        ]
        codes: Document = {"operator": "In", "values": [draw.choice([1, 42, 137])]}
        spec["failurePolicy"] = {
            "maxRestarts": draw.integer(1, 6),
            "restartStrategy": draw.choice(["Recreate", "BlockingRecreate"]),
            "rules": [{"action": draw.choice(actions), "onExitCodes": codes}],
        }
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


class JobUsers:
    """What users and nodes do meanwhile."""

    def __init__(self, world: World, machines: Mapping[str, FakeMachine], draw: Stream) -> None:
        self._world, self._machines, self._draw = world, machines, draw
        self._made = 0

    def all(self) -> list[Disturbance]:
        return [
            self.submit,
            self.submit,
            self.create_again,
            self.suspend,
            self.evict,
            self.lose_node,
            self.preempt,
        ]

    async def submit(self) -> None:
        """Create a job, where there is none of the name."""
        document = job_document(self._draw.choice(JOBS), self._draw)
        with suppress(ApiError):
            await self._world.client.create(GANGJOB, document, "default")

    async def create_again(self) -> None:
        """Delete a job and create another of the same name."""
        name = self._draw.choice(JOBS)
        document = job_document(name, self._draw)
        with suppress(ApiError):
            await self._world.client.delete(GANGJOB, name, "default")
            await self._world.clock.sleep(self._draw.uniform(0.0, 3.0))
            await self._world.client.create(GANGJOB, document, "default")

    async def suspend(self) -> None:
        """Suspend a job, and resume it later."""
        name = self._draw.choice(JOBS)
        for value in (True, False):
            patch = {"spec": {"runPolicy": {"suspend": value}}}
            with suppress(ApiError):
                await self._world.client.patch(GANGJOB, name, "default", patch=patch)
            await self._world.clock.sleep(self._draw.uniform(0.0, 15.0))

    async def evict(self) -> None:
        """Evict a pod."""
        with suppress(ApiError):
            pods = (await self._world.client.list(POD, "default")).items
            if pods:
                name = self._draw.choice(pods).metadata.name
                body = {"metadata": {"name": name}}
                await self._world.client.post(POD, name, "default", "eviction", body)

    async def lose_node(self) -> None:
        """A machine stops for good with all that runs on it; one of the same name replaces it."""
        name = self._draw.choice([*self._machines])
        machine = self._machines[name]
        self._world.network.note(name, "vanishes")
        self._world.crash(f"agent-{name}")
        for pod in machine.pods.values():
            for live in list(pod.runs.values()):
                machine.lose(live.run.id, self._world.clock.now())
        machine.pods.clear()
        with suppress(ApiError):
            await self._world.client.delete(NODE, name)
        await self._world.clock.sleep(self._draw.uniform(5.0, 40.0))
        self._world.restart(f"agent-{name}")

    async def preempt(self) -> None:
        """A more important pod wants a whole node for some seconds."""
        self._made += 1
        name = f"high-{self._made}"
        document = builders.pod_document(
            name, requests={"cpu": CPUS}, priorityClassName="high", restartPolicy="Never"
        )
        document["spec"]["containers"][0]["command"] = ["job"]
        with suppress(ApiError):
            await self._world.client.create(POD, document, "default")


async def populate(world: World, draw: Stream) -> tuple[dict[str, FakeMachine], Programs]:
    """Nodes, two members, and everybody else."""
    programs = Programs(draw.fork("programs"))
    machines = {}
    for number in range(NODES):
        name = f"n{number}"
        capacity = {"cpu": CPUS, "memory": "64Gi", "pods": "110"}
        machines[name] = simulated_nodes.add_node(world, name, capacity=capacity)
        machines[name].scripts = programs
    simulated_nodes.add_controllers(world, besides="gangjob")
    for name in MEMBERS:
        clock = skewed(world, name, draw.fork(name))
        world.add(name, partial(JobProcess, name=name), clock=clock)
    simulated_nodes.add_scheduler(world)
    await simulated_nodes.registered(world, NODES)
    high: Document = {
        "apiVersion": PRIORITYCLASS.api_version,
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    await world.client.create(PRIORITYCLASS, high)
    return machines, programs


async def unfinished(world: World) -> list[str]:
    """What is not as it should be at the end: jobs that go on, and what is left of those that do not."""
    try:
        jobs = {job.metadata.uid: job for job in (await world.client.list(GANGJOB)).items}
        pods = (await world.client.list(POD, "default")).items
        services = (await world.client.list(SERVICE, "default")).items
        groups = (await world.client.list(PODGROUP, "default")).items
    except ApiError as error:
        return [str(error)]
    found = [
        f"job {job.metadata.name} is {job.status.phase}"
        for job in jobs.values()
        if job.status.phase not in TERMINAL or job.metadata.deletion_timestamp
    ]
    for pod in pods:
        if LABELS.job not in pod.metadata.labels:
            continue
        job = _owner(jobs, pod)
        if job is None:
            found.append(f"pod {pod.metadata.name} has no job")
            continue
        if TRACKING_FINALIZER in pod.metadata.finalizers:
            found.append(f"pod {pod.metadata.name} is tracked")
        policy = job.spec.run_policy.clean_pod_policy
        if policy == "All" or pod.metadata.deletion_timestamp:
            found.append(f"pod {pod.metadata.name} stays")
        if policy == "Running" and pod.status.phase not in TERMINAL:
            found.append(f"pod {pod.metadata.name} runs")
    for item in (*services, *groups):
        what = f"{type(item).__name__} {item.metadata.name}"
        owner = _owner(jobs, item)
        if controller_of(item.metadata) is not None and owner is None:
            found.append(f"{what} has no job")
        elif owner is not None and owner.spec.run_policy.clean_pod_policy == "All":
            found.append(f"{what} stays")
    return found


def _owner(jobs: Mapping[str, GangJob], item: Resource) -> GangJob | None:
    reference = controller_of(item.metadata)
    return None if reference is None else jobs.get(reference.uid)


async def test_jobs_survive_a_week_of_faults(seed: int, log: Logger, records: Records) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    counted, barriers = JobsAreCounted(), RestartsAreBarriers()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        machines, programs = await populate(world, rng.fork("nodes"))
        once = IndexesRunOnce(machines)
        for judge in (once, counted, barriers):
            world.history.add(judge)
        world.witnesses.append(once.witness)
        users = JobUsers(world, machines, rng.fork("users"))
        for name in JOBS:
            await world.client.create(GANGJOB, job_document(name, rng.fork(name)), "default")
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
        programs.calm = True
        await troubles[0].restore()
        for job in (await world.client.list(GANGJOB)).items:
            patch = {"spec": {"runPolicy": {"suspend": False}}}
            with suppress(Invalid):  # it has ended
                await world.client.patch(GANGJOB, job.metadata.name, "default", patch=patch)
        await clock.sleep(members.late_s)
        await settled(world, SETTLED_S + troubles[0].deaf_s)
        await clock.sleep(120 + troubles[0].deaf_s)
        assert await unfinished(world) == []
        restless = [line for line in await world.fixed_point(200) if "/core/nodes/" not in line]
        assert restless == []
        assert counted.ends
    assert crashes(records) == []


class FirstRunsFail(dict[str, Script]):
    """Programs of which the first few fail."""

    def __init__(self, failures: int) -> None:
        super().__init__(simulated_nodes.SCRIPTS)
        self._failures = failures

    def get(self, key: str, default: Any = None) -> Any:
        if key != "work":
            return super().get(key, default)
        self._failures -= 1
        return Script(duration_s=2.0, exit_code=RESTARTABLE[0] if self._failures >= 0 else 0)


async def test_judges_compare_failures_and_see_barriers(log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(0)
    counted, barriers = JobsAreCounted(), RestartsAreBarriers()
    async with simulated(clock=clock, rng=rng, log=log) as world:
        for judge in (counted, barriers):
            world.history.add(judge)
        machines, _ = await populate(world, rng.fork("nodes"))
        programs = FirstRunsFail(4)
        for machine in machines.values():
            machine.scripts = programs
        rule = {"action": "RestartJob", "onExitCodes": {"operator": "In", "values": [130]}}
        blocking = {"restartStrategy": "BlockingRecreate", "maxRestarts": 5, "rules": [rule]}
        for name, policy in (("a", None), ("b", blocking)):
            document = job_document(name, rng.fork(name))
            role = document["spec"]["replicaSpecs"]["main"]
            role = {"replicas": 2, "restartPolicy": "ExitCode", "template": role["template"]}
            document["spec"] = {"replicaSpecs": {"main": role}}
            if policy:
                document["spec"]["failurePolicy"] = policy
            await world.client.create(GANGJOB, document, "default")
        await settled(world, 60)
    assert counted.ends["Succeeded"] == 2
    assert counted.exact == 1
    assert counted.charges == 3  # two pods of the one, and all of the other at once
    assert barriers.crossed == 2


async def test_nodes_restart_in_place_what_a_rule_names(log: Logger) -> None:
    clock, rng = LoopClock(EPOCH), Stream(0)
    counted = JobsAreCounted()
    async with simulated(clock=clock, rng=rng, log=log) as world:
        world.history.add(counted)
        machines, _ = await populate(world, rng.fork("nodes"))
        programs = FirstRunsFail(4)
        for machine in machines.values():
            machine.scripts = programs
        document = job_document("a", rng.fork("a"))
        role = document["spec"]["replicaSpecs"]["main"]
        role = {"replicas": 2, "restartPolicy": "Never", "template": role["template"]}
        codes = {"operator": "NotIn", "values": [1]}
        rule = {"action": "RestartPodInPlace", "onExitCodes": codes}
        document["spec"] = {
            "replicaSpecs": {"main": role},
            "runPolicy": {"cleanPodPolicy": "None"},
            "failurePolicy": {"maxRestarts": 4, "rules": [rule]},
        }
        await world.client.create(GANGJOB, document, "default")
        await settled(world, 60)
        job = (await world.client.list(GANGJOB, "default")).items[0]
        pods = (await world.client.list(POD, "default", labels=f"{LABELS.job}=a")).items
    assert (job.status.phase, job.status.restarts, job.status.restarts_towards_max) == (
        "Succeeded",
        4,
        4,
    )
    restarts = [pod.status.container_statuses[0].restart_count for pod in pods]
    assert (len(restarts), sum(restarts)) == (2, 4)
    assert counted.charges == 4


async def settled(world: World, limit_s: float) -> None:
    """Wait until nothing is unfinished.

    Raises:
        TimeoutError: something still is; its notes list what.
    """

    async def over() -> bool:
        return not await unfinished(world)

    try:
        await world.until(over, limit_s=limit_s)
    except TimeoutError as error:
        for line in await unfinished(world):
            error.add_note(line)
        raise
