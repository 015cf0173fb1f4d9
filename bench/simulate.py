"""Pods a second through ``grange simulate``: a GPU cluster of 1,200 nodes that is filled to 60 %.

The trace is that of ``examples/simulate``, its nodes fifty times.

Alone: ``python -m bench.simulate``.
"""

import json
import time
from pathlib import Path

import msgspec

from grange.api.kinds.node import Node
from grange.app.simulate import openb, policies
from grange.app.simulate.replay import Replay, ReplayRun, by_load, inflation
from grange.app.simulate.trace import Trace, kinds
from grange.base.log import Logger
from grange.placement.fragmentation import TargetWorkload

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "simulate"
COPIES = 50
LOAD = 0.6


def copied(node: Node, copy: int) -> Node:
    """The node under another name."""
    meta = msgspec.structs.replace(node.metadata, name=f"{node.metadata.name}-{copy}")
    return msgspec.structs.replace(node, metadata=meta)


def pods_per_s(trace: Trace, policy: str) -> float:
    """How many pods a second one policy places."""
    workload = kinds([item.pod for item in trace.arrivals])
    configured = policies.profile(policy, workload, 1)
    replay = Replay(trace, configured, TargetWorkload(workload), Logger("bench"))
    run = ReplayRun(policy, 1, replay.resource)
    started = time.perf_counter()
    replay.play(inflation(trace, 1, LOAD), run, by_load())
    elapsed = time.perf_counter() - started
    return run.pods / elapsed


def measure() -> dict[str, float]:
    """The figures of this scenario."""
    nodes = openb.read_nodes(EXAMPLE / "nodes.csv")
    many = tuple(copied(node, copy) for copy in range(COPIES) for node in nodes)
    trace = Trace(many, openb.read_pods(EXAMPLE / "pods.csv"))
    return {
        "simulated_best_fit_per_s": pods_per_s(trace, "best-fit"),
        "simulated_fgd_per_s": pods_per_s(trace, "fgd"),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
