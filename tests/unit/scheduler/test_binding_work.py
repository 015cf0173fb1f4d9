"""What binding costs, in counts: they hold on every machine, and a step too many shows at once."""

from pathlib import Path

from grange.api.bindings import PATH
from grange.api.http import ADMIN, Request, Response
from grange.api.kinds import BUILT_IN, EVENT, POD
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes

PODS, GROUP = 256, 64


async def test_bound_pod_costs_one_of_each_and_a_share_of_a_request(
    clock: Clock, rng: Stream, log: Logger, tmp_path: Path
) -> None:
    store = await SQLiteStore.open(tmp_path, log=log, lanes=Lanes.inline())
    application = Application(store, Scheme(BUILT_IN), clock=clock, rng=rng, log=log)
    await application.bootstrap()
    writes: list[str] = []

    async def handle(request: Request) -> Response:
        if request.method != "GET":
            writes.append(request.path)
        return await application.handle(request)

    client = Client(InProcess(handle, ADMIN), clock=clock)
    for number in range(10):
        await builders.create_node(client, f"n{number}")
    for number in range(PODS):
        document = builders.pod_document(f"p{number}", requests={"cpu": "1m"})
        await client.create(POD, document, "default")
    writes.clear()
    work, disk = application.registry.work, store.statistics()
    before = (work.decodes, work.encodes, work.event_encodes, work.evaluations)

    informers = InformerFactory(client, clock=clock, rng=rng, log=log)
    scheduler = Scheduler(
        Deps(client, informers, clock, rng, log, registry()),
        SchedulerConfig(binding_group=GROUP, slice_s=60.0),
    )
    async with Nursery() as nursery:
        nursery.start(informers.run())
        nursery.start(scheduler.run())
        await clock.sleep(30.0)
        nursery.cancel()

    assert all(pod.spec.node_name for pod in (await client.list(POD)).items)
    events = len((await client.list(EVENT)).items)  # each is a request and its own write
    assert events == PODS
    assert [path for path in writes if "/events" not in path] == [PATH] * (PODS // GROUP)
    counted = (work.decodes, work.encodes, work.event_encodes, work.evaluations)
    decodes, encodes, lines, evaluations = (
        now - then for now, then in zip(counted, before, strict=True)
    )
    assert (decodes - events, encodes - events) == (PODS, PODS)
    assert (lines, evaluations) == (PODS, 0)  # one informer, notified of each pod once
    seen = informers.informer(POD).statistics()
    assert (seen.lists, seen.events, seen.dropped, seen.handler_errors) == (1, PODS, 0, 0)
    now = store.statistics()
    assert now.writes - disk.writes == PODS + events
    assert now.statements - disk.statements == now.batches - disk.batches
    assert now.statements - disk.statements - events <= PODS // GROUP
    assert scheduler.cycle.decisions == PODS
    await store.close()
