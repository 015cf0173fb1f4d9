"""Requests: the accounting rules of spec/scheduling.md §2.5."""

from typing import Any

import msgspec
from hypothesis import given, settings, strategies as st

from grange.api import pod_requests
from grange.api.kinds.pod import Pod, PodSpec
from grange.api.pod_requests import Resources, effective_spec, pod_request, spec_request
from grange.placement.node_usage import IDLE, changed, charged
from grange.placement.ports_and_disks import host_ports

MIB = 2**20


def spec(**fields: object) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


def container(name: str, asks: dict[str, object] | None = None, **more: object) -> object:
    body: dict[str, object] = {"name": name, **more}
    if asks is not None:
        body["resources"] = {"requests": asks}
    return body


def test_check_112_sidecars_run_beside_later_init_containers() -> None:
    """Init A 2, sidecar S 1, init B 3, containers 1+1: the peak is B next to S, so 4."""
    need = pod_request(
        spec(
            initContainers=[
                container("a", {"cpu": 2}),
                container("s", {"cpu": 1}, restartPolicy="Always"),
                container("b", {"cpu": 3}),
            ],
            containers=[container("x", {"cpu": 1}), container("y", {"cpu": 1})],
        )
    )
    assert need.resources.cpu_milli == 4000


def test_check_112_silent_containers_default_only_in_scores() -> None:
    """Three silent containers need nothing to fit and 300m/600Mi to score."""
    need = pod_request(spec(containers=[container("a"), container("b"), container("c")]))
    assert need.resources == Resources()
    assert (need.nonzero_cpu_milli, need.nonzero_memory_bytes) == (300, 600 * MIB)


def test_check_112_an_explicit_zero_stays_zero() -> None:
    need = pod_request(spec(containers=[container("a", {"cpu": 0, "memory": "0"})]))
    assert (need.nonzero_cpu_milli, need.nonzero_memory_bytes) == (0, 0)


def test_check_112_overhead_is_added_once() -> None:
    need = pod_request(
        spec(
            containers=[container("a", {"cpu": "100m"}), container("b", {"cpu": "100m"})],
            overhead={"cpu": "50m", "memory": "1Mi"},
        )
    )
    assert need.resources.cpu_milli == 250
    assert need.resources.memory_bytes == MIB
    assert need.nonzero_memory_bytes == 401 * MIB


def test_pod_level_requests_override_the_containers() -> None:
    need = pod_request(
        spec(
            containers=[container("a", {"cpu": "100m"}), container("b")],
            resources={"requests": {"cpu": "3"}},
        )
    )
    assert need.resources.cpu_milli == 3000
    assert need.nonzero_cpu_milli == 3000
    # Memory is named at neither level, so the default counts for each container.
    assert need.nonzero_memory_bytes == 400 * MIB


def test_amounts_round_up() -> None:
    need = pod_request(spec(containers=[container("a", {"cpu": "1u", "memory": "100m"})]))
    assert (need.resources.cpu_milli, need.resources.memory_bytes) == (1, 1)


def test_fractions_of_containers_are_summed_before_rounding() -> None:
    """Quantities add exactly, and the sum rounds up once (kube-scheduler's PodRequests)."""
    half: dict[str, object] = {"cpu": "500u", "memory": "500m", "example.com/gpu": "500m"}
    need = pod_request(
        spec(
            containers=[container("a", half), container("b", half)],
            initContainers=[container("s", half, restartPolicy="Always")],
            overhead={"memory": "1500m"},
        )
    )
    assert need.resources.cpu_milli == 2  # 1.5
    assert need.resources.memory_bytes == 3
    assert need.nonzero_memory_bytes == 3
    assert need.resources.scalars["example.com/gpu"] == 2  # 1.5


def test_quantities_below_nano_round_up_to_it() -> None:
    """A Quantity holds nothing smaller than a nano."""
    least: dict[str, object] = {"memory": "0.00000000001"}
    need = pod_request(spec(containers=[container("a", least), container("b", {"memory": "1"})]))
    assert need.resources.memory_bytes == 2


def resized(spec_cpu: str, *, pending: str = "", **reported: Any) -> Pod:
    conditions = []
    if pending:
        conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}]
    status = {"containerStatuses": [{"name": "a", **reported}], "conditions": conditions}
    body = {"spec": {"containers": [container("a", {"cpu": spec_cpu})]}, "status": status}
    return msgspec.convert(body, Pod)


def charged_cpu(pod: Pod) -> int:
    return pod_request(effective_spec(pod)).resources.cpu_milli


