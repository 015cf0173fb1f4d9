"""A bug that ends a decision half-way leaves nothing of it behind."""

from collections.abc import Callable

import pytest
from tests.support.gang_cluster import Bench
from tests.support.scheduler_cluster import pool_of

from grange.scheduler import plugins
from grange.scheduler.cycle import Unschedulable
from grange.scheduler.framework import (
    CycleState,
    Handle,
    Plugin,
    PostFilterResult,
)
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import SubQueue


def _careless(handle: Handle) -> Callable[[CycleState, PodInfo], PostFilterResult]:
    """Tries what would be if no pod ran, and breaks off before it puts any back."""

    def ask(state: CycleState, pod: PodInfo) -> PostFilterResult:
        for node in handle.snapshot.node_info_list:
            for info in [*node.pods]:
                handle.snapshot.take_out(info)
        handle.snapshot.assume_pod(pod.on("a"))
        raise RuntimeError("a bug")

    return ask


def test_trials_that_were_broken_off_are_taken_back() -> None:
    """The next pod does not get room that was only free in a trial; the first is not in flight."""
    base = [item for item in plugins.DEFAULT if item.post_filter is None]
    bench = Bench(Plugin("Careless", post_filter=_careless), base=base)
    bench.nodes("a", capacity={"cpu": "2", "memory": "4Gi", "pods": "10"})
    bench.pods("runs", requests={"cpu": "1"})
    bench.run()
    bench.pods("big", requests={"cpu": "2"})
    with pytest.raises(RuntimeError, match="a bug") as caught:
        bench.run()
    snapshot = bench.cycle.snapshot
    assert snapshot.assumed == ["uid-big"]
    outcome = bench.loop.handle_bug(caught.value, bench.now)
    assert isinstance(outcome, Unschedulable)
    assert outcome.diagnosis.error
    assert snapshot.assumed == []
    assert [info.uid for info in snapshot.node_info_map["a"].pods] == ["uid-runs"]
    assert snapshot.table.amounts("cpu", slice(1))[1].tolist() == [1000]
    assert pool_of(bench.queue, "uid-big") is SubQueue.ERROR_BACKOFF
    assert bench.queue.statistics().in_flight == 0
    bench.pods("next", requests={"cpu": "1"})
    assert bench.run() == {"runs": "a", "next": "a"}
    bench.check()
