"""Eligibility, status, held places and slow start: the parts between decision and API."""

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.controllers import builders

from grange.api import conditions, rollouts, timestamps
from grange.api.kinds.node import Taint
from grange.api.kinds.pod import is_active
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.status import Forbidden
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.controllers.replication import logic, status_conditions
from grange.controllers.replication.node_eligibility import AllocationRefused, NodeScheduler
from grange.controllers.replication.node_transfer_service import TransferResult
from grange.controllers.replication.plan import Inputs
from grange.controllers.replication.state import PodBackoff, ReplicationState
from grange.controllers.shared import availability
from grange.reconcile.control import slow_start

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


# --- eligible nodes -----------------------------------------------------------------------------


async def test_eligible_nodes_are_selected_ready_tolerated_and_sorted(clock: Clock) -> None:
    dedicated = Taint(key="dedicated", value="db", effect="NoSchedule")
    there = [
        builders.node("z", labels={"zone": "a"}),
        builders.node("b", labels={"zone": "a"}),
        builders.node("other-zone", labels={"zone": "b"}),
        builders.node("not-ready", labels={"zone": "a"}, ready=False),
        builders.node("cordoned", labels={"zone": "a"}, unschedulable=True),
        builders.node("tainted", labels={"zone": "a"}, taints=[dedicated]),
    ]
    scheduler = NodeScheduler(there, clock=clock)
    owner = builders.controller(nodeSelector={"matchLabels": {"zone": "a"}})
    assert list((await scheduler.eligible_nodes())(owner)) == ["b", "z"]
    tolerant = builders.controller(
        template={"spec": {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"zone": "a"}}}
    )
    assert list((await scheduler.eligible_nodes())(tolerant)) == ["b", "cordoned", "tainted", "z"]


async def test_eligible_nodes_are_computed_again_when_nodes_change(clock: Clock) -> None:
    there = [builders.node("a")]
    scheduler = NodeScheduler(there, clock=clock)
    owner = builders.controller()
    assert list((await scheduler.eligible_nodes())(owner)) == ["a"]
    there.append(builders.node("b"))
    scheduler.nodes_changed()
    assert list((await scheduler.eligible_nodes())(owner)) == ["a", "b"]


async def test_node_scheduler_without_pool_refuses_to_allocate(clock: Clock) -> None:
    scheduler = NodeScheduler([], clock=clock)
    owner = builders.controller()
    with pytest.raises(AllocationRefused, match=r": 1 more node wanted, .*label nodes"):
        await scheduler.allocate_nodes(owner, 1, request_id="one")
    with pytest.raises(AllocationRefused, match=r": 2 more nodes wanted, .*label nodes"):
        await scheduler.allocate_nodes(owner, 2, request_id="two")
    with pytest.raises(AllocationRefused):
        await scheduler.deallocate_nodes(owner, ["a"])


# --- status -------------------------------------------------------------------------------------


def outcome(situation: Inputs, failure: str = "") -> status_conditions.ReconcileOutcome:
    owner, owned = situation.controller, [pod for pod in situation.owned if is_active(pod)]
    health = availability.observe(owner, owned, situation.down, NOW)
    situation = dataclasses.replace(situation, health=health)
    error = GrangeError(failure) if failure else None
    return status_conditions.ReconcileOutcome(situation, logic.plan(situation), failure=error)


def conditions_of(result: status_conditions.ReconcileOutcome) -> dict[str, tuple[str, str]]:
    made = status_conditions.status_of(result, NOW)
    return {item.type: (item.status, item.reason) for item in made.conditions}


def message(result: status_conditions.ReconcileOutcome, kind: str) -> str:
    made = status_conditions.status_of(result, NOW)
    return next(item.message for item in made.conditions if item.type == kind)


def test_complete_controller_status_is_available_and_reconciled() -> None:
    owner = builders.controller(replicas=2)
    owned = [builders.pod(owner, node=node) for node in "ab"]
    result = outcome(builders.inputs(owner, owned, ["a", "b"]))
    assert conditions_of(result) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Reconciled": ("True", "ReplicasReady"),
        "InsufficientNodes": ("False", "EnoughEligibleNodes"),
        "Misplaced": ("False", "AllOnEligibleNodes"),
        "Paused": ("False", "NotPaused"),
        "Progressing": ("True", "RollingOut"),
        "RolloutFailed": ("False", "NotFailed"),
        "AuditRefused": ("False", "NothingRefused"),
    }