def test_resize_in_progress_is_charged_at_the_largest() -> None:
    """KEP-1287: the largest of spec, allocated and actual requests."""
    held: dict[str, Any] = {
        "resources": {"requests": {"cpu": "3"}},
        "allocatedResources": {"cpu": "2"},
    }
    assert charged_cpu(resized("1", **held)) == 3000
    assert charged_cpu(resized("1", allocatedResources={"cpu": "2"})) == 2000
    assert charged_cpu(resized("4", **held)) == 4000
    assert charged_cpu(resized("4", pending="Deferred", **held)) == 4000


def test_infeasible_resize_is_not_charged() -> None:
    held: dict[str, Any] = {
        "resources": {"requests": {"cpu": "1"}},
        "allocatedResources": {"cpu": "2"},
    }
    assert charged_cpu(resized("64", pending="Infeasible", **held)) == 2000
    assert charged_cpu(resized("64", pending="Infeasible")) == 64_000


def test_status_that_adds_nothing_leaves_the_spec_itself() -> None:
    pod = resized("1", allocatedResources={"cpu": "1000m"}, resources={"requests": {"cpu": 1}})
    assert effective_spec(pod) is pod.spec


def test_resize_of_a_whole_pod_leaves_out_its_overhead() -> None:
    """KEP-5419: the status counts the overhead, the spec does not."""
    body = {
        "spec": {
            "containers": [container("a", {"cpu": "1"})],
            "overhead": {"cpu": "100m"},
            "resources": {"requests": {"cpu": "2"}},
        },
        "status": {"allocatedResources": {"cpu": "3100m"}},
    }
    assert charged_cpu(msgspec.convert(body, Pod)) == 3100


def test_only_recognised_names_are_kept() -> None:
    offered = pod_requests.allocatable(
        {
            "cpu": "2",
            "pods": "10",
            "example.com/gpu": 3,
            "hugepages-2Mi": "4Mi",
            "attachable-volumes-x": 5,
            "requests.example.com/gpu": 9,
            "random-invalid-extended-key": 9,
        }
    )
    assert offered.pods == 10
    assert dict(offered.scalars) == {
        "example.com/gpu": 3,
        "hugepages-2Mi": 4 * MIB,
        "attachable-volumes-x": 5,
    }


def test_absurd_amounts_are_capped_within_int64() -> None:
    need = pod_request(spec(containers=[container("a", {"cpu": "9E", "memory": "16Ei"})]))
    assert need.resources.cpu_milli == need.resources.memory_bytes == pod_requests.REQUEST_MAX
    assert pod_requests.allocatable({"memory": "16Ei"}).memory_bytes == pod_requests.AMOUNT_MAX


AMOUNTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/gpu", "nonsense"]),
    st.integers(0, 8),
    max_size=4,
)
PORTS = st.lists(st.integers(0, 3), max_size=2)
CONTAINERS = st.tuples(AMOUNTS, PORTS).map(
    lambda pair: {
        "name": "x",
        "resources": {"requests": pair[0]},
        "ports": [{"containerPort": 1, "hostPort": port} for port in pair[1]],
    }
)
SPECS = st.lists(CONTAINERS, min_size=1, max_size=3).map(lambda found: spec(containers=found))


@settings(max_examples=60, deadline=None)
@given(st.lists(SPECS, max_size=6), st.randoms(use_true_random=False))
def test_discharging_is_the_inverse_of_charging(found: list[PodSpec], order: object) -> None:
    """Charge all, discharge in any order: nothing is left, or capacity would leak."""
    pods = [(pod_request(item), host_ports(item)) for item in found]
    usage = IDLE
    for need, held in pods:
        usage = charged(usage, need, held)
    assert usage.pods == len(pods)
    order.shuffle(pods)  # type: ignore[attr-defined]  # hypothesis gives a Random
    for need, held in pods:
        usage = changed(usage, need, held, -1)
    assert usage == IDLE


@given(
    st.lists(st.sampled_from(["1", "500m", "2Gi"]), min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_stored_spec_asks_for_the_same_raw_or_not(cpus: list[str], init: bool, over: bool) -> None:
    body: dict[str, object] = {
        "containers": [container(f"c{at}", {"cpu": cpu}) for at, cpu in enumerate(cpus)],
        "nodeName": "n1",
    }
    if init:
        body["initContainers"] = [container("i", {"memory": "4Gi"})]
    if over:
        body["overhead"] = {"cpu": "50m"}
    raw = msgspec.json.decode(msgspec.json.encode(body), type=dict[str, msgspec.Raw])
    assert spec_request(raw) == spec_request(body) == pod_request(spec(**body))
