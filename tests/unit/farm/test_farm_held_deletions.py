"""A service that is scaled down by more than the budget: held, reported, and let go on by a word."""

from tests.support.farm_fixtures import NAMESPACE, service
from tests.support.memory_sink import MemorySink

from grange.api import conditions
from grange.api.farm_protocol import RESUME_ANNOTATION, RESUME_CONFIGMAP
from grange.api.kinds import AUDITRECORD, CONFIGMAP, POD, REPLICATIONCONTROLLER
from grange.api.meta import Condition
from grange.base.clock import Clock
from grange.base.tasks import Nursery
from grange.controllers.audit.controller import AuditConfig, AuditController
from grange.controllers.replication.controller import ReplicationService
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuardConfig, Trigger
from grange.reconcile.farm.member import Member
from grange.sim.builders import create_node
from grange.sim.world import World


class Process:
    """A member that may lose five pods a minute."""

    def __init__(self, deps: Deps, sink: MemorySink) -> None:
        self.member = Member(deps, FarmConfig(member="a"), alert_sink=sink)
        budget = DeletionGuardConfig(deletions=5, deletion_share=0.0)
        farm = self.member.farm("replication", REPLICATIONCONTROLLER, deletion_guard=budget)
        service = ReplicationService(farm.deps)
        farm.attach(service.loop)
        self.service: ReplicationService | AuditController = service

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            nursery.start(self.member.run())
            nursery.start(self.service.run())


async def scale(world: World, replicas: int) -> None:
    patch = {"spec": {"replicas": replicas}}
    await world.client.patch(REPLICATIONCONTROLLER, "web", NAMESPACE, patch=patch)


async def reconciled(world: World) -> Condition:
    found = await world.client.get(REPLICATIONCONTROLLER, "web", NAMESPACE)
    reported = conditions.find(found.status.conditions, "Reconciled")
    assert reported is not None
    return reported


async def test_more_than_the_budget_waits_for_a_word(world: World, clock: Clock) -> None:
    memory = MemorySink()
    await create_node(world.client, "n")
    world.add("a", lambda deps: Process(deps, memory))
    document = service("web", 12)
    document["spec"]["placement"] = "Packed"
    await world.client.create(REPLICATIONCONTROLLER, document)
    await clock.sleep(90)
    assert len((await world.client.list(POD)).items) == 12
    assert memory.history == []

    await scale(world, 1)
    await clock.sleep(30)
    left = len((await world.client.list(POD)).items)
    assert left == 12 - 5
    reported = await reconciled(world)
    assert (reported.status, reported.reason) == ("False", "DeletionsHeld")
    assert "grange farm resume" in reported.message
    assert [alert.reason for alert in memory.active] == [Trigger.TOO_MANY]

    await scale(world, 9)
    await clock.sleep(30)
    assert len((await world.client.list(POD)).items) == 9, "what makes is never held"

    await scale(world, 1)
    word = {"name": RESUME_CONFIGMAP, "annotations": {RESUME_ANNOTATION: "one"}}
    await world.client.create(CONFIGMAP, {"metadata": word}, "kube-system")
    await clock.sleep(90)
    assert len((await world.client.list(POD)).items) == 1
    assert (await reconciled(world)).reason == "ReplicasReady"
    assert memory.active == []


class Keeper(Process):
    """A member with the usual budget that keeps two records of each controller."""

    def __init__(self, deps: Deps, sink: MemorySink) -> None:
        self.member = Member(deps, FarmConfig(member="a"), alert_sink=sink)
        farm = self.member.farm("replication", REPLICATIONCONTROLLER)
        self.service = AuditController(farm.deps, AuditConfig(keep=2, sweep_s=60.0))


async def test_keeping_the_audit_within_its_bounds_raises_no_alert(
    world: World, clock: Clock
) -> None:
    """However many records are due at once: their retention is no reason to hold any deletion."""
    memory = MemorySink()
    most = DeletionGuardConfig().deletions
    for number in range(most + 102):
        spec = {"event": "MembershipChanged", "controller": "web", "controllerUid": "u"}
        document = {"metadata": {"name": f"r{number}"}, "spec": spec}
        await world.client.create(AUDITRECORD, document, NAMESPACE)
    world.add("a", lambda deps: Keeper(deps, memory))
    await clock.sleep(240)
    assert len((await world.client.list(AUDITRECORD)).items) == 2
    assert memory.history == []