@pytest.mark.parametrize(
    ("have", "wanted", "expected"),
    [
        (1, 0, ("1 replica is available, 0 wanted", "1 replica exists, 0 wanted")),
        (4, 0, ("4 replicas are available, 0 wanted", "4 replicas exist, 0 wanted")),
        (2, 3, ("2 of 3 replicas are available", "2 of 3 replicas exist")),
    ],
)
def test_status_counts_in_words_that_can_be_true(
    have: int, wanted: int, expected: tuple[str, str]
) -> None:
    owner = builders.controller(replicas=wanted)
    owned = [builders.pod(owner, node=node) for node in "abcd"[:have]]
    result = outcome(builders.inputs(owner, owned, ["a", "b", "c", "d"]))
    assert (message(result, "Available"), message(result, "Reconciled")) == expected


@pytest.mark.parametrize(
    ("old", "expected"),
    [
        ("a", "1 pod is moving from a (Starting)"),
        ("ab", "2 pods are moving from a (Starting), b (Starting)"),
    ],
)
def test_status_shows_what_is_moving(old: str, expected: str) -> None:
    result = outcome(builders.inputs(builders.controller(replicas=0), [], ["a", "b"]))
    after = [NodeTransfer(node, "Starting", node, f"web-{node}", f"uid-{node}") for node in old]
    assert (
        message(dataclasses.replace(result, transfers=TransferResult(after=after)), "Misplaced")
        == expected
    )


@pytest.mark.parametrize(
    ("spec", "nodes", "failure", "reason"),
    [
        ({"replicas": 2}, ["a", "b"], "", "Scaling"),
        ({"replicas": 2}, ["a"], "", "InsufficientNodes"),
        ({"replicas": 1, "paused": True}, ["a"], "", "Paused"),
        ({"replicas": 1, "podLabels": {"new": "label"}}, ["a"], "", "Repairing"),
        ({"replicas": 1, "template": {"spec": {}}}, ["a"], "", "Outdated"),
        ({"replicas": 1}, ["a"], "the server is full", "WriteFailed"),
    ],
)
def test_status_shows_why_a_controller_is_not_reconciled(
    spec: dict[str, Any], nodes: list[str], failure: str, reason: str
) -> None:
    made = builders.pod(builders.controller(), node="a")
    owner = builders.controller(**spec)
    result = outcome(builders.inputs(owner, [made], nodes), failure)
    assert conditions_of(result)["Reconciled"] == ("False", reason)


def test_status_is_equal_when_nothing_changed() -> None:
    """So that it is written once and not after every pass."""
    owner = builders.controller(replicas=1)
    result = outcome(builders.inputs(owner, [builders.pod(owner, node="a")], ["a"]))
    first = status_conditions.status_of(result, NOW)
    known = replace(owner, status=first)
    again = outcome(builders.inputs(known, [builders.pod(owner, node="a")], ["a"]))
    assert status_conditions.status_of(again, NOW + timedelta(hours=1)) == first


def test_w14_pods_on_a_node_that_is_down_are_not_ready() -> None:
    """In P2 stale health counted as passing."""
    owner = builders.controller(replicas=2)
    owned = [builders.pod(owner, node=node) for node in "ab"]
    result = outcome(builders.inputs(owner, owned, ["b"], down=frozenset("a")))
    assert result.inputs.health.ready == 1
    assert conditions_of(result)["Available"][0] == "False"


def test_a_pod_is_available_only_after_being_ready_long_enough() -> None:
    owner = builders.controller(replicas=1, rollout={"minReadySeconds": 30})
    since = timestamps.rfc3339(NOW - timedelta(seconds=20))
    result = outcome(
        builders.inputs(owner, [builders.pod(owner, node="a", ready_since=since)], ["a"])
    )
    assert (
        result.inputs.health.ready,
        len(result.inputs.health.available),
        result.inputs.health.next_available_s,
    ) == (1, 0, 10.0)


