"""``grange install`` gives the controllers what they need in a cluster that is not ours, and no more.

They run against a server that behaves as Kubernetes' does where that makes a difference, with kubelets that
report nothing of their pods in their Leases, and may do what their role permits. Stories have them use all
of it.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import pytest
from tests.sim.test_rollouts import template
from tests.support.kubernetes_stub import Kubelet, Kubernetes, granted

from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.kinds import (
    AUDITRECORD,
    GANGJOB,
    LEASE,
    LEASEPOLICY,
    MACHINE,
    MACHINELEASE,
    NODE,
    NODEPOOL,
    POD,
    PODDISRUPTIONBUDGET,
    PODGROUP,
    PRIORITYCLASS,
    PYTORCHJOB,
    QUEUE,
    REPLICATIONCONTROLLER,
    ROLLINGUPDATE,
    SERVICE,
    TESTSESSION,
    TFJOB,
)
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.kinds.replicationcontroller import ID_LABEL, NAME_LABEL
from grange.api.meta import Document, controller_of
from grange.api.scheme import KindInfo
from grange.app.install import rbac
from grange.app.install.install_manifests import SCHEDULER_NAME
from grange.app.manager import Manager, scheduler_for
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.client.transport import Transport
from grange.controllers.disruption.controller import DisruptionController
from grange.controllers.garbagecollector.controller import GarbageCollector
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.scheduler.config import SchedulerConfig
from grange.sim import builders, simulated_nodes
from grange.sim.pytest_plugin import EPOCH
from grange.sim.world import World, simulated

OURS = "ours"
LIMIT_S = 600.0
MANY = 24  # more nodes than the replication controller asks for one by one
KUBE_SCHEDULER = SchedulerConfig(scheduler_names=frozenset({"default-scheduler"}))


class Process:
    """``grange controllers --only NAMES --scheduler-name grange``."""

    def __init__(self, deps: Deps, member: str, names: frozenset[str], group: str) -> None:
        self._deps = deps
        self._manager = Manager(
            FarmConfig(member=member, group=group),
            lambda _: deps,
            names,
            scheduler=scheduler_for(frozenset({SCHEDULER_NAME})),
        )

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for role in self._manager.runnables():
                clock, log = self._deps.clock, self._deps.log
                nursery.start(supervise(role.name, role.run, clock=clock, log=log))


class Cluster:
    """A cluster of another user with our controllers in it, and what its people do."""

    def __init__(self, world: World, names: frozenset[str]) -> None:
        self.world = world
        self.client = world.client
        self.server = Kubernetes(rbac.of(names))
        self.kubelets: list[Kubelet] = []
        self._names = names
        world.taps.append(self._way)

    def _way(self, inner: Transport, name: str) -> Transport:
        if name.startswith("agent-"):
            self.kubelets.append(Kubelet(inner))
            return self.kubelets[-1]
        return self.server.tap(inner) if name.startswith(OURS) else inner

    async def populate(self, nodes: int) -> None:
        """Machines, what belongs to Kubernetes, and our controllers: two processes."""
        for number in range(nodes):
            simulated_nodes.add_node(self.world, f"n{number:02}")
        await simulated_nodes.registered(self.world, nodes)
        self.world.add("kube-controller-manager", GarbageCollector)
        self.world.add("kube-disruption-controller", DisruptionController)
        simulated_nodes.add_scheduler(self.world, KUBE_SCHEDULER)
        others = frozenset(rbac.CONTROLLERS) - self._names
        if others:  # some program has to do it, with all permissions
            process = partial(Process, member="other", names=others, group="others")
            self.world.add("others", process)
        for member in ("one", "two"):
            name = f"{OURS}-{member}"
            process = partial(Process, member=member, names=self._names, group="grange")
            self.world.add(name, process)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        async def holds() -> bool:
            return await condition()

        await self.world.until(holds, limit_s=LIMIT_S)

    async def create(self, name: str, replicas: int, **spec: Any) -> None:
        document: Document = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "template": template("web", 1),
                "placement": "OnePerNode",
                **spec,
            },
        }
        await self.client.create(REPLICATIONCONTROLLER, document, "default")

    async def change(self, name: str, **spec: Any) -> None:
        await self.client.patch(REPLICATIONCONTROLLER, name, "default", patch={"spec": spec})

    async def settled(self, name: str, replicas: int, version: int = 1) -> None:
        """Wait until the controller has so many ready pods of a version, and is at rest."""

        async def there() -> bool:
            one = await self.client.get(REPLICATIONCONTROLLER, name, "default")
            pods = [
                pod
                for pod in (await self.client.list(POD)).items
                if (owner := controller_of(pod.metadata)) and owner.uid == one.metadata.uid
            ]
            versions = {pod.metadata.labels["version"] for pod in pods}
            status, state = one.status, one.status.rollout
            return (
                status.observed_generation == one.metadata.generation
                and len(pods) == status.ready_replicas == replicas
                and versions <= {str(version)}
                and state is not None
                and state.phase == "Complete"
                and not status.outbox
            )

        await self.until(there)

    async def gone(self, *kinds: Any) -> None:
        """Wait until there is nothing of these kinds."""

        async def over() -> bool:
            return not any([(await self.client.list(kind)).items for kind in kinds])

        await self.until(over)

    async def owners(self) -> set[str]:
        """The members that write for controllers."""
        found = (await self.client.list(REPLICATIONCONTROLLER)).items
        annotated = [one.metadata.annotations.get(OWNER_ANNOTATION, "") for one in found]
        return {name.partition("_")[0] for name in annotated}


# --- the stories -------------------------------------------------------------------------------


async def replicate(cluster: Cluster) -> None:
    """Up, another template under the minimum, adopted, repaired, moved, down."""
    client = cluster.client
    rollout = {"minReadySeconds": 1, "maxUnavailable": 1, "maxSurge": 0}
    await cluster.create("web", MANY, rollout=rollout)
    await cluster.settled("web", MANY)
    covered: Document = {"maxUnavailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    document: Document = {"metadata": {"name": "web"}, "spec": covered}
    await client.create(PODDISRUPTIONBUDGET, document, "default")
    cluster.server.troubled = True
    await cluster.change("web", template=template("web", 2))
    await cluster.settled("web", MANY, 2)
    another: Document = {"metadata": {"name": "another"}, "spec": covered}
    await client.create(PODDISRUPTIONBUDGET, another, "default")
    await cluster.world.clock.sleep(10.0)
    await cluster.change("web", replicas=2)
    await cluster.settled("web", 2, 2)
    for name in ("web", "another"):
        await client.delete(PODDISRUPTIONBUDGET, name, "default")
    await client.delete(REPLICATIONCONTROLLER, "web", "default", propagation="Orphan")
    await cluster.gone(REPLICATIONCONTROLLER)
    await cluster.create("web", 2, placement="Packed", template=template("web", 2))
    await cluster.settled("web", 2, 2)
    [first, second] = (await client.list(POD)).items
    for _ in range(3):  # what is repeated is counted
        bare: Document = {"metadata": {"labels": {ID_LABEL: None}}}
        await client.patch(POD, first.metadata.name, "default", patch=bare)
        await cluster.world.clock.sleep(3.0)
    mark: Document = {"metadata": {"labels": {NAME_LABEL: "look"}}}
    await client.patch(POD, first.metadata.name, "default", patch=mark)
    await client.delete(POD, second.metadata.name, "default")
    await cluster.settled("web", 2, 2)
    await client.delete(POD, first.metadata.name, "default")
    await cluster.change("web", strategy="Dynamic", nodeSelector={"matchLabels": {"a": "b"}})
    await client.patch(NODE, "n01", patch={"metadata": {"labels": {"a": "b"}}})

    async def moved() -> bool:
        pods = (await client.list(POD)).items
        return len(pods) == 2 and {pod.spec.node_name for pod in pods} == {"n01"}

    await cluster.until(moved)
    await cluster.change("web", replicas=0)
    await client.delete(REPLICATIONCONTROLLER, "web", "default", propagation="Background")
    await cluster.gone(REPLICATIONCONTROLLER, POD)


async def hand_over(cluster: Cluster) -> None:
    """A RollingUpdate moves replicas, and is removed; another one is refused."""
    rollout = {"minReadySeconds": 2}
    await cluster.create("old", MANY, placement="Packed", rollout=rollout)
    new = template("web", 2)
    await cluster.create("new", 0, placement="Packed", rollout=rollout, template=new)
    await cluster.settled("old", MANY)
    cluster.server.troubled = True
    spec = {"old": "old", "new": "new", "desired": MANY, "minimum": MANY - 2, "maxSurge": 2}
    for name, more in (("roll", {}), ("late", {"startingReplicas": {"old": 9, "new": 9}})):
        document: Document = {
            "metadata": {"name": name},
            "spec": {**spec, **more, "ttlSecondsAfterFinished": 1},
        }
        await cluster.client.create(ROLLINGUPDATE, document, "default")
        await cluster.world.clock.sleep(1.0)
    for paused in (True, False, True, False):
        await cluster.client.patch(
            ROLLINGUPDATE, "roll", "default", patch={"spec": {"paused": paused}}
        )
        await cluster.world.clock.sleep(5.0)
    await cluster.gone(ROLLINGUPDATE)
    await cluster.settled("new", MANY, 2)
    [left] = (await cluster.client.list(REPLICATIONCONTROLLER)).items
    assert left.metadata.name == "new", "the old one is deleted when it is empty"


async def schedule(cluster: Cluster) -> None:
    """Pods and a gang are placed within a quota; a more important pod makes room."""
    client = cluster.client
    await client.create(PRIORITYCLASS, {"metadata": {"name": "high"}, "value": 1000})
    await client.create(QUEUE, {"metadata": {"name": "q"}, "spec": {"capacity": {"cpu": "1"}}})
    await client.create(
        PODGROUP, {"metadata": {"name": "crew"}, "spec": {"minMember": 2}}, "default"
    )
    cluster.server.troubled = True

    async def add(name: str, cpu: str, priority: str = "", **labels: str) -> None:
        document = builders.pod_document(
            name, labels=labels, requests={"cpu": cpu}, priorityClassName=priority
        )
        document["spec"]["schedulerName"] = SCHEDULER_NAME
        document["spec"]["containers"][0]["command"] = ["serve"]
        await client.create(POD, document, "default")

    async def bound(*names: str) -> None:
        async def there() -> bool:
            pods = (await client.list(POD)).items
            return {pod.metadata.name for pod in pods if pod.spec.node_name} >= {*names}

        await cluster.until(there)

    async def was_reported() -> bool:
        group = await client.get(PODGROUP, "crew", "default")
        queue = await client.get(QUEUE, "q")
        return group.status.phase == "Running" and queue.status.admitted == 1

    await add("queued", "1", **{QUEUE_LABEL: "q"})
    for _ in range(4):  # what is repeated is counted
        for name in ("a", "b"):
            await add(name, "1", **{GROUP_LABEL: "crew"})
        await bound("a", "b", "queued")
        await cluster.until(was_reported)
        for name in ("a", "b"):
            await client.delete(POD, name, "default", grace_period_s=0)
        await cluster.world.clock.sleep(3.0)

    await add("over", "1", **{QUEUE_LABEL: "q"})
    for number in range(3):
        await add(f"large-{number}", "3")
    await cluster.world.clock.sleep(20.0)
    await add("vip", "4", "high")
    await bound("vip")
    for pod in (await client.list(POD)).items:
        await client.delete(POD, pod.metadata.name, "default")
    await cluster.gone(POD)


async def expire_records(cluster: Cluster) -> None:
    """A record is older than records are kept."""
    ancient: Document = {
        "metadata": {"name": "ancient"},
        "spec": {"event": "MembershipChanged", "controller": "web", "time": "2000-01-01T00:00:00Z"},
    }
    await cluster.client.create(AUDITRECORD, ancient, "default")

    async def expired() -> bool:
        return not (await cluster.client.list(AUDITRECORD)).items

    await cluster.world.until(expired, limit_s=9000.0, every_s=60.0)


async def grow_old(cluster: Cluster) -> None:
    """A member dies and its Lease is deleted."""
    for name in [*cluster.world.components]:
        if name != f"{OURS}-two":
            cluster.world.crash(name)  # an hour passes in which nothing else has to happen

    async def forgotten() -> bool:
        leases = await cluster.client.list(LEASE, "kube-system", labels="grange.dev/farm=grange")
        return len(leases.items) == 1

    await cluster.world.until(forgotten, limit_s=9000.0, every_s=60.0)


async def run_jobs(cluster: Cluster) -> None:
    """Jobs of both backends lose pods and labels, are suspended and scaled, and expire."""
    client = cluster.client
    worker = {"template": {"spec": template("web", 1)["spec"]}}

    async def add(name: str, replicas: int = 2, **policy: Any) -> None:
        roles = {"worker": {**worker, "replicas": replicas, "minReplicas": 1, "maxReplicas": 3}}
        spec = {"replicaSpecs": roles, "runPolicy": policy}
        await client.create(GANGJOB, {"metadata": {"name": name}, "spec": spec}, "default")

    async def change(name: str, spec: Document) -> None:
        await client.patch(GANGJOB, name, "default", patch={"spec": spec})

    async def reaches(name: str, phase: str, pods: int) -> None:
        async def there() -> bool:
            job = await client.get(GANGJOB, name, "default")
            found = [
                pod
                for pod in (await client.list(POD, labels=f"grange.dev/job-name={name}")).items
                if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
            ]
            return job.status.phase == phase and len(found) == pods

        await cluster.until(there)

    def kinds(name: str) -> tuple[tuple[KindInfo[Any], str], ...]:
        return (POD, f"{name}-worker-2"), (SERVICE, name)

    cluster.server.troubled = True
    for name, backend in (("plain", "Grange"), ("budget", "PodDisruptionBudget")):
        await add(name, schedulingPolicy={"backend": backend})
        await reaches(name, "Running", 2)
        await change(name, {"replicaSpecs": {"worker": {"replicas": 3}}})
        await reaches(name, "Running", 3)
        release = {"metadata": {"labels": {"grange.dev/job-name": None}}}
        for kind, released in kinds(name):
            await client.patch(kind, released, "default", patch=release)
        await cluster.world.clock.sleep(2.0)
        adopt = {"metadata": {"labels": {"grange.dev/job-name": name}}}
        for kind, released in kinds(name):
            await client.patch(kind, released, "default", patch=adopt)
        await reaches(name, "Running", 3)
        await client.delete(POD, f"{name}-worker-0", "default")
        await reaches(name, "Running", 3)
        await change(name, {"runPolicy": {"suspend": True}})
        await reaches(name, "Suspended", 0)
    await add("short", activeDeadlineSeconds=5, ttlSecondsAfterFinished=5)

    async def expired() -> bool:
        names = [job.metadata.name for job in (await client.list(GANGJOB)).items]
        return "short" not in names

    await cluster.until(expired)


async def run_kubeflow_jobs(
    cluster: Cluster, kind: KindInfo[Any], field: str, container: str
) -> None:
    """A job loses a pod and labels, is suspended, and another expires."""
    client = cluster.client
    spec = template("web", 1)["spec"]
    spec = {**spec, "containers": [{**spec["containers"][0], "name": container, "image": "web"}]}

    async def add(name: str, **policy: Any) -> None:
        roles = {"Worker": {"replicas": 1, "template": {"spec": spec}}}
        wanted = {field: roles, "runPolicy": policy}
        await client.create(kind, {"metadata": {"name": name}, "spec": wanted}, "default")

    async def running(name: str, count: int) -> None:
        async def there() -> bool:
            pods = [
                pod
                for pod in (await client.list(POD)).items
                if pod.metadata.name.startswith(name) and pod.status.phase == "Running"
            ]
            return len([pod for pod in pods if not pod.metadata.deletion_timestamp]) == count

        await cluster.until(there)

    cluster.server.troubled = True
    await add("flow")
    await running("flow", 1)
    for label in (None, "flow"):
        patch = {"metadata": {"labels": {"training.kubeflow.org/job-name": label}}}
        await client.patch(POD, "flow-worker-0", "default", patch=patch)
        await client.patch(SERVICE, "flow-worker-0", "default", patch=patch)
        await cluster.world.clock.sleep(2.0)
    await client.delete(POD, "flow-worker-0", "default")
    await cluster.world.clock.sleep(5.0)
    await running("flow", 1)
    suspend = {"spec": {"runPolicy": {"suspend": True}}}
    await client.patch(kind, "flow", "default", patch=suspend)
    await running("flow", 0)
    await add("short", activeDeadlineSeconds=5, ttlSecondsAfterFinished=5)

    async def expired() -> bool:
        return [job.metadata.name for job in (await client.list(kind)).items] == ["flow"]

    await cluster.until(expired)


async def pool_of(cluster: Cluster, count: int) -> None:
    """Some nodes are machines of the pool ``p``."""
    for node in (await cluster.client.list(NODE)).items[:count]:
        patch = {"metadata": {"labels": {"pool": "p"}}}
        await cluster.client.patch(NODE, node.metadata.name, patch=patch)


async def lease_machines(cluster: Cluster) -> None:
    """A lease is granted, expires with its pod, and another one waits and is deleted."""
    client = cluster.client
    await pool_of(cluster, 1)
    await client.create(LEASEPOLICY, {"metadata": {"name": "default"}, "spec": {}})
    cluster.server.troubled = True

    async def add(name: str, **spec: Any) -> str:
        spec["machines"] = [{"pool": "p", "count": 1}]
        document: Document = {"metadata": {"name": name}, "spec": spec}
        return (await client.create(MACHINELEASE, document, "default")).metadata.uid

    async def reaches(name: str, phase: str) -> bool:
        return (await client.get(MACHINELEASE, name, "default")).status.phase == phase

    uid = await add("first", ttlSeconds=20)
    await cluster.until(partial(reaches, "first", "Granted"))
    await add("second")
    taint = {"key": MACHINE_LEASE, "operator": "Exists"}
    document = builders.pod_document("mine", labels={MACHINE_LEASE: uid}, tolerations=[taint])
    document["spec"] |= {"nodeSelector": {MACHINE_LEASE: uid}}
    document["spec"]["containers"][0]["command"] = ["serve"]
    await client.create(POD, document, "default")
    await cluster.until(partial(reaches, "first", "Expired"))
    await cluster.gone(POD)
    await cluster.until(partial(reaches, "second", "Granted"))
    for name in ("first", "second"):
        await client.delete(MACHINELEASE, name, "default")
    await cluster.gone(MACHINELEASE)


async def run_sessions(cluster: Cluster) -> None:
    """A session waits, changes its priority, runs, is cancelled, expires; another is deleted at work."""
    client = cluster.client
    cluster.server.troubled = True
    await pool_of(cluster, 2)
    rules = {"defaultPools": {"server": "p"}, "paused": True}
    await client.create(LEASEPOLICY, {"metadata": {"name": "default"}, "spec": rules})
    web = {"image": "web", "command": ["serve"]}
    spec = {"driver": web, "servers": [web], "ttlSecondsAfterFinished": 5}
    await client.create(TESTSESSION, {"metadata": {"name": "qps"}, "spec": spec}, "default")

    async def change(**fields: Any) -> None:
        await client.patch(TESTSESSION, "qps", "default", patch={"spec": fields})

    async def asked(priority: int) -> bool:
        found = (await client.list(MACHINELEASE, "default")).items
        return [lease.spec.priority for lease in found] == [priority]

    async def running(attempt: int, name: str = "qps") -> bool:
        status = (await client.get(TESTSESSION, name, "default")).status
        return (status.phase, status.attempt) == ("Running", attempt)

    await cluster.until(partial(asked, 0))
    await change(priority=7)
    await cluster.until(partial(asked, 7))
    await client.patch(LEASEPOLICY, "default", patch={"spec": {"paused": False}})
    await cluster.until(partial(running, 0))
    await client.delete(POD, "qps-server", "default")  # so that there is another attempt
    await cluster.until(partial(running, 1))
    await change(cancel="Collect")

    async def expired() -> bool:
        return not (await client.list(TESTSESSION)).items

    await cluster.until(expired)
    await client.create(TESTSESSION, {"metadata": {"name": "next"}, "spec": spec}, "default")
    await cluster.until(partial(running, 0, "next"))
    await client.delete(TESTSESSION, "next", "default")
    await cluster.gone(POD)


async def make_machines(cluster: Cluster) -> None:
    """A pod gets a machine of its pool and ends; the machine goes, and the pool."""
    client = cluster.client
    pool: Document = {"provider": "simulated", "mode": "Dedicated"}
    await client.create(NODEPOOL, {"metadata": {"name": "p"}, "spec": pool})
    document = builders.pod_document("mine", requests={"cpu": "1"})
    document["spec"] |= {"nodeSelector": {NODE_POOL_LABEL: "p"}}
    await client.create(POD, document, "default")
    cluster.server.troubled = True

    async def launched() -> bool:
        return any(one.status.instance_id for one in (await client.list(MACHINE)).items)

    async def bound() -> bool:
        return bool((await client.get(POD, "mine", "default")).spec.node_name)

    await cluster.until(launched)
    [machine] = (await client.list(MACHINE)).items
    await builders.create_node(client, machine.metadata.name)
    await cluster.until(bound)
    await client.delete(POD, "mine", "default", grace_period_s=0)
    await cluster.gone(MACHINE)
    await client.delete(NODEPOOL, "p")
    await cluster.gone(NODEPOOL)


Story = Callable[[Cluster], Awaitable[None]]
STORIES: Mapping[str, tuple[int, Story]] = {
    "replication": (MANY, replicate),
    "rollingupdate": (MANY, hand_over),
    "scheduler": (3, schedule),
    "audit": (3, expire_records),
    "gangjob": (3, run_jobs),
    "testsession": (3, run_sessions),
    "machinelease": (3, lease_machines),
    "machines": (3, make_machines),
    "tfjob": (
        3,
        partial(run_kubeflow_jobs, kind=TFJOB, field="tfReplicaSpecs", container="tensorflow"),
    ),
    "pytorchjob": (
        3,
        partial(
            run_kubeflow_jobs, kind=PYTORCHJOB, field="pytorchReplicaSpecs", container="pytorch"
        ),
    ),
}


@pytest.mark.parametrize("name", rbac.CONTROLLERS)
async def test_each_controller_uses_its_rights_and_asks_for_no_more(
    name: str, clock: LoopClock, rng: Stream, log: Logger
) -> None:
    nodes, story = STORIES[name]
    async with simulated(clock=LoopClock(EPOCH), rng=rng, log=log, limit_s=20_000) as world:
        cluster = Cluster(world, frozenset({name}))
        await cluster.populate(nodes)
        await story(cluster)
        await grow_old(cluster)
        server = cluster.server
        assert sorted({*server.wrongs}) == []
        assert all(kubelet.silenced for kubelet in cluster.kubelets), "plain Leases were judged by"
        unseen = granted(permission for permission in rbac.of({name}) if permission.unseen)
        unused = sorted(granted(rbac.of({name})) - server.used - unseen)
        assert unused == [], f"never used: {unused}"
        assert sorted(unseen & server.used) == [], "a story shows it after all"


async def test_all_of_them_together_ask_for_no_more(
    clock: LoopClock, rng: Stream, log: Logger
) -> None:
    """As the Deployment runs them."""
    async with simulated(clock=LoopClock(EPOCH), rng=rng, log=log) as world:
        cluster = Cluster(world, frozenset(rbac.CONTROLLERS))
        await cluster.populate(MANY)
        await hand_over(cluster)
        assert sorted({*cluster.server.wrongs}) == []
        assert await cluster.owners() <= {"one", "two"}
