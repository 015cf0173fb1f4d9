"""How long an explanation holds up the scheduler: 5,000 nodes, 50,000 pods, nothing else to do.

Alone: ``python -m bench.why``.
"""

import json
import time
from typing import Any

from grange.api.kinds.pod import Pod
from grange.app import gc_tuning
from grange.base.clock import LoopClock
from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.engine import reference
from grange.scheduler.explain.attempt_history import AttemptHistory
from grange.scheduler.explain.explainer import PodExplainer
from grange.scheduler.framework import CycleState, Profile
from grange.scheduler.nominator import Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

NODES = 5_000
PODS_EACH = 10
TIMES = 5
HOST = "kubernetes.io/hostname"
MUST = "requiredDuringSchedulingIgnoredDuringExecution"


class Scene:
    """A full cluster and an explainer over it."""

    def __init__(self, nodes: int) -> None:
        self._profile = Profile(plugins.DEFAULT)
        cache, self._queue, self._history = (
            Cache(),
            SchedulingQueue(self._profile),
            AttemptHistory(),
        )
        self._snapshot = NodeInfoSnapshot()
        for number in range(nodes):
            taints = [{"key": "dedicated", "effect": "NoSchedule"}] if number % 7 == 0 else []
            node = builders.node(f"n{number}", zone=f"z{number % 3}", taints=taints)
            cache.add_node(node)
            for each in range(PODS_EACH):
                labels = {"app": f"a{each}"}
                requests = {"cpu": "300m"}
                name, on = f"p{number}-{each}", f"n{number}"
                cache.add_pod(builders.pod(name, nodeName=on, requests=requests, labels=labels))
        cache.update_node_info_snapshot(self._snapshot)
        self._explainer = PodExplainer(
            lambda _: self._profile,
            cache,
            self._queue,
            self._snapshot,
            self._history,
            clock=LoopClock(),
            nominator=Nominator(),
        )

    def tried(self, name: str, **options: Any) -> Pod:
        """A pod that was tried in vain, as every waiting pod was."""
        pod = builders.pod(name, **options)
        info = PodInfo.of(pod)
        self._profile.sign(info)
        self._queue.add(info, 0.0)
        queued = self._queue.pop(0.0)
        found = reference.decide(self._profile, CycleState(), info, self._snapshot)
        if queued is None or not isinstance(found, Diagnosis):
            raise RuntimeError("the pod should fit nowhere")
        self._history.rejected(info.uid, found, 0.0)
        self._queue.mark_unschedulable(queued, found.plugins, 0.0)
        self._explainer.explain(pod)  # the first of a class counts pods, as its first try does
        return pod

    def seconds(self, pod: Pod) -> float:
        """The best of some times."""
        times = []
        for _ in range(TIMES):
            started = time.perf_counter()
            self._explainer.explain(pod)
            times.append(time.perf_counter() - started)
        return min(times)


def measure(nodes: int = NODES) -> dict[str, float]:
    """Milliseconds a question."""
    gc_tuning.tune()
    scene = Scene(nodes)
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "a1"}}}
    apart = {"podAntiAffinity": {MUST: [term]}}
    big = scene.tried("big", requests={"cpu": "2"})
    lonely = scene.tried("lonely", requests={"cpu": "500m"}, affinity=apart)
    placed = builders.pod("p5-1", nodeName="n5", requests={"cpu": "300m"}, labels={"app": "a1"})
    return {
        "why_cpu_ms": 1000 * scene.seconds(big),
        "why_apart_ms": 1000 * scene.seconds(lonely),
        "why_placed_ms": 1000 * scene.seconds(placed),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
