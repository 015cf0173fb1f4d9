"""What passes write, against a server that knows more than their caches."""

from tests.support.machine_world import machine_world

from grange.api.kinds.machine import MachineSpec
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.machine_events import MachineEvents
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.machine_writes import MachineWrites
from grange.machines.controller.metrics import MachineInstruments, instruments
from grange.machines.controller.status_updater import StatusUpdater
from grange.machines.scaling_plan import MachineStart
from grange.reconcile.recorder import Recorder


async def test_name_that_is_taken_is_known_from_then_on(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The next plan of the same instant would order the name again, and so on without an end."""
    async with machine_world(clock, rng, log, runs=False) as world:
        pool = await world.add_pool()
        await world.add_machine("p-1")
        deps = world.new_deps()
        listers = MachineListers(
            deps, on_machine=lambda _: None, on_pool=lambda _: None, on_unschedulable=lambda: None
        )
        recorder = Recorder(deps.client, "t", clock=clock, rng=rng, log=log, metrics=deps.metrics)
        context = NodeControllerContext(
            deps.client,
            listers,
            StatusUpdater(deps.client, clock),
            MachineEvents(recorder),
            world.config,
            clock,
            log,
            MachineInstruments(instruments(deps.metrics)),
        )
        start = MachineStart("p-1", MachineSpec(pool="p", provider="simulated"))
        assert listers.machine("p-1") is None
        assert await MachineWrites(context).order(pool, start) is None
        assert listers.machine("p-1") is not None
