"""Which nodes are alive, which taints show it, which pods go."""

from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.unit.controllers import builders

from grange.api.kinds.node import Taint
from grange.api.kinds.pod import Pod, Toleration
from grange.api.meta import Condition
from grange.controllers.nodelifecycle import eviction, node_taints, podgc
from grange.controllers.nodelifecycle.node_health import Monitor, NodeHealth

STAMP = "2026-01-01T00:00:00Z"
UNREACHABLE = Taint(key=node_taints.UNREACHABLE, effect="NoExecute", time_added=STAMP)
DEDICATED = Taint(key="dedicated", value="db", effect="NoExecute")


def monitor(**settings: float) -> Monitor:
    return Monitor(**{"grace_s": 40.0, "clock_gap_s": 15.0, "disruption_share": 1.0, **settings})


# --- heartbeats ---------------------------------------------------------------------------------


def test_node_is_silent_when_its_lease_is_stale_for_the_grace() -> None:
    watch, node = monitor(), builders.node("a")
    watch.beat("a", "one", 0.0)
    watch.beat("a", "one", 30.0)
    assert watch.health(node, 40.0) is NodeHealth.HEALTHY
    assert watch.health(node, 40.1) is NodeHealth.SILENT
    watch.beat("a", "two", 41.0)
    assert watch.health(node, 80.0) is NodeHealth.HEALTHY


def test_a_node_that_never_had_a_lease_is_believed() -> None:
    assert monitor().health(builders.node("a"), 1e6) is NodeHealth.HEALTHY
    assert monitor().health(builders.node("a", ready=False), 0.0) is NodeHealth.NOT_READY


def test_a_monitor_that_comes_late_forgives_everybody() -> None:
    """A machine that slept, or an API that was away, must not look like dead nodes."""
    watch, nodes = monitor(), [builders.node("a"), builders.node("b")]
    for name in "ab":
        watch.beat(name, "one", 0.0)
    assert not watch.tick(nodes, 0.0)
    assert not watch.tick(nodes, 5.0)
    assert watch.tick(nodes, 3600.0)
    assert watch.health(nodes[0], 3600.0) is NodeHealth.HEALTHY
    assert watch.health(nodes[0], 3641.0) is NodeHealth.SILENT


@pytest.mark.parametrize(
    ("share", "silent", "disrupted"),
    [(1.0, "abc", True), (1.0, "ab", False), (0.55, "ab", True), (0.0, "", False)],
)
def test_cluster_is_disrupted_when_too_many_nodes_are_unhealthy(
    share: float, silent: str, disrupted: bool
) -> None:
    watch, nodes = monitor(disruption_share=share), [builders.node(name) for name in "abc"]
    for name in "abc":
        watch.beat(name, "one", 0.0)
    for now in (0.0, 10.0, 20.0, 30.0):
        watch.tick(nodes, now)
    for name in set("abc") - set(silent):
        watch.beat(name, "two", 30.0)
    watch.tick(nodes, 41.0)
    assert watch.disrupted is disrupted


# --- taints -------------------------------------------------------------------------------------


def test_taints_follow_health_and_leave_those_of_others_alone() -> None:
    held = (DEDICATED,)
    silent = node_taints.wanted(held, NodeHealth.SILENT, may_execute=True, now=STAMP)
    assert [(t.key, t.effect) for t in silent] == [
        ("dedicated", "NoExecute"),
        (node_taints.UNREACHABLE, "NoSchedule"),
        (node_taints.UNREACHABLE, "NoExecute"),
    ]
    assert node_taints.wanted(silent, NodeHealth.SILENT, may_execute=False, now="later") == silent
    unready = node_taints.wanted(silent, NodeHealth.NOT_READY, may_execute=False, now=STAMP)
    assert [(t.key, t.effect) for t in unready] == [
        ("dedicated", "NoExecute"),
        (node_taints.NOT_READY, "NoSchedule"),
    ]
    assert node_taints.wanted(unready, NodeHealth.HEALTHY, may_execute=False, now=STAMP) == held
    assert node_taints.wanted(silent, NodeHealth.NEW, may_execute=False, now=STAMP) == silent
    assert node_taints.lifted(silent) == silent[:2]