def test_condition_keeps_its_time_while_its_status_stays() -> None:
    owner = builders.controller(replicas=2)
    first = status_conditions.status_of(outcome(builders.inputs(owner, [], [])), NOW)
    later = NOW + timedelta(minutes=1)
    second = status_conditions.status_of(
        outcome(builders.inputs(replace(owner, status=first), [], ["a"])), later
    )
    before = conditions.find(first.conditions, "InsufficientNodes")
    after = conditions.find(second.conditions, "InsufficientNodes")
    assert before is not None
    assert after is not None
    assert before.message != after.message
    assert before.last_transition_time == after.last_transition_time == timestamps.rfc3339(NOW)


@pytest.mark.parametrize(
    ("value", "replicas", "down", "up"),
    [(2, 10, 2, 2), ("25%", 10, 2, 3), ("25%", 3, 0, 1), ("100%", 4, 4, 4), ("odd", 4, 0, 0)],
)
def test_share_of_replicas_rounds_down_or_up(
    value: int | str, replicas: int, down: int, up: int
) -> None:
    assert rollouts.share(value, replicas) == down
    assert rollouts.share(value, replicas, up=True) == up


# --- held places --------------------------------------------------------------------------------


def test_places_of_finishing_pods_are_held_longer_and_longer() -> None:
    owner = builders.controller()
    replacements = PodBackoff(Exponential(initial_s=1.0, cap_s=4.0), reset_s=100.0)
    now, waits = 1000.0, []
    for number in range(5):
        failed = builders.pod(owner, node="a", phase="Failed", uid=f"pod-{number}")
        held, due_s = replacements.held("rc", [failed], now)
        assert bool(held) == (due_s is not None)
        waits.append(due_s or 0.0)
        now += due_s or 0.0
        assert replacements.held("rc", [failed], now) == (frozenset(), None)
        replacements.held("rc", [], now)
    assert waits == [0.0, 1.0, 2.0, 4.0, 4.0]
    calm = builders.pod(owner, node="a", phase="Failed", uid="much-later")
    assert replacements.held("rc", [calm], now + 101.0) == (frozenset(), None)


def test_pods_that_finish_together_are_one_round() -> None:
    owner = builders.controller()
    replacements = PodBackoff(Exponential(initial_s=1.0), reset_s=100.0)
    batch = [builders.pod(owner, node=node, phase="Failed") for node in "abcd"]
    assert replacements.held("rc", batch, 0.0) == (frozenset(), None)
    one = builders.pod(owner, node="a", phase="Failed", uid="second")
    assert replacements.held("rc", [one], 0.0)[1] == 1.0


# --- slow start ---------------------------------------------------------------------------------


async def test_slow_start_doubles_and_stops_at_the_first_error_batch() -> None:
    tried: list[int] = []

    async def act(item: int) -> None:
        tried.append(item)
        if item in {4, 5}:
            raise Forbidden(f"not {item}")

    error = await slow_start(range(20), act)
    assert error is not None
    assert error.message == "not 4"
    assert tried == [0, 1, 2, 3, 4, 5, 6]


async def test_slow_start_touches_everything_when_nothing_fails() -> None:
    tried: list[int] = []

    async def act(item: int) -> None:
        tried.append(item)

    assert await slow_start(range(20), act) is None
    assert tried == list(range(20))


async def test_controller_that_no_budget_keeps_is_not_remembered(clock: Clock, log: Logger) -> None:
    """A change of a budget brings about passes of those that wait for one, and of no others."""
    memory = ReplicationState(PodBackoff(Exponential(initial_s=1.0), 600.0), clock=clock)
    waiting, going = (builders.controller(name, uid=f"uid-{name}") for name in ("one", "two"))
    for controller in (waiting, going):
        memory.wait_for_budget(controller, waits=True)
    memory.wait_for_budget(going, waits=False)
    assert memory.kept_by_budget == {"uid-one": waiting.key}
    memory.forget("uid-one")
    assert memory.kept_by_budget == {}
