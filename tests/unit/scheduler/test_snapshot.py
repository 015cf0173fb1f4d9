"""Incremental snapshots: checks 45 to 65, 67 to 72 and 86 to 89 of spec/scheduling.md §4."""

from typing import Any

import msgspec
import pytest
from tests.support.snapshot_views import (
    same,
    used_claims,
    with_affinity,
    with_required_anti_affinity,
)

from grange.api.kinds.node import ContainerImage
from grange.api.kinds.pod import Pod
from grange.scheduler.cache import Cache
from grange.scheduler.errors import CacheError, SnapshotInconsistent
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.sim import builders

ANTI = {
    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
}
NEAR: dict[str, object] = {"podAffinity": {}}


def pod_on(node: str, name: str = "", **more: Any) -> Pod:
    return builders.pod(name or f"pod-{node}", requests={"cpu": "100m"}, nodeName=node, **more)


class World:
    """A cache and a snapshot, driven by short scripts.

    ``add1`` adds node 1, ``pod1`` a pod on node 1 and ``pod1b`` another; ``upd1``, ``rm1``,
    ``updpod1``, ``rmpod1`` as their names; ``s`` takes a snapshot and checks it whole.
    """

    def __init__(self) -> None:
        self.cache = Cache()
        self.snapshot = NodeInfoSnapshot()

    def run(self, script: str) -> "World":
        for step in script.split():
            if step == "s":
                self.take()
                continue
            verb = step.rstrip("0123456789b")
            name = step[len(verb) :]
            node = name.rstrip("b")
            pod = pod_on(node, f"pod-{name}")
            match verb:
                case "add":
                    self.cache.add_node(builders.node(name))
                case "upd":
                    self.cache.update_node(None, builders.node(name))
                case "rm":
                    self.cache.remove_node(builders.node(name))
                case "pod":
                    self.cache.add_pod(pod)
                case "updpod":
                    self.cache.update_pod(pod, pod)
                case "rmpod":
                    self.cache.remove_pod(pod)
                case _:
                    raise ValueError(step)
        return self

    def take(self) -> None:
        self.cache.update_node_info_snapshot(self.snapshot)
        check_snapshot(self.cache, self.snapshot)


def check_snapshot(cache: Cache, snapshot: NodeInfoSnapshot) -> None:
    """Checks 58, 59 and 60, and that the columns hold the same as the entries."""
    generations = []
    for name in cache.order():
        info = cache.node_info(name)
        assert info is not None
        generations.append(info.generation)
    assert len(generations) == len(cache.order())
    assert generations == sorted(set(generations), reverse=True)
    assert len(snapshot.node_info_map) == cache.node_tree.num_nodes == len(snapshot.table)
    for name, copy in snapshot.node_info_map.items():
        live = cache.node_info(name)
        assert live is not None
        assert same(live, copy)
        assert live is not copy
        row = snapshot.table.rows[name]
        assert snapshot.table.amounts("cpu", snapshot.table.all)[1][row] == copy.usage.cpu_milli
        assert snapshot.table.amounts("pods", snapshot.table.all)[1][row] == len(copy.pods)
        assert (
            snapshot.table.amounts("cpu", snapshot.table.all)[0][row] == copy.allocatable.cpu_milli
        )
    listed = cache.node_tree.list()
    assert [info.name for info in snapshot.node_info_list] == listed
    assert all(info is snapshot.node_info_map[info.name] for info in snapshot.node_info_list)
    ranks = [snapshot.ties[snapshot.table.rows[name]] for name in listed]
    assert ranks == sorted(ranks, reverse=True)
    assert with_affinity(snapshot) == [
        info for info in snapshot.node_info_list if info.pods_with_affinity
    ]


@pytest.mark.parametrize(
    ("number", "script", "order"),
    [
        (45, "add1 s rm1 add1", "1"),
        (46, "add1 s add2 rm1", "2"),
        (47, "add0 s add1 s add2 s add3", "3 2 1 0"),
        (48, "add0 add2 add5 add6", "6 5 2 0"),
        (49, "add0 add1 add5 s upd1", "1 5 0"),
        (50, "add0 add1 add2 add3 s rm0 rm1 rm2 rm3", ""),
        (51, "add0 add2 add5 add6 s rm0 rm6", "5 2"),
        (52, "add2 add5 add6 s rm2 rm5 rm6 s add7 add9", "9 7"),
        (53, "add8 upd2 upd8 s add1", "1 8 2"),
        (54, "add0 add2 add8 s pod8 pod2", "2 8 0"),
        (55, "add0 pod0 add2 add4 updpod0", "0 4 2"),
        (56, "add0 pod1 updpod1 add1", "1 0"),
        (57, "add0 add1 pod1 pod1b s rm1 s updpod1 updpod1b rmpod1 rmpod1b", "0"),
    ],
)
def test_check_45_to_57_the_most_recently_changed_comes_first(
    number: int, script: str, order: str
) -> None:
    """Each script gives its order of entries and a right snapshot at every point."""
    world = World().run(script)
    assert world.cache.order() == order.split(), number
    world.take()


