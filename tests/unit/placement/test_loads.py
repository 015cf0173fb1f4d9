"""Loads: equal ones are one object, and what they remember of each other is what they would find."""

from hypothesis import given, strategies as st

from grange.api import pod_requests
from grange.api.pod_requests import PodRequest, Resources
from grange.placement import loads
from grange.placement.loads import Load
from grange.placement.node_usage import IDLE, changed

OFFER = Resources(cpu_milli=4000, memory_bytes=2**34, pods=110)
REQUESTS = [
    PodRequest(Resources(cpu_milli=900, memory_bytes=2**20), 900, 2**20),
    PodRequest(Resources(cpu_milli=900), 900, pod_requests.DEFAULT_MEMORY_BYTES),
    PodRequest(Resources(memory_bytes=5, scalars={"example.com/gpu": 2}), 100, 5),
    PodRequest(Resources(scalars={"example.com/gpu": 2, "example.com/nic": 1}), 100, 7),
]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_a_load_is_what_its_pods_add_up_to(steps: list[tuple[int, bool]]) -> None:
    """Pods come and go in any order; what is looked up equals what is computed."""
    load, usage, there = loads.of(OFFER, IDLE), IDLE, list[PodRequest]()
    for pick, leaves in steps:
        if leaves and there:
            request = there.pop(pick % len(there))
            load, usage = load.changed(request, (), (), -1), changed(usage, request, (), -1)
        else:
            request = REQUESTS[pick]
            there.append(request)
            load, usage = load.changed(request, (), (), 1), changed(usage, request, (), 1)
        assert load.usage == usage
        assert load is loads.of(OFFER, usage)


def test_a_step_that_was_taken_before_is_looked_up() -> None:
    """Nothing is added up, nor looked for in the register, for a pod like one before."""
    empty = Load(OFFER, IDLE)  # in no register, so nothing else leads here
    full = empty.changed(REQUESTS[0], (), (), 1)
    assert empty.changed(REQUESTS[0], (), (), 1) is full
    back = full.changed(REQUESTS[0], (), (), -1)
    assert back is not empty
    assert full.changed(REQUESTS[0], (), (), -1) is back
    assert back.usage == IDLE
