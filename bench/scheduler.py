"""Pods decided a second by the engine alone; ``binding`` measures them end to end.

The shapes are those of kube-scheduler's own benchmark: nodes of 4 CPUs, 32Gi and 110 pods in three
zones, pods of 100m and 500Mi.

Alone: ``python -m bench.scheduler``.
"""

import json
import time

from grange.api.meta import Document
from grange.app import gc_tuning
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.framework import Profile
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne
from grange.sim import builders

NODES = 5_000


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
    cycle = Cycle(profile, cache)
    loop = ScheduleOne(cycle, queue)
    cache.update_node_info_snapshot(cycle.snapshot)
    started = time.perf_counter()
    while (outcome := loop.schedule_one(0.0)) is not None:
        assert isinstance(outcome, Assumed)
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


def measure() -> dict[str, float]:
    gc_tuning.tune()  # as a server does
    return {
        "engine_basic_per_s": engine(10_000, 1),
        "engine_ten_shapes_per_s": engine(10_000, 10),
        "engine_spread_per_s": engine(5_000, 1, spec=SPREAD, before=5_000),
        "engine_spread_soft_per_s": engine(5_000, 1, spec=SPREAD_SOFT, before=5_000),
        "engine_apart_per_s": engine(4_000, 1, spec=APART_BY_HOST, before=1_000),
        "engine_near_per_s": engine(5_000, 1, spec=NEAR_BY_ZONE, before=5_000),
        "engine_full_pass_per_s": engine(1_000, 1, spec=SPREAD_HOSTS, before=5_000),
        "engine_all_different_per_s": engine(1_000, 1_000),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
