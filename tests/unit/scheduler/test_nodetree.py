"""The node tree: checks 73 to 85 of spec/scheduling.md §4."""

import pytest

from grange.api.kinds.node import Node
from grange.scheduler.errors import CacheError, SnapshotInconsistent
from grange.scheduler.nodetree import NodeTree, zone_of
from grange.sim import builders

REGION, ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
BETA = "failure-domain.beta.kubernetes.io/"


def node(number: int, region: str = "", zone: str = "") -> Node:
    labels = {key: value for key, value in ((REGION, region), (ZONE, zone)) if value}
    return builders.node(f"node-{number}", labels=labels)


ALL = [
    node(0),
    node(1, "region-1"),
    node(2, "", "zone-2"),
    node(3, "region-1", "zone-2"),
    node(4, "region-1", "zone-2"),
    node(5, "region-1", "zone-3"),
    node(6, "region-2", "zone-2"),
    node(7, "region-2", "zone-2"),
    node(8, "region-2", "zone-2"),
]


def tree_of(*numbers: int) -> NodeTree:
    tree = NodeTree()
    for number in numbers:
        tree.add_node(ALL[number])
    return tree


def numbers(names: list[str]) -> list[int]:
    return [int(name.removeprefix("node-")) for name in names]


def test_check_73_nodes_without_labels_share_the_empty_zone() -> None:
    bare = builders.node_document("bare")
    assert zone_of(ALL[0]) == ""
    assert tree_of(0).zones == [""]
    assert bare["metadata"]["labels"] == {"kubernetes.io/hostname": "bare"}


def test_check_74_a_duplicate_is_ignored() -> None:
    tree = tree_of(3, 3)
    assert tree.num_nodes == 1
    assert tree.list() == ["node-3"]


def test_check_75_region_zone_and_both_are_different_zones() -> None:
    assert len({zone_of(ALL[1]), zone_of(ALL[2]), zone_of(ALL[3])}) == 3
    assert len(tree_of(1, 2, 3).zones) == 3


def test_check_76_old_and_new_labels_mean_the_same() -> None:
    old = builders.node("old", labels={f"{BETA}region": "region-1", f"{BETA}zone": "zone-2"})
    both = builders.node("both", labels={f"{BETA}zone": "zone-2", REGION: "region-1"})
    assert zone_of(old) == zone_of(both) == zone_of(ALL[3])


def test_check_77_removal_from_the_middle_and_of_everything() -> None:
    tree = tree_of(3, 4, 5)
    tree.remove_node(ALL[3])
    assert tree.list() == ["node-4", "node-5"]
    tree.remove_node(ALL[4])
    assert tree.zones == [zone_of(ALL[5])]
    tree.remove_node(ALL[5])
    assert (tree.num_nodes, tree.zones, tree.list()) == (0, [], [])


def test_check_78_removing_a_missing_node_is_refused() -> None:
    tree = tree_of(1)
    with pytest.raises(CacheError):
        tree.remove_node(ALL[2])
    assert tree.num_nodes == 1


def test_check_79_an_update_moves_to_the_end_of_the_new_zone() -> None:
    tree = tree_of(0, 6, 7)
    moved = node(0, "region-2", "zone-2")
    tree.update_node(ALL[0], moved)
    assert numbers(tree.list()) == [6, 7, 0]
    alone = tree_of(0)
    alone.update_node(ALL[0], moved)
    assert alone.zones == [zone_of(moved)]
    unknown = tree_of(1)
    unknown.update_node(ALL[0], moved)
    assert numbers(unknown.list()) == [1, 0]
    unknown.update_node(None, ALL[2])
    assert unknown.num_nodes == 3


@pytest.mark.parametrize(
    ("added", "listed"),
    [
        ([], []),
        ([0], [0]),
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([*range(9)], [0, 1, 2, 3, 5, 6, 4, 7, 8]),
    ],
)
def test_check_80_the_list_alternates_between_zones(added: list[int], listed: list[int]) -> None:
    assert numbers(tree_of(*added).list()) == listed


def test_check_81_an_inconsistent_tree_is_an_error() -> None:
    tree = tree_of(0, 1)
    tree._zone_of["absent"] = ""
    with pytest.raises(SnapshotInconsistent):
        tree.list()


def test_check_82_next_walks_for_ever() -> None:
    assert NodeTree().next() == ""
    assert numbers([tree_of(0).next() for _ in range(2)]) == [0, 0]
    tree = tree_of(*range(9))
    assert numbers([tree.next() for _ in range(11)]) == [0, 1, 2, 3, 5, 6, 4, 7, 8, 0, 1]


def walk(script: str) -> list[str]:
    tree, found = NodeTree(), []
    for step in script.split():
        if step == "next":
            found.append(tree.next().removeprefix("node-"))
        elif step.startswith("add"):
            tree.add_node(ALL[int(step[3:])])
        else:
            tree.remove_node(ALL[int(step[2:])])
    return found


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("add2 add3 next add4 rm2 rm3 rm4 next", ["2", ""]),
        ("add2 add3 next add4 rm2 rm3 next", ["2", "4"]),
        ("add2 add3 next next add4 rm2 rm3 next", ["2", "3", "4"]),
    ],
)
def test_check_83_next_survives_changes_in_mid_round(script: str, found: list[str]) -> None:
    assert walk(script) == found


def test_check_84_node_joining_a_used_up_zone_is_in_same_round() -> None:
    script = "add4 add5 add6 add7 add8 next next next next add3 next next next"
    assert walk(script) == ["4", "5", "6", "7", "3", "8", "4"]


def test_check_85_a_zone_that_goes_does_not_confuse_the_round() -> None:
    script = "add3 add4 next next rm3 add6 add7 next next rm4 next next"
    assert walk(script) == ["3", "4", "6", "7", "6", "7"]


def test_an_update_between_two_names_is_refused() -> None:
    with pytest.raises(CacheError):
        tree_of(0).update_node(ALL[0], ALL[1])
