"""What the agent reports about a pod."""

from typing import Any

import pytest
from tests.unit.agent.builders import at, container, pod, run

from grange.agent import admission, lifecycle, pod_status
from grange.agent.config import Timing
from grange.agent.lifecycle import ManagedContainer, PodTermination
from grange.agent.pod_status import PodPlace
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.pod_requests import Resources, allocatable, pod_request

TIMING = Timing()
PLACE = PodPlace("127.0.0.1", "127.1.2.3")


def build(
    view: Pod,
    states: list[ManagedContainer],
    *,
    termination: PodTermination = PodTermination.NONE,
    seconds: float = 0,
) -> Document:
    return pod_status.build(view, states, PLACE, {}, termination=termination, now=at(seconds))


def conditions(document: Document) -> dict[str, str]:
    return {item["type"]: item["status"] for item in document["conditions"]}


def ended(*codes: int, policy: str = "Never") -> tuple[Pod, list[ManagedContainer]]:
    view = pod(*[container(f"c{n}") for n in range(len(codes))], restartPolicy=policy)
    states = lifecycle.managed_containers(view)
    for state, code in zip(states, codes, strict=True):
        state.on_created(run(state.name))
        state.on_ended(run(state.name, end=1, code=code), at(1), TIMING, pod_ends=False)
    return view, states


def test_nothing_has_happened_yet() -> None:
    view = pod()
    made = build(view, lifecycle.managed_containers(view))
    assert made["phase"] == "Pending"
    waiting = made["containerStatuses"][0]["state"]
    assert waiting == {"waiting": {"reason": "ContainerCreating"}}
    assert conditions(made) == {
        "PodScheduled": "True", "Initialized": "True", "ContainersReady": "False", "Ready": "False",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("codes", "phase"), [((0,), "Succeeded"), ((0, 0), "Succeeded"), ((0, 2), "Failed")]
)
def test_all_must_succeed(codes: tuple[int, ...], phase: str) -> None:
    assert build(*ended(*codes))["phase"] == phase