# --- evictions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "tolerations", "stay"),
    [
        ([], [], None),
        ([Taint(key="x", effect="NoSchedule")], [], None),
        ([DEDICATED], [], 0.0),
        ([UNREACHABLE], [], 300.0),
        ([UNREACHABLE], [Toleration(operator="Exists")], None),
        ([UNREACHABLE], [Toleration(operator="Exists", toleration_seconds=20)], 20.0),
        ([UNREACHABLE], [Toleration(operator="Exists", toleration_seconds=-5)], 0.0),
        (
            [UNREACHABLE],
            [
                Toleration(operator="Exists"),
                Toleration(key=node_taints.UNREACHABLE, operator="Exists", toleration_seconds=7),
            ],
            7.0,
        ),
        (
            [UNREACHABLE, DEDICATED],
            [Toleration(key="dedicated", value="db", toleration_seconds=9)],
            9.0,
        ),
    ],
)
def test_a_pod_stays_as_long_as_its_tolerations_last(
    held: list[Taint], tolerations: list[Toleration], stay: float | None
) -> None:
    assert eviction.stay_s(held, tolerations, default_s=300.0) == stay


def test_only_health_taints_wait_for_the_cluster_to_recover() -> None:
    assert eviction.is_only_health([UNREACHABLE, Taint(key="x", effect="NoSchedule")])
    assert not eviction.is_only_health([UNREACHABLE, DEDICATED])


# --- pods that are not taken away -----------------------------------------------------------------


def test_pods_without_a_node_are_orphans_after_the_grace_period() -> None:
    owner = builders.controller()
    lost, fine = builders.pod(owner, node="gone"), builders.pod(owner, node="a")
    waiting = builders.pod(owner, node="gone", bound=False, name="waiting")
    orphans = podgc.Orphans(10.0)
    assert orphans.due([lost, fine, waiting], {"a"}, 0.0) == []
    assert orphans.due([lost, fine, waiting], {"a"}, 9.0) == []
    assert orphans.wait_s(9.0) == 1.0
    assert orphans.due([lost, fine, waiting], {"a"}, 10.0) == [lost]
    assert orphans.due([lost], {"a", "gone"}, 11.0) == []
    assert orphans.wait_s(11.0) is None
    assert orphans.due([lost], {"a"}, 12.0) == []


def on_a_machine(name: str, phase: str, restart: str = "Never", **facts: Any) -> Pod:
    """A pod that asked for a machine of a pool, which is gone."""
    made = builders.pod(builders.controller(), node="gone", name=name, phase=phase, **facts)
    selector = {"grange.dev/node-pool": "p"}
    spec = structs.replace(made.spec, node_selector=selector, restart_policy=restart)
    return structs.replace(made, spec=spec)


def test_results_outlive_the_machines_made_for_them() -> None:
    ended = [on_a_machine(phase.lower(), phase) for phase in ("Succeeded", "Failed")]
    mark = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    others = [
        on_a_machine("running", "Running"),
        on_a_machine("evicted", "Failed", "Always"),
        on_a_machine("deleted", "Succeeded", deleted=True),
        on_a_machine("lost", "Failed", conditions=[mark]),
        builders.pod(builders.controller(), node="gone", name="shared", phase="Succeeded"),
    ]
    orphans = podgc.Orphans(10.0)
    assert orphans.due([*ended, *others], {"a"}, 0.0) == []
    assert orphans.due([*ended, *others], {"a"}, 10.0) == others
    assert {pod.metadata.name for pod in podgc.surplus([*ended, *others], 0)} >= {
        "succeeded",
        "failed",
    }


def test_finished_pods_beyond_the_bound_go_oldest_first() -> None:
    owner = builders.controller()
    ended = [
        builders.pod(
            owner, node="a", name=f"p{n}", phase="Failed", created=f"2026-01-01T00:00:0{n}Z"
        )
        for n in (3, 1, 2)
    ]
    running = builders.pod(owner, node="b")
    assert [p.metadata.name for p in podgc.surplus([*ended, running], 1)] == ["p1", "p2"]
    assert podgc.surplus(ended, 3) == []


def test_terminating_pods_of_out_of_service_node_are_collected() -> None:
    owner = builders.controller()
    going = builders.pod(owner, node="a", deleted=True)
    staying = builders.pod(owner, node="a", name="staying")
    assert podgc.out_of_service([going, staying], {"a"}) == [going]


# --- pressure -----------------------------------------------------------------------------------


def test_taint_of_disk_pressure_follows_the_condition() -> None:
    node = builders.node("a")
    held = (DEDICATED,)
    assert node_taints.with_pressures(node, held, now=STAMP) == held
    pressed = msgspec.structs.replace(
        node,
        status=msgspec.structs.replace(
            node.status, conditions=(*node.status.conditions, Condition("DiskPressure", "True"))
        ),
    )
    taint = Taint(key="node.kubernetes.io/disk-pressure", effect="NoSchedule", time_added=STAMP)
    tainted = node_taints.with_pressures(pressed, held, now=STAMP)
    assert tainted == (DEDICATED, taint)
    assert node_taints.with_pressures(pressed, tainted, now="later") == tainted
    assert node_taints.with_pressures(node, tainted, now="later") == held
