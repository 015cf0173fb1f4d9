"""Kubelets of a cluster that is not ours, as a process: they run no programs and report pods truthfully.

Usage: ``python -m tests.support.foreign_kubelets KUBECONFIG NAME=POOL…``. What a container does is its first word:
``serve`` runs until it is terminated, ``pass`` and ``fail`` end after a moment, ``crash`` ends at once.
Leases are renewed as kubelets do, without what our agent writes in them.
"""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.kubernetes_stub import Kubelet

from grange.agent.config import NodeConfig
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime, Script
from grange.agent.service import NodeAgent
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.client import kubeconfig
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory

CAPACITY: Mapping[str, str] = {"cpu": "4", "memory": "8Gi", "pods": "110"}
SCRIPTS: Mapping[str, Script] = {
    "serve": Script(term_s=0.1),
    "pass": Script(duration_s=1.0),
    "fail": Script(duration_s=1.0, exit_code=3),
    "crash": Script(duration_s=0.0, exit_code=1),
}


async def run(path: Path, pools: Mapping[str, str]) -> None:
    """Run a kubelet for each node until cancelled.

    Args:
        path: kubeconfig of the cluster.
        pools: label ``pool`` of each node by its name.
    """
    clock, log, rng = LoopClock(), Logger("kubelets"), Stream.from_system()
    access = kubeconfig.load((path,))
    async with Nursery("kubelets") as nursery:
        for name, pool in pools.items():
            client, metrics = Client(Kubelet(HTTP.from_access(access))), registry()
            informers = InformerFactory(
                client, clock=clock, rng=rng.fork(f"informers {name}"), log=log, metrics=metrics
            )
            deps = Deps(client, informers, clock, rng.fork(name), log, metrics)
            config = NodeConfig(name=name, capacity=CAPACITY, labels={"pool": pool})
            agent = NodeAgent(deps, config, FakeRuntime(FakeMachine(SCRIPTS), clock))
            nursery.start(informers.run(), name=f"informers of {name}")
            nursery.start(supervise(name, agent.run, clock=clock, log=log), name=name)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), dict(word.split("=") for word in sys.argv[2:])))