def test_a_restarting_pod_is_running() -> None:
    view, states = ended(1, policy="Always")
    made = build(view, states)
    assert made["phase"] == "Running"
    state = made["containerStatuses"][0]
    assert state["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert state["lastState"]["terminated"]["exitCode"] == 1


def test_a_finished_phase_stays() -> None:
    view, states = ended(0)
    finished = pod(status={"phase": "Failed"})
    assert build(finished, states)["phase"] == "Failed"
    del view


def test_times_move_only_with_their_status() -> None:
    view = pod()
    states = lifecycle.managed_containers(view)
    first = build(view, states)
    later = build(pod(status=first), states, seconds=60)
    assert later == first
    states[0].on_created(run())
    states[0].started = states[0].ready = True
    ready = build(pod(status=first), states, seconds=60)
    times = {item["type"]: item["lastTransitionTime"] for item in ready["conditions"]}
    assert times["Ready"] == "2026-01-01T12:01:00Z"
    assert times["Initialized"] == "2026-01-01T12:00:00Z"


def test_an_unseen_restart_ends_the_time_of_being_ready() -> None:
    view = pod()
    states = lifecycle.managed_containers(view)
    states[0].on_created(run(start=5))
    states[0].started = states[0].ready = True
    first = build(view, states, seconds=6)
    states = lifecycle.managed_containers(view)  # by the next agent
    states[0].on_created(run(attempt=1, start=30.5))
    states[0].started = states[0].ready = True
    second = build(pod(status=first), states, seconds=31)
    third = build(pod(status=second), states, seconds=90)
    for made, since in ((first, "06"), (second, "31"), (third, "31")):
        times = {item["type"]: item["lastTransitionTime"] for item in made["conditions"]}
        assert times["Ready"] == f"2026-01-01T12:00:{since}Z"


def test_conditions_of_others_are_not_written() -> None:
    """Patched by type, a condition that is not sent stays; one that is sent may be outdated."""
    gate = {"type": "example.com/gate", "status": "True", "lastTransitionTime": "x"}
    view = pod(status={"conditions": [gate]})
    assert gate["type"] not in conditions(build(view, lifecycle.managed_containers(view)))


GATES = [{"conditionType": "example.com/lb"}, {"conditionType": "example.com/dns"}]


@pytest.mark.parametrize(
    ("found", "ready", "expected"),
    [
        ({}, "False", 'readiness gate "example.com/lb" does not exist'),
        ({"lb": "True"}, "False", 'readiness gate "example.com/dns" does not exist'),
        ({"lb": "Unknown", "dns": "True"}, "False", '"example.com/lb" is not "True", but Unknown'),
        ({"lb": "True", "dns": "True"}, "True", ""),
    ],
)
def test_readiness_gates_hold_the_pod_back(
    found: dict[str, str], ready: str, expected: str
) -> None:
    gates = [{"type": f"example.com/{name}", "status": value} for name, value in found.items()]
    view = pod(readinessGates=GATES, status={"conditions": gates})
    states = lifecycle.managed_containers(view)
    states[0].on_created(run())
    assert {item["reason"] for item in build(view, states)["conditions"][-2:]} == {
        "ContainersNotReady"
    }
    states[0].started = states[0].ready = True
    made = build(view, states)
    assert conditions(made)["ContainersReady"] == "True"
    reported = made["conditions"][-1]
    assert (reported["type"], reported["status"]) == ("Ready", ready)
    assert reported.get("reason", "") == ("" if ready == "True" else "ReadinessGatesNotReady")
    assert expected in reported.get("message", "")


def test_a_missed_deadline_is_explained() -> None:
    view, states = ended(0)
    made = build(view, states, termination=PodTermination.DEADLINE)
    assert (made["phase"], made["reason"]) == ("Failed", "DeadlineExceeded")


def test_a_terminated_container_has_time_and_reason() -> None:
    view, states = ended(3)
    terminated = build(view, states)["containerStatuses"][0]["state"]["terminated"]
    assert terminated["startedAt"] == "2026-01-01T12:00:00Z"
    assert terminated["finishedAt"] == "2026-01-01T12:00:01Z"
    assert (terminated["exitCode"], terminated["reason"]) == (3, "Error")


def test_the_last_runs_can_be_read_back_from_a_status() -> None:
    view, states = ended(3)
    found = pod_status.runs_of(pod(container("c0"), status=build(view, states)))
    (back,) = found["c0"]
    assert (back.exit_code, back.finished_at, back.id.attempt) == (3, at(1), 0)
    (state,) = lifecycle.managed_containers(view)
    state.on_created(run("c0", attempt=2))
    running = pod_status.runs_of(pod(container("c0"), status=build(view, [state])))
    assert running["c0"][0].running
    assert running["c0"][0].id.attempt == 2


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "0"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        (
            {"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": 1, "memory": "1Gi"}},
            "Guaranteed",
        ),
        (
            {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
            "Burstable",
        ),
    ],
)
def test_quality_of_service(resources: dict[str, Any], quality: str) -> None:
    assert pod_status.qos_class(pod(container(resources=resources))) == quality


def test_one_plain_container_makes_a_pod_burstable() -> None:
    full = container("a", resources={"limits": {"cpu": "1", "memory": "1Gi"}})
    assert pod_status.qos_class(pod(full, container("b"))) == "Burstable"


# --- admission -----------------------------------------------------------------------------------


def asking(**amounts: str) -> Resources:
    view = pod(container(resources={"requests": amounts}))
    return pod_request(view.spec).resources


@pytest.mark.parametrize(
    ("wanted", "others", "reason"),
    [
        ({"cpu": "2"}, [{"cpu": "2"}], None),
        ({"cpu": "2"}, [{"cpu": "2001m"}], "OutOfcpu"),
        ({"memory": "1Gi"}, [{"memory": "8Gi"}], "OutOfmemory"),
        ({"ephemeral-storage": "1Gi"}, [{"ephemeral-storage": "1Gi"}], None),
        ({"ephemeral-storage": "1Gi"}, [{"ephemeral-storage": "1100Mi"}], "OutOfephemeral-storage"),
        ({}, [{"cpu": "9"}], None),
        ({}, [{}, {}, {}], "OutOfpods"),
        ({"example.com/gpu": "1"}, [], None),
        ({"example.com/gpu": "1"}, [{"example.com/gpu": "1"}], "OutOfexample.com/gpu"),
        ({"example.com/other": "1"}, [], "OutOfexample.com/other"),
    ],
)
def test_a_pod_is_taken_when_it_fits(
    wanted: dict[str, str], others: list[dict[str, str]], reason: str | None
) -> None:
    disk = {"ephemeral-storage": "2Gi", "example.com/gpu": "1"}
    room = {"cpu": "4", "memory": "8Gi", "pods": "3", **disk}
    held = [asking(**item) for item in others]
    refused = admission.refusal(asking(**wanted), held, allocatable(room))
    assert (refused[0] if refused else None) == reason