def test_check_57_removed_node_with_pods_leaves_at_once() -> None:
    """The ghost keeps the entry count up, which must not hide the removal."""
    world = World().run("add0 add1 pod1 pod1b s")
    assert {*world.snapshot.node_info_map} == {"0", "1"}
    world.run("rm1 s")
    assert {*world.snapshot.node_info_map} == {"0"}
    world.run("updpod1 s rmpod1 s rmpod1b s")
    assert {*world.snapshot.node_info_map} == {"0"}


def test_check_58_to_60_walk_map_and_lists_agree() -> None:
    World().run("add3 pod3 add1 pod7 s add2 rm3 s upd1 add3 s rmpod3 pod1 pod2 s rmpod7 s")


def test_check_60_entries_keep_their_identity() -> None:
    world = World().run("add1 add2 s")
    before = world.snapshot.node_info_map["1"]
    world.run("pod1 s upd1 s add3 s")
    assert world.snapshot.node_info_map["1"] is before


def test_check_61_affinity_lists_follow_without_a_new_node() -> None:
    world = World().run("add0 add1 s")
    first, second = (
        pod_on("0", "first", affinity=ANTI),
        pod_on("1", "second", affinity=NEAR),
    )
    order = world.snapshot.layout
    world.cache.add_pod(first)
    world.take()
    assert [info.name for info in with_affinity(world.snapshot)] == ["0"]
    world.cache.add_pod(second)
    world.take()
    assert [info.name for info in with_affinity(world.snapshot)] == ["0", "1"]
    anti = with_required_anti_affinity(world.snapshot)
    assert [info.name for info in anti] == ["0"]
    world.cache.remove_pod(first)
    world.cache.remove_pod(second)
    world.take()
    assert with_affinity(world.snapshot) == []
    assert with_required_anti_affinity(world.snapshot) == []
    assert world.snapshot.layout == order


def with_claims(name: str, node: str, *claims: str) -> Pod:
    volumes = [
        {"name": f"v{at}", "persistentVolumeClaim": {"claimName": claim}}
        for at, claim in enumerate(claims)
    ]
    return builders.pod(name, nodeName=node, volumes=volumes)


def test_check_62_claims_in_use_are_tracked() -> None:
    world = World().run("add0 s")
    one, two = with_claims("p", "0", "a"), with_claims("q", "0", "a", "b")
    world.cache.add_pod(one)
    world.cache.add_pod(two)
    world.take()
    assert used_claims(world.snapshot) == {"default/a", "default/b"}
    world.cache.remove_pod(two)
    world.take()
    assert used_claims(world.snapshot) == {"default/a"}
    # As many claims as before, but another one.
    world.cache.update_pod(one, with_claims("p", "0", "c"))
    world.take()
    assert used_claims(world.snapshot) == {"default/c"}
    # Gone and back between two snapshots.
    world.cache.remove_pod(one)
    world.cache.add_pod(with_claims("p", "0", "c"))
    world.take()
    assert used_claims(world.snapshot) == {"default/c"}


def test_check_63_trial_assumptions_stay_in_snapshot_and_vanish() -> None:
    world = World().run("add2 add4 add8 add0 s")
    generation = world.snapshot.generation
    trial = PodInfo.of(pod_on("4", "trial"))
    world.snapshot.assume_pod(trial)
    assert world.snapshot.generation == generation
    assert world.snapshot.node_info_map["4"].usage.cpu_milli == 100
    assert (
        world.snapshot.table.amounts("cpu", world.snapshot.table.all)[1][
            world.snapshot.table.rows["4"]
        ]
        == 100
    )
    world.cache.assume_pod(pod_on("0", "real"))
    world.take()
    assert world.cache.order() == ["0", "8", "4", "2"]
    assert world.snapshot.node_info_map["4"].usage.pods == 0
    world.snapshot.assume_pod(trial)
    world.snapshot.forget_pod(trial)
    world.cache.forget_pod(pod_on("0", "real"))
    world.take()
    assert world.snapshot.node_info_map["0"].usage.pods == 0


