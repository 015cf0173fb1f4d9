"""What 5,000 machines that only heartbeat cost: renewed Leases, written status, the node controller's looks.

The agents' own heartbeats and watches of their nodes, the API server over a SQLite store on a real
directory, and the controllers that watch nodes and Leases, all in one process; HTTP and TLS are not in
it. Each part of a round is made by all machines once and counted at its interval. Alone:
``python -m bench.heartbeats``.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import uvloop

from bench.jobs import quiet, server
from grange.agent.config import NodeConfig, Timing
from grange.agent.disk_monitor import DiskPressure
from grange.agent.heartbeat import Heartbeat
from grange.api.kinds import MACHINE, NODEPOOL
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.nodepool import DEDICATED
from grange.api.meta import Document
from grange.app import gc_tuning
from grange.base.clock import LoopClock
from grange.controllers.nodelifecycle.config import NodeLifecycleConfig
from grange.controllers.nodelifecycle.controller import NodeLifecycle
from grange.machines.controller.controller_context import NodeControllerContext
from grange.machines.controller.machine_events import MachineEvents
from grange.machines.controller.machine_heartbeats import MachineHeartbeats
from grange.machines.controller.machine_listers import MachineListers
from grange.machines.controller.metrics import MachineInstruments, instruments
from grange.machines.controller.node_controller_config import NodeControllerConfig
from grange.machines.controller.status_updater import StatusUpdater
from grange.reconcile.deps import Deps
from grange.reconcile.recorder import Recorder
from grange.sim.api_fixture import ApiFixture

MACHINES = 5_000
_PATIENCE_S = (
    3600.0  # the machines are made one after the other, and none is to be taken for silent
)
_AT_ONCE = 50  # as many as are due in a tenth of a second


class _Done(Exception):
    """A loop has had one turn."""


class _OneTurn(LoopClock):
    """Ends a loop where it would sleep until its next turn."""

    async def sleep(self, seconds: float) -> None:
        raise _Done


async def _turn(run: Callable[[], Awaitable[None]]) -> None:
    try:
        await run()
    except _Done:
        return


async def _round(turns: list[Callable[[], Awaitable[None]]]) -> float:
    """Processor seconds of a turn of each."""
    began = time.process_time()
    for at in range(0, len(turns), _AT_ONCE):
        await asyncio.gather(*(_turn(turn) for turn in turns[at : at + _AT_ONCE]))
    return time.process_time() - began


def _heartbeats(deps: Deps, recorder: Recorder, timing: Timing) -> list[Heartbeat]:
    config = NodeConfig("", {"cpu": "4", "memory": "4Gi", "pods": "110"}, timing=timing)
    return [
        Heartbeat(
            replace(deps, clock=_OneTurn()),
            replace(config, name=f"m{at}"),
            recorder=recorder,
            has_synced_status=lambda: True,
            disk=lambda: DiskPressure(is_pressure=False, message="enough"),
        )
        for at in range(MACHINES)
    ]


async def _machines(fixture: ApiFixture) -> None:
    """A pool, and a record of an available machine for each node."""
    spec = {"provider": "none", "mode": DEDICATED}
    await fixture.client.create(NODEPOOL, {"metadata": {"name": "p"}, "spec": spec})
    for at in range(MACHINES):
        name = f"m{at}"
        meta: Document = {"name": name, "labels": {NODE_POOL_LABEL: "p"}}
        order = {"pool": "p", "provider": "none", "instanceType": "small"}
        await fixture.client.create(MACHINE, {"metadata": meta, "spec": order})
        for phase in ("Creating", "Created", "Available"):
            patch = {"status": {"phase": phase}}
            await fixture.client.patch(MACHINE, name, patch=patch, subresource="status")


async def heartbeats() -> dict[str, float]:
    """Shares of a core, in percent."""
    async with server() as fixture:
        deps, clock = fixture.new_deps(), fixture.clock
        recorder = Recorder(
            deps.client,
            "bench",
            clock=clock,
            rng=fixture.rng,
            log=fixture.log,
            metrics=fixture.registry,
        )
        listers = MachineListers(
            deps,
            on_machine=lambda name: None,
            on_pool=lambda name: None,
            on_unschedulable=lambda: None,
        )
        config = NodeControllerConfig()
        context = NodeControllerContext(
            deps.client,
            listers,
            StatusUpdater(deps.client, clock),
            MachineEvents(recorder),
            config,
            _OneTurn(),
            fixture.log,
            MachineInstruments(instruments(fixture.registry)),
        )

        async def terminate(name: str) -> bool:
            raise AssertionError(f"machine {name} is not silent")

        looks = MachineHeartbeats(context, terminate, lambda name: None)
        fixture.start(NodeLifecycle(deps, NodeLifecycleConfig(grace_s=_PATIENCE_S)))
        fixture.nursery.start(deps.informers.run())
        usual, timing = Timing(), Timing(status_heartbeat_s=0.0)
        agents = _heartbeats(deps, recorder, usual)
        for agent in agents:
            await agent.register()
        await _machines(fixture)
        await quiet(fixture)
        gc_tuning.settle()
        renewed_s = await _round([agent.run for agent in agents])
        written_s = await _round([agent.run for agent in _heartbeats(deps, recorder, timing)])
        await quiet(fixture)
        looks_s = await _round([looks.beat, looks.reap])
    status_s = max(0.0, written_s - renewed_s)
    renewals = 100 * renewed_s / usual.heartbeat_s
    status = 100 * status_s / usual.status_heartbeat_s
    judged = 100 * looks_s / config.heartbeat_interval_s
    return {
        "heartbeats_percent": renewals + status + judged,
        "renewals_percent": renewals,
        "status_percent": status,
        "looks_percent": judged,
        "renewal_us": 1e6 * renewed_s / MACHINES,
    }


def measure() -> dict[str, float]:
    """Shares of a core, in percent, and microseconds of a heartbeat."""
    gc_tuning.tune()  # as a server does
    return uvloop.run(heartbeats())


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
