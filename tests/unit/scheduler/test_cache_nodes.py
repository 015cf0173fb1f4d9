"""The cache's nodes: checks 35 to 44 of spec/scheduling.md §4."""

import msgspec
import pytest
from tests.support.snapshot_views import same

from grange.api.kinds.node import ContainerImage, Node
from grange.api.quantity import QuantityError
from grange.scheduler.cache import Cache
from grange.scheduler.errors import CacheError
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

POD = builders.pod("p", requests={"cpu": "100m"}, nodeName="n")


def with_images(node: Node, **sizes: int) -> Node:
    images = tuple(
        ContainerImage(names=(name, f"{name}:alias"), size_bytes=size)
        for name, size in sizes.items()
    )
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, images=images))


def entry(cache: Cache, name: str = "n") -> NodeInfo:
    found = cache.node_info(name)
    assert found is not None
    return found


def summary(info: NodeInfo) -> dict[str, tuple[int, int]]:
    return {name: (state.size_bytes, state.num_nodes) for name, state in info.image_states.items()}


def test_check_35_adding_a_node_records_what_it_offers() -> None:
    cache = Cache()
    node = builders.node(
        "n",
        capacity={"cpu": "2", "memory": "100m", "pods": 9, "example.com/gpu": 4},
        taints=[{"key": "k", "effect": "NoSchedule"}],
    )
    copy = cache.add_node(with_images(node, one=7))
    assert cache.node_tree.num_nodes == 1
    assert cache.order() == ["n"]
    offered = entry(cache).allocatable
    assert (offered.cpu_milli, offered.memory_bytes, offered.pods) == (2000, 1, 9)
    assert offered.scalars == {"example.com/gpu": 4}
    assert summary(entry(cache)) == {"one": (7, 1), "one:alias": (7, 1)}
    assert same(copy, entry(cache))
    assert copy is not entry(cache)


def test_check_36_snapshot_has_equal_copy_of_same_generation() -> None:
    cache, snapshot = Cache(), NodeInfoSnapshot()
    cache.add_node(builders.node("n"))
    cache.add_pod(POD)
    cache.update_node_info_snapshot(snapshot)
    assert same(snapshot.node_info_map["n"], entry(cache))
    assert snapshot.node_info_map["n"] is not entry(cache)
    assert snapshot.generation == entry(cache).generation


def test_check_37_an_update_without_the_old_object_is_enough() -> None:
    cache = Cache()
    cache.add_node(builders.node("n"))
    before = entry(cache).generation
    cache.update_node(None, builders.node("n", capacity={"cpu": "8", "pods": 1}))
    assert entry(cache).allocatable.cpu_milli == 8000
    assert entry(cache).generation > before
    assert cache.node_tree.num_nodes == 1


def test_check_38_a_removed_node_with_pods_becomes_a_ghost() -> None:
    cache = Cache()
    node = with_images(builders.node("n"), one=7)
    cache.add_node(node)
    cache.add_pod(POD)
    cache.remove_node(node)
    assert entry(cache).node is None
    assert entry(cache).usage.cpu_milli == 100
    assert cache.node_tree.num_nodes == 0
    assert cache.images == {}


def test_check_39_removing_a_ghost_is_refused() -> None:
    cache = Cache()
    cache.add_node(builders.node("n"))
    cache.add_pod(POD)
    cache.remove_node(builders.node("n"))
    with pytest.raises(CacheError):
        cache.remove_node(builders.node("n"))


def test_check_40_the_pods_of_a_removed_node_can_still_leave() -> None:
    cache = Cache()
    cache.add_node(builders.node("n"))
    cache.add_pod(POD)
    cache.remove_node(builders.node("n"))
    assert cache.get_pod(POD) is POD
    cache.update_pod(POD, POD)
    cache.remove_pod(POD)
    assert cache.order() == []


def test_check_41_removing_an_unknown_node_is_refused() -> None:
    with pytest.raises(CacheError):
        Cache().remove_node(builders.node("n"))


def test_check_42_nodes_that_share_an_image_agree_on_it() -> None:
    cache, snapshot = Cache(), NodeInfoSnapshot()
    one, two = builders.node("one"), builders.node("two")
    cache.add_node(with_images(one, shared=10, own=3))
    cache.add_node(with_images(two, shared=99))
    cache.update_node_info_snapshot(snapshot)
    expected = {"shared": (10, 2), "shared:alias": (10, 2)}
    for info in (entry(cache, "one"), entry(cache, "two"), *snapshot.node_info_list):
        assert {
            name: value for name, value in summary(info).items() if "shared" in name
        } == expected
    cache.update_node(two, with_images(two, own=3))
    assert summary(entry(cache, "one")) == {
        "shared": (10, 1),
        "shared:alias": (10, 1),
        "own": (3, 2),
        "own:alias": (3, 2),
    }
    cache.remove_node(one)
    assert summary(entry(cache, "two")) == {"own": (3, 1), "own:alias": (3, 1)}
    assert {*cache.images} == {"own", "own:alias"}


def test_check_43_updating_an_unknown_node_adds_it_to_the_tree() -> None:
    cache = Cache()
    cache.update_node(None, builders.node("n"))
    assert cache.node_tree.list() == ["n"]


def test_check_44_adding_over_a_ghost_revives_it_with_its_pods() -> None:
    cache, snapshot = Cache(), NodeInfoSnapshot()
    cache.add_node(builders.node("n"))
    cache.add_pod(POD)
    cache.remove_node(builders.node("n"))
    cache.add_node(builders.node("n"))
    cache.update_node_info_snapshot(snapshot)
    assert snapshot.node_info_map["n"].usage.cpu_milli == 100
    assert cache.node_tree.list() == ["n"]


def test_check_117_ghost_revived_by_update_is_in_the_tree_once() -> None:
    cache = Cache()
    node = builders.node("n", zone="z")
    cache.add_node(node)
    cache.add_pod(POD)
    cache.remove_node(node)
    cache.update_node(node, node)
    assert cache.node_tree.list() == ["n"]
    cache.update_node(node, node)
    assert cache.node_tree.list() == ["n"]


def test_adding_a_live_node_in_another_zone_moves_it() -> None:
    """Otherwise it would be in two zones at once and be tried twice a round."""
    cache, snapshot = Cache(), NodeInfoSnapshot()
    for name, zone in (("a", "z1"), ("b", "z1"), ("c", "z2")):
        cache.add_node(builders.node(name, zone=zone))
    cache.update_node_info_snapshot(snapshot)
    cache.add_node(builders.node("a", zone="z2"))
    cache.update_node_info_snapshot(snapshot)
    assert [info.name for info in snapshot.node_info_list] == ["b", "c", "a"]


def test_an_update_between_two_names_is_refused() -> None:
    cache = Cache()
    cache.add_node(builders.node("a"))
    with pytest.raises(CacheError):
        cache.update_node(builders.node("a"), builders.node("b"))


def test_a_node_with_a_nonsensical_amount_changes_nothing() -> None:
    cache = Cache()
    with pytest.raises(QuantityError):
        cache.add_node(builders.node("n", capacity={"cpu": "lots"}))
    assert cache.order() == []
    assert cache.node_tree.num_nodes == 0