@pytest.mark.parametrize("changed", [0, 1, 7, 50])
def test_check_64_only_changed_rows_are_copied(changed: int) -> None:
    """The work of a refresh is the number of changed nodes, not of nodes."""
    world = World().run(" ".join(f"add{number}" for number in range(50)) + " s")
    assert world.snapshot.copies == 50
    for number in range(changed):
        for twin in ("", "b"):
            world.cache.assume_pod(pod_on(str(number), f"x{number}{twin}"))
    position = world.snapshot.changes.position
    world.take()
    assert world.snapshot.copies == 50 + changed
    assert len({entry >> 1 for entry in world.snapshot.changes.since(position) or ()}) == changed


def test_check_64_confirmations_and_heartbeats_are_no_changes() -> None:
    """They are copied, so that the snapshot is current, but no result by row becomes void."""
    world = World().run("add0 s")
    world.cache.assume_pod(pod_on("0", "p"))
    world.take()
    position, copies = world.snapshot.changes.position, world.snapshot.copies
    world.cache.add_pod(pod_on("0", "p", labels={"k": "v"}))
    world.cache.update_node(None, builders.node("0"))
    world.take()
    assert world.snapshot.copies == copies + 1
    assert world.snapshot.changes.since(position) == []


def test_check_65_a_mismatch_fails_once_and_is_repaired() -> None:
    world = World().run("add0 add1 pod1 s")
    world.snapshot.node_info_list.append(world.snapshot.node_info_list[0])
    with pytest.raises(SnapshotInconsistent):
        world.cache.update_node_info_snapshot(world.snapshot)
    world.take()
    assert [info.name for info in world.snapshot.node_info_list] == ["0", "1"]


@pytest.mark.parametrize(
    ("number", "first", "then", "order"),
    [
        (67, "2 | 3", "4 0", "2 0 3 4"),
        (68, "2 3 4 5", "6 0", "2 0 3 4 5 6"),
        (69, "2 | 3 4", "5 6 0 1", "2 0 3 1 4 5 6"),
        (70, "2 1 | 3 4", "5 6 0", "2 1 3 0 4 5 6"),
        (71, "", "", ""),
        (72, "", "2", "2"),
    ],
)
def test_check_67_to_72_order_follows_the_tree_after_each_change(
    number: int, first: str, then: str, order: str
) -> None:
    """Nodes 0 and 1 are in one zone, the others in another; ``|`` takes a snapshot."""
    world = World()
    for step in [*first.split(), "|", *then.split()]:
        if step == "|":
            world.take()
        else:
            world.cache.add_node(builders.node(step, zone="zone-0" if step in "01" else "zone-1"))
    world.take()
    assert [info.name for info in world.snapshot.node_info_list] == order.split(), number


def test_check_86_image_counts_are_those_of_the_cluster() -> None:
    world = World()
    for name, images in (("a", ["x"]), ("b", ["x", "y"])):
        found = tuple(ContainerImage(names=(image,), size_bytes=5) for image in images)
        node = builders.node(name)
        status = msgspec.structs.replace(node.status, images=found)
        world.cache.add_node(msgspec.structs.replace(node, status=status))
        world.take()
    states = world.snapshot.node_info_map["a"].image_states
    assert {name: state.num_nodes for name, state in states.items()} == {"x": 2}
    assert world.snapshot.node_info_map["b"].image_states["y"].num_nodes == 1


def test_check_89_trials_on_known_and_unknown_nodes() -> None:
    world = World().run("add0 add1 s")
    snapshot = world.snapshot
    infos = [
        PodInfo.of(pod_on("0", "p", affinity=ANTI)),
        PodInfo.of(pod_on("1", "q")),
        PodInfo.of(pod_on("nowhere", "r")),
    ]
    for info in infos:
        snapshot.assume_pod(info)
    assert snapshot.assumed == [info.uid for info in infos]
    unknown = snapshot.get("nowhere")
    assert unknown is not None
    assert unknown.usage.pods == 1
    assert [info.name for info in with_required_anti_affinity(snapshot)] == ["0"]
    with pytest.raises(CacheError):
        snapshot.assume_pod(infos[0])
    snapshot.forget_pod(infos[2])
    assert snapshot.get("nowhere") is None
    with pytest.raises(CacheError):
        snapshot.forget_pod(infos[2])
    snapshot.undo_trials()
    assert snapshot.assumed == []
    assert with_required_anti_affinity(snapshot) == []
    assert all(info.usage.pods == 0 for info in snapshot.node_info_list)
    check_snapshot(world.cache, snapshot)


def test_a_reader_that_fell_behind_the_log_starts_again() -> None:
    log = NodeInfoSnapshot().changes
    for row in range(10_000):
        log.note(row % 7 * 2 + (row % 100 == 0))
    early, late = 5, log.position - 3
    assert log.since(early) is None
    assert log.since(late) == [9_997 % 7 * 2, 9_998 % 7 * 2, 9_999 % 7 * 2]
