"""The cache's pods: checks 1 to 33 of spec/scheduling.md §4."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.snapshot_views import same

from grange.api.kinds.pod import Pod
from grange.api.selectors import Labels
from grange.placement.node_usage import IDLE, Usage
from grange.placement.ports_and_disks import ANY, Holding, HostPort
from grange.scheduler.cache import Cache
from grange.scheduler.errors import CacheCorrupted, CacheError
from grange.scheduler.nodeinfo import NodeInfo
from grange.sim import builders

MIB = 2**20
EVERYTHING = Labels.parse("")


def pod(name: str, node: str = "node", cpu: str = "", memory: str = "", **more: Any) -> Pod:
    asks = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    return builders.pod(name, requests=asks, nodeName=node, **more)


def entry(cache: Cache, name: str = "node") -> NodeInfo:
    found = cache.node_info(name)
    assert found is not None
    return found


def tcp(*ports: int) -> dict[Holding, int]:
    return {HostPort(ANY, "TCP", port): 1 for port in ports}


def with_label(old: Pod, key: str, value: str) -> Pod:
    metadata = msgspec.structs.replace(old.metadata, labels={**old.metadata.labels, key: value})
    return msgspec.structs.replace(old, metadata=metadata)


A = pod("a", cpu="100m", memory="500", host_ports=[80])
B = pod("b", cpu="200m", memory="1Ki", host_ports=[8080])


def test_check_01_an_assumed_pod_is_charged_to_its_node() -> None:
    cache = Cache()
    cache.assume_pod(A)
    assert entry(cache).usage == Usage(100, 500, 0, 1, 100, 500, ports=tcp(80))
    assert cache.is_assumed_pod(A)


def test_check_02_assuming_twice_is_refused() -> None:
    cache = Cache()
    cache.assume_pod(A)
    with pytest.raises(CacheError):
        cache.assume_pod(A)
    assert entry(cache).usage.pods == 1


def test_check_03_two_pods_sum_up() -> None:
    cache = Cache()
    cache.assume_pod(A)
    cache.assume_pod(B)
    assert entry(cache).usage == Usage(300, 1524, 0, 2, 300, 1524, ports=tcp(80, 8080))


def test_check_04_a_silent_pod_counts_only_in_the_nonzero_view() -> None:
    cache = Cache()
    cache.assume_pod(pod("silent"))
    assert entry(cache).usage == Usage(0, 0, 0, 1, 100, 200 * MIB)


def test_check_05_extended_resources_sum_up() -> None:
    cache = Cache()
    for name, amount in (("a", 3), ("b", 5)):
        asked = builders.pod(name, requests={"example.com/foo": amount}, nodeName="node")
        cache.assume_pod(asked)
    assert entry(cache).usage.scalars == {"example.com/foo": 8}


def test_check_06_unqualified_names_are_ignored() -> None:
    cache = Cache()
    odd = {"random-invalid-extended-key": 100}
    cache.assume_pod(builders.pod("a", requests=odd, nodeName="node"))
    assert entry(cache).usage.scalars == {}


def test_check_07_port_zero_is_no_port() -> None:
    cache = Cache()
    cache.assume_pod(pod("a", host_ports=[0]))
    assert entry(cache).usage.ports == {}


def test_check_08_forgotten_pods_leave_nothing() -> None:
    cache = Cache()
    for item in (A, B):
        cache.assume_pod(item)
    for item in (A, B):
        cache.forget_pod(item)
        assert not cache.is_assumed_pod(item)
        with pytest.raises(CacheError):
            cache.get_pod(item)
    assert cache.order() == []


def test_check_09_a_finished_binding_expires_after_its_deadline() -> None:
    cache = Cache(ttl_s=10)
    cache.assume_pod(A)
    cache.finish_binding(A, now=100)
    assert cache.cleanup(now=110) == []  # strictly after
    assert cache.cleanup(now=110.1) == [A]
    assert cache.order() == []


def test_check_10_only_finished_and_overdue_pods_expire() -> None:
    cache = Cache(ttl_s=10)
    early, late, unfinished = pod("1", cpu="1"), pod("2", cpu="2"), pod("3", cpu="3")
    for item in (early, late, unfinished):
        cache.assume_pod(item)
    cache.finish_binding(early, now=0)
    cache.finish_binding(late, now=5)
    assert cache.cleanup(now=11) == [early]
    assert [info.pod for info in entry(cache).pods] == [unfinished, late]
    assert entry(cache).usage.cpu_milli == 5000


def test_check_11_without_a_ttl_nothing_expires() -> None:
    cache = Cache()
    cache.assume_pod(A)
    cache.finish_binding(A, now=0)
    assert cache.cleanup(now=1e12) == []
    assert cache.is_assumed_pod(A)


def test_check_12_a_confirmed_pod_survives_the_sweep() -> None:
    cache = Cache(ttl_s=1)
    for item in (A, B):
        cache.assume_pod(item)
        cache.finish_binding(item, now=0)
    cache.add_pod(A)
    assert cache.cleanup(now=100) == [B]
    assert cache.get_pod(A) == A
    assert entry(cache).usage == Usage(100, 500, 0, 1, 100, 500, ports=tcp(80))


def test_check_13_adding_twice_is_refused() -> None:
    cache = Cache()
    cache.add_pod(A)
    with pytest.raises(CacheError):
        cache.add_pod(A)
    assert entry(cache).usage.pods == 1


def test_check_14_the_dump_is_equal_and_independent() -> None:
    cache = Cache()
    cache.add_node(builders.node("node"))
    cache.assume_pod(A)
    cache.add_pod(pod("other", "ghostly"))
    dump = cache.snapshot()
    assert dump.assumed_pods == {A.metadata.uid}
    assert {*dump.nodes} == {"node", "ghostly"}
    assert all(same(dump.nodes[name], entry(cache, name)) for name in dump.nodes)
    cache.forget_pod(A)
    assert dump.assumed_pods == {A.metadata.uid}
    assert dump.nodes["node"].usage.pods == 1


def test_check_15_confirming_replaces_the_stored_object() -> None:
    cache = Cache()
    cache.assume_pod(A)
    before = entry(cache).generation
    running = msgspec.structs.replace(A, status=msgspec.structs.replace(A.status, phase="Running"))
    cache.add_pod(running)
    assert entry(cache).pods[0].pod.status.phase == "Running"
    assert cache.get_pod(A) is running
    assert entry(cache).generation > before
    assert not cache.is_assumed_pod(A)


def test_check_16_confirming_elsewhere_moves_the_charge() -> None:
    cache = Cache()
    cache.assume_pod(A)
    moved = pod("a", "other", cpu="100m", memory="500", host_ports=[80])
    cache.add_pod(moved)
    assert cache.node_info("node") is None
    assert entry(cache, "other").usage.cpu_milli == 100
    cache.update_pod(moved, with_label(moved, "k", "v"))
    assert entry(cache, "other").usage.pods == 1


def test_check_17_an_expired_pod_can_be_added_again() -> None:
    cache = Cache(ttl_s=1)
    cache.assume_pod(A)
    cache.finish_binding(A, now=0)
    cache.cleanup(now=2)
    cache.add_pod(A)
    assert entry(cache).usage == Usage(100, 500, 0, 1, 100, 500, ports=tcp(80))


def test_check_18_updates_there_and_back_are_exact() -> None:
    cache = Cache()
    cache.add_pod(A)
    other = pod("a", cpu="200m", memory="1Ki", host_ports=[8080, 81])
    at_first = entry(cache).usage
    cache.update_pod(A, other)
    assert entry(cache).usage == Usage(200, 1024, 0, 1, 200, 1024, ports=tcp(8080, 81))
    cache.update_pod(other, A)
    assert entry(cache).usage == at_first


def test_check_19_unknown_pods_are_errors_and_get_returns_latest() -> None:
    cache = Cache()
    with pytest.raises(CacheError):
        cache.get_pod(A)
    with pytest.raises(CacheError):
        cache.update_pod(A, A)
    cache.add_pod(A)
    newer = with_label(A, "k", "v")
    cache.update_pod(A, newer)
    assert cache.get_pod(A) is newer


def test_check_20_expiry_then_add_then_updates() -> None:
    cache = Cache(ttl_s=1)
    cache.assume_pod(A)
    cache.finish_binding(A, now=0)
    cache.cleanup(now=2)
    with pytest.raises(CacheError):
        cache.update_pod(A, A)
    cache.add_pod(A)
    bigger = pod("a", cpu="300m")
    cache.update_pod(A, bigger)
    assert entry(cache).usage.cpu_milli == 300
    cache.update_pod(bigger, A)
    assert entry(cache).usage.cpu_milli == 100


def test_check_21_ephemeral_storage_is_tracked() -> None:
    cache = Cache()
    cache.assume_pod(builders.pod("a", requests={"ephemeral-storage": "500"}, nodeName="node"))
    assert entry(cache).usage == Usage(0, 0, 500, 1, 100, 200 * MIB)


@pytest.mark.parametrize("bound", [True, False])
def test_check_22_removal_clears_and_moves_the_node_to_the_front(*, bound: bool) -> None:
    cache = Cache()
    for name in ("node", "node-2"):
        cache.add_node(builders.node(name))
    (cache.add_pod if bound else cache.assume_pod)(A)
    cache.add_node(builders.node("node-3"))
    cache.remove_pod(A)
    assert entry(cache).usage == IDLE
    assert cache.order()[0] == "node"
    assert not cache.is_assumed_pod(A)
    with pytest.raises(CacheError):
        cache.remove_pod(A)


def test_check_22_strict_refuses_to_remove_what_is_only_assumed() -> None:
    cache = Cache(strict=True)
    cache.assume_pod(A)
    with pytest.raises(CacheError):
        cache.remove_pod(A)
    assert cache.is_assumed_pod(A)


def test_check_23_pods_may_come_before_their_node() -> None:
    cache = Cache()
    cache.add_pod(A)
    cache.assume_pod(B)
    assert entry(cache).node is None
    assert cache.node_tree.num_nodes == 0
    cache.add_node(builders.node("node"))
    assert entry(cache).usage.cpu_milli == 300


def test_check_24_forgetting_twice_is_fine_unless_strict() -> None:
    cache, strict = Cache(), Cache(strict=True)
    for one in (cache, strict):
        one.assume_pod(A)
        one.forget_pod(A)
    cache.forget_pod(A)
    with pytest.raises(CacheError):
        strict.forget_pod(A)


def test_check_25_forgetting_with_another_node_is_refused() -> None:
    cache = Cache()
    cache.assume_pod(A)
    with pytest.raises(CacheError, match="assumed on node but is assigned to other"):
        cache.forget_pod(pod("a", "other"))
    assert cache.is_assumed_pod(A)


def test_check_26_forgetting_a_confirmed_pod_is_refused() -> None:
    cache = Cache()
    cache.add_pod(A)
    with pytest.raises(CacheError):
        cache.forget_pod(A)
    assert cache.get_pod(A) is A


def test_check_27_updating_an_assumed_pod_is_refused() -> None:
    cache = Cache()
    cache.assume_pod(A)
    with pytest.raises(CacheError):
        cache.update_pod(A, A)


def test_check_28_a_pod_that_moves_means_corruption() -> None:
    cache = Cache()
    cache.add_pod(A)
    with pytest.raises(CacheCorrupted):
        cache.update_pod(A, pod("a", "other"))
    with pytest.raises(CacheCorrupted):
        cache.remove_pod(pod("a", "other"))
    assert entry(cache).usage.pods == 1


def test_check_29_a_removal_without_a_node_uses_the_cached_one() -> None:
    cache = Cache()
    cache.add_pod(A)
    cache.remove_pod(pod("a", ""))
    assert cache.order() == []


NAMELESS = builders.pod("a", uid="", nodeName="node")
OPERATIONS: list[Callable[[Cache], object]] = [
    lambda cache: cache.assume_pod(NAMELESS),
    lambda cache: cache.finish_binding(NAMELESS, now=0),
    lambda cache: cache.forget_pod(NAMELESS),
    lambda cache: cache.add_pod(NAMELESS),
    lambda cache: cache.update_pod(NAMELESS, NAMELESS),
    lambda cache: cache.remove_pod(NAMELESS),
    lambda cache: cache.get_pod(NAMELESS),
    lambda cache: cache.is_assumed_pod(NAMELESS),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_check_30_without_a_uid_every_method_refuses(
    operation: Callable[[Cache], object],
) -> None:
    cache = Cache()
    with pytest.raises(CacheError, match="has no UID"):
        operation(cache)
    assert cache.order() == []


def test_check_31_finishing_what_is_not_assumed_changes_nothing() -> None:
    cache = Cache(ttl_s=1)
    cache.finish_binding(A, now=0)
    cache.add_pod(A)
    cache.finish_binding(A, now=0)
    assert cache.cleanup(now=100) == []
    assert cache.get_pod(A) is A


def test_check_32_an_unknown_pod_is_not_assumed() -> None:
    assert not Cache().is_assumed_pod(A)


def test_check_33_lists_see_every_pod() -> None:
    cache = Cache()
    cache.add_node(builders.node("gone"))
    on_ghost = pod("g", "gone", labels={"app": "x"})
    assumed = pod("a", "node", labels={"app": "x"})
    other = pod("o", "node", labels={"app": "y"})
    cache.add_pod(on_ghost)
    cache.assume_pod(assumed)
    cache.add_pod(other)
    cache.remove_node(builders.node("gone"))
    assert {found.metadata.name for found in cache.list(EVERYTHING)} == {"a", "g", "o"}
    assert {found.metadata.name for found in cache.list(Labels.parse("app=x"))} == {"a", "g"}
    on_node = cache.filtered_list(lambda found: found.spec.node_name == "node", EVERYTHING)
    assert {found.metadata.name for found in on_node} == {"a", "o"}


def test_an_unplaced_pod_is_refused() -> None:
    cache = Cache()
    for operation in (cache.assume_pod, cache.add_pod):
        with pytest.raises(CacheError):
            operation(pod("a", ""))


def test_two_pods_may_share_a_port_and_one_leave() -> None:
    """Holdings are counted (decision f): the port stays taken until its last holder goes."""
    cache = Cache()
    twin = pod("twin", host_ports=[80])
    cache.add_pod(A)
    cache.add_pod(twin)
    cache.remove_pod(A)
    assert entry(cache).usage.ports == tcp(80)


def test_removal_subtracts_what_was_added() -> None:
    cache = Cache()
    cache.add_node(builders.node("node"))
    cache.add_pod(A)
    cache.remove_pod(pod("a", cpu="3"))
    assert entry(cache).usage == IDLE
