"""Jobs that share a queue and nodes which hold one of them: each has its turn, whatever is lost.

No job runs by halves: a program that waits for the other members never ends here, so a job ends
only while all of its pods run. At every write the queue's quota is kept, and no pod of a job exists
whose gang was not admitted.
"""

import pytest
from tests.sim.job_judges import LABELS, TERMINAL
from tests.sim.test_jobs import JobUsers, populate
from tests.sim.test_replication import BAD_NETWORK, crashes

from grange.api.kinds import GANGJOB, POD, PODGROUP, QUEUE
from grange.api.kinds.gangjob import GangJob
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.meta import Document
from grange.base.clock import LoopClock
from grange.base.errors import invariant
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.chaos import Chaos
from grange.sim.invariants import ObservedWrite
from grange.sim.pytest_plugin import EPOCH, Records
from grange.sim.world import World, simulated

QUOTA = 9
JOBS = tuple("abcde")
TROUBLE_S = 60.0


class QuotaIsKept:
    """Pods of gangs in the queue never have more nodes than it has CPUs; each pod asks for one."""

    def __init__(self) -> None:
        self._groups: set[str] = set()
        self._bound: set[str] = set()
        self.most = 0

    def see(self, change: ObservedWrite) -> None:
        """Count the pods that have a node."""
        meta = change.document["metadata"]
        if change.concerns(PODGROUP) and change.document["spec"].get("queue"):
            self._groups.add(meta["name"])
        if not change.concerns(POD) or meta.get("labels", {}).get(GROUP_LABEL) not in self._groups:
            return
        ended = change.document.get("status", {}).get("phase") in TERMINAL
        if change.deleted or ended or not change.document["spec"].get("nodeName"):
            self._bound.discard(change.uid)
        else:
            self._bound.add(change.uid)
        self.most = max(self.most, len(self._bound))
        invariant(len(self._bound) <= QUOTA, "the quota is kept", pods=len(self._bound))


class PodsFollowAdmission:
    """A pod of a gated gang is created only after the gang was admitted."""

    def __init__(self) -> None:
        self._admitted: dict[str, bool] = {}
        self.checked = 0

    def see(self, change: ObservedWrite) -> None:
        """Note who is admitted, and look at who is new."""
        meta = change.document["metadata"]
        if change.concerns(PODGROUP) and change.document["spec"].get("admission") == "Gated":
            present = change.document.get("status", {}).get("conditions") or []
            yes = any((item["type"], item["status"]) == ("Admitted", "True") for item in present)
            self._admitted[meta["name"]] = yes or self._admitted.get(meta["name"], False)
        if change.concerns(POD) and not change.document["spec"].get("nodeName"):
            known = self._admitted.get(meta.get("labels", {}).get(GROUP_LABEL, ""))
            self.checked += known is not None
            invariant(known is not False, "pods follow admission", pod=meta["name"])


def job_document(name: str, draw: Stream) -> Document:
    """A job that wants more than half of the quota and of the nodes."""
    container: Document = {
        "name": "main",
        "command": ["serve"],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }
    template: Document = {
        "metadata": {"labels": {}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 2},
    }
    role: Document = {"restartPolicy": "OnFailure", "template": template}
    workers = draw.integer(4, QUOTA - 1)
    worker = {**role, "replicas": workers}
    if draw.integer(0, 2) == 0:
        worker |= {"minReplicas": draw.integer(4, workers), "maxReplicas": workers}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicaSpecs": {"main": {**role, "replicas": 1}, "worker": worker},
            "runPolicy": {
                "cleanPodPolicy": "All",
                "schedulingPolicy": {"queue": draw.choice(["team", "team", ""])},
            },
        },
    }


async def whole(world: World, job: GangJob) -> bool:
    """Whether as many pods of each role run as the job cannot do without."""
    running = [
        pod.metadata.labels[LABELS.role]
        for pod in (await world.client.list(POD, "default")).items
        if pod.metadata.labels.get(LABELS.job) == job.metadata.name
        and pod.status.phase == "Running"
        and not pod.metadata.deletion_timestamp
    ]
    needed = {
        name: role.replicas if role.min_replicas is None else role.min_replicas
        for name, role in job.spec.replica_specs.items()
    }
    return all(running.count(name) >= (count or 1) for name, count in needed.items())


async def end_whole_jobs(world: World) -> list[str]:
    """End the jobs that run as a whole; the names of all others."""
    left = []
    for job in (await world.client.list(GANGJOB)).items:
        if job.status.phase in TERMINAL or await whole(world, job):
            await world.client.delete(GANGJOB, job.metadata.name, "default")
        else:
            left.append(f"{job.metadata.name} is {job.status.phase}")
    return left


@pytest.mark.seeds(3)
async def test_half_started_jobs_never_wait_for_each_other(
    seed: int, log: Logger, records: Records
) -> None:
    clock, rng = LoopClock(EPOCH), Stream(seed)
    quota, admission = QuotaIsKept(), PodsFollowAdmission()
    async with simulated(clock=clock, rng=rng, log=log, faults=BAD_NETWORK) as world:
        for judge in (quota, admission):
            world.history.add(judge)
        machines, _ = await populate(world, rng.fork("nodes"))
        queue = {"metadata": {"name": "team"}, "spec": {"capacity": {"cpu": str(QUOTA)}}}
        await world.client.create(QUEUE, queue)
        for name in JOBS:
            await world.client.create(GANGJOB, job_document(name, rng.fork(name)), "default")
        chaos = Chaos(world, machines, rng=rng.fork("chaos"))
        users = JobUsers(world, machines, rng.fork("users"))
        chaos.disturbances += [users.evict, users.evict, users.lose_node, users.preempt]
        await chaos.run(TROUBLE_S)
        await chaos.restore()
        left = [""]
        for _ in range(60):
            left = await end_whole_jobs(world)
            if not left:
                break
            await clock.sleep(5.0)
        assert left == []
        assert quota.most > QUOTA // 2
        assert admission.checked
    assert crashes(records) == []
