"""No object in the store ends a loop: whatever its schema accepts, a restart survives."""

from hypothesis import HealthCheck, given, settings
from tests.unit.app.schemas import NODE_NAME, collections

from grange.agent.config import NodeConfig
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.service import NodeAgent
from grange.api.http import ADMIN
from grange.api.kinds import BUILT_IN, POD, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.scheme import AnyKind, Scheme
from grange.apiserver import storage
from grange.apiserver.application import Application
from grange.app.manager import Manager
from grange.app.runnable import Runnable
from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.supervision import services
from grange.base.tasks import Nursery, supervise
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.informer import InformerFactory
from grange.sim.pytest_plugin import Records
from grange.store.memory import MemoryStore

CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}
QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,
]


async def write(store: MemoryStore, info: AnyKind, document: Document) -> None:
    """As an earlier server may have stored it: defaulted, and by its rules of then."""
    meta = document["metadata"]
    key = storage.key(info, meta.get("namespace", ""), meta["name"])
    await store.put(key, storage.encode(info, document, storage.Work()))


class Restarted:
    """Every loop of ``grange up``, on a store that was filled by an earlier life."""

    def __init__(self, store: MemoryStore, clock: Clock, log: Logger) -> None:
        self.clock, self.log, self.rng = clock, log, Stream(1)
        self.metrics = metrics.registry()
        self.application = Application(
            store, Scheme(BUILT_IN), clock=clock, rng=self.rng, log=log, metrics=self.metrics
        )
        self.client = Client(InProcess(self.application.handle, ADMIN), clock=clock)

    async def run(self) -> None:
        informers = InformerFactory(
            self.client, clock=self.clock, rng=self.rng, log=self.log, metrics=self.metrics
        )

        def deps(role: str) -> Deps:
            rng, log = self.rng.fork(role), self.log.bind(role=role)
            return Deps(self.client, informers, self.clock, rng, log, self.metrics)

        runtime = FakeRuntime(FakeMachine({"serve": Script()}), self.clock)
        agent = NodeAgent(deps("agent"), NodeConfig(name=NODE_NAME, capacity=CAPACITY), runtime)
        manager = Manager(FarmConfig(member="up", sole_bearer=True, gather_s=0.0), deps)
        roles = [
            Runnable("apiserver", self.application.run),
            Runnable("agent", agent.run),
            *manager.runnables(),
        ]
        async with Nursery("loops") as nursery:
            for role in roles:
                states = services(self.metrics)
                run = supervise(
                    role.name, role.run, clock=self.clock, log=self.log, services=states
                )
                nursery.start(run, name=role.name)
            nursery.start(informers.run(), name="informers")

    async def works(self, limit_s: float) -> bool:
        """Whether a new service comes up: through controller, scheduler and agent."""
        container = {"name": "main", "command": ["serve"]}
        # A class that any object may be the default of could forbid the pods.
        pod = {"priorityClassName": "system-cluster-critical", "containers": [container]}
        template = {"spec": pod}
        spec = {"replicas": 1, "nodeSelector": {}, "template": template}
        document = {"metadata": {"name": "canary"}, "spec": spec}
        await self.client.create(REPLICATIONCONTROLLER, document, "default")
        deadline = self.clock.monotonic() + limit_s
        while self.clock.monotonic() < deadline:
            pods = await self.client.list(POD, "default")
            mine = [pod for pod in pods.items if pod.metadata.name.startswith("canary")]
            if any(pod.status.phase == "Running" for pod in mine):
                return True
            await self.clock.sleep(1)
        return False


@settings(max_examples=15, deadline=None, suppress_health_check=QUIET)
@given(collections())
async def test_every_loop_survives_a_restart_on_any_objects(
    clock: Clock, log: Logger, records: Records, present: list[tuple[AnyKind, Document]]
) -> None:
    before, store = len(records), MemoryStore()
    for info, document in present:
        await write(store, info, document)
    there = Restarted(store, clock, log)
    await there.application.bootstrap()
    async with Nursery("test") as nursery:
        nursery.start(there.run(), name="loops")
        await clock.sleep(130.0)  # two sweeps of the expiry, and the node is ready
        working = await there.works(120.0)
        nursery.cancel()
    new = records[before:]
    assert [facts for event, facts in new if event == "service crashed"] == []
    assert [facts for event, facts in new if event == "request failed"] == []
    errors = [facts for event, facts in new if event == "reconciled" and "trace" in facts]
    assert errors == []
    assert working
