"""Pods decided a second by the engine alone, and bound end to end through the API server.

The shapes are those of kube-scheduler's own benchmark: nodes of 4 CPUs, 32Gi and 110 pods in three
zones, pods of 100m and 500Mi. End to end, everything is one process: a SQLite store on a real
directory, the API server, the client that calls it, the informers, the scheduler. The clock runs
from the scheduler's start, with the pods waiting, until its informer has shown every pod bound.

Alone: ``python -m bench.scheduler``; ``--profile FILE`` writes a profile of one end-to-end run.
"""

import argparse
import cProfile
import json
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path

import uvloop

from grange.api.kinds import BUILT_IN, NODE, POD
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.api.wire import ADMIN
from grange.apiserver.application import Application
from grange.base.clock import LoopClock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Cycle, Placed
from grange.scheduler.framework import Profile
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.service import Scheduler, SchedulerConfig
from grange.sim import builders
from grange.store.sqlite import SQLiteStore

NODES = 5_000
LANES = 256


def shape(number: int, shapes: int) -> dict[str, str]:
    return {"cpu": f"{100 + number % shapes}m", "memory": "500Mi"}


# --- the engine alone --------------------------------------------------------------------------


def engine(
    pods: int, shapes: int, nodes: int = NODES, spec: Document | None = None, before: int = 0
) -> float:
    """Decisions a second: queue, snapshot, engine and cache, with nothing to wait for.

    Args:
        pods: how many are decided and timed.
        shapes: of so many different sizes.
        nodes: in three zones.
        spec: labels and rules of the pods.
        before: so many plain pods are there already.
    """
    profile = Profile(plugins.DEFAULT)
    cache, queue = Cache(), SchedulingQueue(profile)
    for number in range(nodes):
        cache.add_node(builders.node(f"node-{number}", zone=f"zone-{number % 3}"))
    for number in range(before):
        node = f"node-{number % nodes}"
        cache.add_pod(builders.pod(f"old-{number}", requests=shape(number, 1), nodeName=node))
    for number in range(pods):
        pod = builders.pod(f"pod-{number}", requests=shape(number, shapes), **(spec or {}))
        info = PodInfo.of(pod)
        profile.sign(info)
        queue.add(info, 0.0)
    cycle = Cycle(profile, cache, queue)
    cache.update_node_info_snapshot(cycle.snapshot)
    started = time.perf_counter()
    while (outcome := cycle.run_one(0.0)) is not None:
        assert isinstance(outcome, Placed)
    elapsed = time.perf_counter() - started
    assert cache.assumed_count == pods
    return pods / elapsed


ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
BLUE = {"colour": "blue"}
IS_BLUE = {"matchLabels": BLUE}


def _term(key: str) -> Document:
    terms = [{"topologyKey": key, "labelSelector": IS_BLUE}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}


def _spread(key: str, when: str) -> Document:
    constraint = {"maxSkew": 5, "topologyKey": key, "whenUnsatisfiable": when}
    return {
        "labels": BLUE,
        "topologySpreadConstraints": [{**constraint, "labelSelector": IS_BLUE}],
    }


SPREAD = _spread(ZONE, "DoNotSchedule")
SPREAD_SOFT = _spread(ZONE, "ScheduleAnyway")
SPREAD_HOSTS = _spread(HOST, "ScheduleAnyway")
APART_BY_HOST = {"labels": BLUE, "affinity": {"podAntiAffinity": _term(HOST)}}
NEAR_BY_ZONE = {"labels": BLUE, "affinity": {"podAffinity": _term(ZONE)}}


# --- end to end --------------------------------------------------------------------------------


async def spread(jobs: list[Coroutine[object, object, object]]) -> None:
    """Run all of them, so many at once."""
    waiting = iter(jobs)

    async def lane() -> None:
        for job in waiting:
            await job

    async with Nursery("load") as nursery:
        for _ in range(LANES):
            nursery.start(lane())


async def populate(client: Client, nodes: int, pods: int) -> None:
    async def node(number: int) -> None:
        document = builders.node_document(f"node-{number}", zone=f"zone-{number % 3}")
        status = document.pop("status")
        created = await client.create(NODE, document)
        patch = {"status": status}
        await client.patch(NODE, created.metadata.name, patch=patch, subresource="status")

    async def pod(number: int) -> None:
        document = builders.pod_document(f"pod-{number}", requests=shape(number, 1))
        await client.create(POD, document, "default")

    await spread([node(number) for number in range(nodes)])
    await spread([pod(number) for number in range(pods)])


async def bound(pods: int, nodes: int = NODES, profiler: cProfile.Profile | None = None) -> float:
    """Pods a second from the scheduler's start until every pod was seen bound."""
    clock, log, rng = LoopClock(), Logger("bench"), Stream(1)
    with tempfile.TemporaryDirectory(prefix="grange-bench-") as directory:
        store = await SQLiteStore.open(Path(directory), log=log)
        application = Application(store, Scheme(BUILT_IN), clock=clock, rng=rng, log=log)
        await application.bootstrap()
        client = Client(InProcess(application.handle, ADMIN), clock=clock)
        await populate(client, nodes, pods)
        if profiler is not None:
            profiler.enable()
        started = time.perf_counter()
        informers = InformerFactory(client, clock=clock, rng=rng, log=log)
        deps = Deps(client, informers, clock, rng, log, registry())
        scheduler = Scheduler(deps, SchedulerConfig())
        async with Nursery("bench") as nursery:
            nursery.start(informers.run())
            nursery.start(scheduler.run())
            while scheduler.cache.pod_count - scheduler.cache.assumed_count < pods:
                await clock.sleep(0.005)
            elapsed = time.perf_counter() - started
            if profiler is not None:
                profiler.disable()
            nursery.cancel()
        listing = await client.list(POD, "default")
        assert len(listing.items) == pods
        assert all(pod.spec.node_name for pod in listing.items)
        application.end_streams()
        await store.close()
    return pods / elapsed


def measure() -> dict[str, float]:
    return {
        "bound_per_s": uvloop.run(bound(3_000)),
        "bound_10k_per_s": uvloop.run(bound(10_000)),
        "engine_basic_per_s": engine(10_000, 1),
        "engine_ten_shapes_per_s": engine(10_000, 10),
        "engine_spread_per_s": engine(5_000, 1, spec=SPREAD, before=5_000),
        "engine_spread_soft_per_s": engine(5_000, 1, spec=SPREAD_SOFT, before=5_000),
        "engine_apart_per_s": engine(2_000, 1, spec=APART_BY_HOST, before=1_000),
        "engine_near_per_s": engine(5_000, 1, spec=NEAR_BY_ZONE, before=5_000),
        "engine_full_pass_per_s": engine(1_000, 1, spec=SPREAD_HOSTS, before=5_000),
        "engine_all_different_per_s": engine(1_000, 1_000),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--pods", type=int, default=3_000)
    options = parser.parse_args()
    if options.profile is None:
        print(json.dumps(measure(), indent=2))
        return
    profiler = cProfile.Profile()
    print(f"{uvloop.run(bound(options.pods, profiler=profiler)):,.0f} pods/s", file=sys.stderr)
    profiler.dump_stats(options.profile)


if __name__ == "__main__":
    main()
