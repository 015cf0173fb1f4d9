"""Waiting pods bound a second, end to end: decided, written to the store, watched back, confirmed.

Everything is one process, as in ``grange up``: a SQLite store on a real directory, the API server,
the client that calls it, the informers, the scheduler. The clock runs from the scheduler's start,
with the pods waiting, until its informer has shown every pod bound: that includes listing all nodes
and pods, 5,000 nodes however few the pods. Shapes and counts are those of kube-scheduler's own
benchmark (see ``scheduler``), except that 3,000 pods that keep apart wait instead of 2,000: as many as
in the measurement of kube-scheduler that ``figures`` compares with, which starts its clock likewise.

Alone: ``python -m bench.binding [CASE…]``; ``--profile FILE`` writes a profile of the case. To standard
error it prints the processor time a pod, which a busy machine disturbs less, and the pods a second
between the first and the last tenth of them, which leaves out what a start costs.
"""

import argparse
import cProfile
import gc
import json
import sys
import tempfile
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.scheduler import APART_BY_HOST, NEAR_BY_ZONE, NODES, SPREAD, SPREAD_HOSTS, shape
from grange.api.http import ADMIN
from grange.api.kinds import BUILT_IN, NODE, POD
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.app import gc_tuning
from grange.base.clock import LoopClock
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

LANES = 256


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        pods: how many wait.
        shapes: of so many different sizes.
        spec: labels and rules of theirs.
        before: so many plain pods are on the nodes already.
        nodes: in three zones.
    """

    pods: int
    shapes: int = 1
    spec: Document = field(default_factory=dict)
    before: int = 0
    nodes: int = NODES


CASES = {
    "bound_3k_per_s": Case(3_000),
    "bound_basic_per_s": Case(10_000),
    "bound_ten_shapes_per_s": Case(10_000, shapes=10),
    "bound_spread_per_s": Case(5_000, spec=SPREAD, before=5_000),
    "bound_apart_per_s": Case(3_000, spec=APART_BY_HOST, before=1_000),
    "bound_near_per_s": Case(5_000, spec=NEAR_BY_ZONE, before=5_000),
    "bound_full_pass_per_s": Case(3_000, spec=SPREAD_HOSTS, before=5_000),
}


async def at_once(jobs: Sequence[Coroutine[object, object, object]]) -> None:
    """Run all of them, so many at a time."""
    waiting = iter(jobs)

    async def lane() -> None:
        for job in waiting:
            await job

    async with Nursery("load") as nursery:
        for _ in range(LANES):
            nursery.start(lane())


async def populate(client: Client, case: Case) -> None:
    """Nodes, the pods that are on them, and the pods that wait."""

    async def node(number: int) -> None:
        document = builders.node_document(f"node-{number}", zone=f"zone-{number % 3}")
        status = document.pop("status")
        created = await client.create(NODE, document)
        patch = {"status": status}
        await client.patch(NODE, created.metadata.name, patch=patch, subresource="status")

    async def pod(name: str, number: int, **options: Any) -> None:
        document = builders.pod_document(name, requests=shape(number, case.shapes), **options)
        await client.create(POD, document, "default")

    await at_once([node(number) for number in range(case.nodes)])
    old = [
        pod(f"old-{number}", 0, nodeName=f"node-{number % case.nodes}")
        for number in range(case.before)
    ]
    await at_once(old)
    await at_once([pod(f"pod-{number}", number, **case.spec) for number in range(case.pods)])


async def bound(case: Case, profiler: cProfile.Profile | None = None) -> float:
    """Pods a second from the scheduler's start until every pod was seen bound."""
    clock, log, rng = LoopClock(), Logger("bench"), Stream(1)
    wanted = case.pods + case.before
    seen: list[tuple[int, float]] = []  # so many bound, and when
    gc.collect()  # what the case before left is not this one's to clear away
    with tempfile.TemporaryDirectory(prefix="grange-bench-") as directory:
        store = await SQLiteStore.open(Path(directory), log=log)
        application = Application(store, Scheme(BUILT_IN), clock=clock, rng=rng, log=log)
        await application.bootstrap()
        client = Client(InProcess(application.handle, ADMIN), clock=clock)
        await populate(client, case)
        if profiler is not None:
            profiler.enable()
        started, worked = time.perf_counter(), time.process_time()
        informers = InformerFactory(client, clock=clock, rng=rng, log=log)
        deps = Deps(client, informers, clock, rng, log, registry())
        scheduler = Scheduler(deps, SchedulerConfig())
        async with Nursery("bench") as nursery:
            nursery.start(informers.run())
            nursery.start(scheduler.run())
            while (known := scheduler.cache.pod_count - scheduler.cache.assumed_count) < wanted:
                seen.append((known - case.before, time.perf_counter()))
                await clock.sleep(0.005)
            seen.append((case.pods, time.perf_counter()))
            elapsed, worked = time.perf_counter() - started, time.process_time() - worked
            if profiler is not None:
                profiler.disable()
            nursery.cancel()
        listing = await client.list(POD, "default")
        assert len(listing.items) == wanted
        assert all(pod.spec.node_name for pod in listing.items)
        application.end_streams()
        await store.close()
    print(
        f"{worked / case.pods * 1e6:.0f} us of processor time a pod, "
        f"{steady(seen, case.pods):.0f} /s between the 10th and the 90th percentile",
        file=sys.stderr,
    )
    return case.pods / elapsed


def steady(seen: list[tuple[int, float]], pods: int) -> float:
    """Pods a second between the first and the last tenth."""
    first = next(item for item in seen if item[0] >= pods / 10)
    last = next(item for item in seen if item[0] >= pods * 9 / 10)
    return (last[0] - first[0]) / max(last[1] - first[1], 0.001)


def measure() -> dict[str, float]:
    """All cases."""
    gc_tuning.tune()
    return {name: uvloop.run(bound(case)) for name, case in CASES.items()}


def main() -> None:
    """Some cases, or a profile of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--profile", type=Path)
    options = parser.parse_args()
    gc_tuning.tune()
    for name in options.cases or CASES:
        profiler = cProfile.Profile() if options.profile is not None else None
        print(json.dumps({name: round(uvloop.run(bound(CASES[name], profiler)))}), flush=True)
        if profiler is not None:
            profiler.dump_stats(options.profile)


if __name__ == "__main__":
    main()
