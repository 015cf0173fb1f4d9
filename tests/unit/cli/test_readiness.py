"""When a thing counts as ready, and what the board shows until then."""

import click
import pytest

from grange.api.meta import Document
from grange.cli import readiness, session
from grange.cli.durations import parse_duration
from grange.cli.verbs.wait import parse_goal


def controller(**status: object) -> Document:
    return {
        "kind": "ReplicationController",
        "metadata": {"name": "web", "generation": 2},
        "spec": {"replicas": 3},
        "status": status,
    }


def test_a_controller_is_ready_only_for_its_present_generation() -> None:
    counts = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), 3)
    assert not readiness.ready(controller(observedGeneration=1, **counts)).done
    assert readiness.ready(controller(observedGeneration=2, **counts)).done


def test_a_short_controller_shows_how_many_and_why() -> None:
    state = readiness.ready(
        controller(
            observedGeneration=2,
            replicas=2,
            readyReplicas=1,
            conditions=[
                {"type": "Available", "status": "False", "message": "1 of 3 are available"},
                {"type": "Reconciled", "status": "False", "message": "too few nodes"},
            ],
        )
    )
    assert not state.done
    assert state.text == "1/3 ready (too few nodes)"


def test_a_node_is_ready_when_its_condition_is_true() -> None:
    node: Document = {"kind": "Node", "metadata": {"name": "a"}, "spec": {}}
    assert readiness.ready(node) == readiness.WaitState(done=False, text="not ready")
    node["status"] = {"conditions": [{"type": "Ready", "status": "Unknown", "message": "silent"}]}
    assert readiness.ready(node) == readiness.WaitState(done=False, text="silent")
    node["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert readiness.ready(node) == readiness.WaitState(done=True, text="ready")
    node["spec"] = {"unschedulable": True}
    assert readiness.ready(node) == readiness.WaitState(done=True, text="ready, cordoned")


def test_surplus_pods_are_not_ready() -> None:
    state = readiness.ready(controller(observedGeneration=2, replicas=4, readyReplicas=3))
    assert not state.done


@pytest.mark.parametrize(
    ("status", "done", "failed", "text"),
    [
        ({"phase": "Succeeded"}, True, False, "completed"),
        ({"phase": "Failed", "reason": "Evicted"}, False, True, "failed Evicted"),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, True, False, "ready"),
        (
            {
                "containerStatuses": [
                    {"name": "c", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
                ]
            },
            False,
            False,
            "c: CrashLoopBackOff",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "c",
                        "state": {"waiting": {"message": "back-off 1s"}},
                        "lastState": {"terminated": {"exitCode": 3, "reason": "Error"}},
                    }
                ]
            },
            False,
            False,
            "c: ended with exit code 3; see its log",
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "c",
                        "state": {"waiting": {"message": "back-off 4s"}},
                        "lastState": {"terminated": {"message": "no program x"}},
                    }
                ]
            },
            False,
            False,
            "c: no program x",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}]},
            False,
            False,
            "0/3 nodes",
        ),
        ({}, False, False, "pending"),
    ],
)
def test_pod_states(status: Document, done: bool, failed: bool, text: str) -> None:
    state = readiness.ready({"kind": "Pod", "status": status})
    assert (state.done, state.failed, state.text) == (done, failed, text)


def test_absence_is_not_ready_but_gone() -> None:
    assert not readiness.ready(None).done
    assert readiness.gone(None).done
    assert not readiness.gone({"metadata": {"deletionTimestamp": "x"}}).done


def test_goals_of_wait() -> None:
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    assert parse_goal("condition=Ready=false")(conditions).done
    assert not parse_goal("condition=Ready")(conditions).done
    assert parse_goal("jsonpath={.status.phase}=Running")({"status": {"phase": "Running"}}).done
    assert not parse_goal("jsonpath={.status.phase}")({"status": {}}).done
    assert parse_goal("create")({}).done
    with pytest.raises(click.UsageError):
        parse_goal("readiness")


@pytest.mark.parametrize(
    ("phase", "done", "failed", "reported"),
    [
        ("", False, False, "not begun, 0 of 3 moved"),
        ("Pending", False, False, "Pending, 0 of 3 moved: waits for two"),
        ("Progressing", False, False, "Progressing, 0 of 3 moved"),
        ("Complete", True, False, "Complete, 0 of 3 moved"),
        ("Refused", False, True, "Refused, 0 of 3 moved: expected 9"),
        ("RolledBack", False, True, "RolledBack, 0 of 3 moved: expected 9"),
    ],
)
def test_a_move_of_replicas_is_ready_when_it_is_complete(
    *, phase: str, done: bool, failed: bool, reported: str
) -> None:
    """Not as soon as it is there, as kinds are that have nothing to wait for."""
    conditions = [
        {"type": "Progressing", "message": "waits for two"},
        {"type": "RolloutFailed", "message": "expected 9"},
    ]
    state = readiness.ready(
        {
            "kind": "RollingUpdate",
            "spec": {"desired": 3},
            "status": {"phase": phase, "conditions": conditions},
        }
    )
    assert state == readiness.WaitState(done=done, text=reported, failed=failed)


def test_rollout_names_its_obstacle_unlike_its_phase() -> None:
    shown = {"type": "Progressing", "status": "False", "reason": "InvalidAnnotation"}
    state = readiness.ready(
        {
            "kind": "RollingUpdate",
            "spec": {"desired": 3},
            "status": {
                "phase": "Progressing",
                "conditions": [{**shown, "message": "kubectl annotate takes it away"}],
            },
        }
    )
    assert state.text == "Progressing, 0 of 3 moved: kubectl annotate takes it away"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("30s", 30), ("2m", 120), ("1h", 3600), ("-1s", 604800)]
)
def test_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


def test_a_duration_that_is_none_is_refused() -> None:
    with pytest.raises(click.UsageError, match="30s"):
        parse_duration("soon")


def test_names_of_objects() -> None:
    assert session.split_names(["pods"]) == [("pods", "")]
    assert session.split_names(["pods,nodes"]) == [("pods", ""), ("nodes", "")]
    assert session.split_names(["pod", "a", "b"]) == [("pod", "a"), ("pod", "b")]
    assert session.split_names(["pod/a", "grc/b"]) == [("pod", "a"), ("grc", "b")]
    for wrong in ([], ["pod/a", "b"], ["pods,nodes", "a"], ["pod/"]):
        with pytest.raises(click.UsageError):
            session.split_names(wrong)


def test_deleted_pool_shows_what_it_waits_for() -> None:
    holding = {"type": "Terminating", "status": "True", "message": "1 machine ends: m (Claimed)"}
    pool: Document = {
        "kind": "NodePool",
        "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": [holding]},
    }
    assert readiness.gone(pool).text == "terminating: 1 machine ends: m (Claimed)"
    assert readiness.gone({**pool, "status": {}}).text == "terminating"
