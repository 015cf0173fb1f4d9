"""An explanation in the terminal: the short answer first, then what it rests on."""

from datetime import UTC, datetime

import pytest
from tests.support.controller_world import world
from tests.unit.cli.sessions import opened

from grange.api.explanation import (
    Attempt,
    Change,
    Choice,
    Explanation,
    GangRoom,
    NearNode,
    ReasonCount,
    SchedulingState,
)
from grange.api.kinds import POD
from grange.api.status import ApiError, Forbidden, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import failures
from grange.cli.printers import explanation_text
from grange.cli.why import generic, pods, replicationcontrollers
from grange.sim import builders

NOW = datetime(2026, 1, 1, 12, 5, 0, tzinfo=UTC)


def test_a_pod_that_waits() -> None:
    found = Explanation(
        state=SchedulingState.UNSCHEDULABLE,
        summary="waits until something changes that may help",
        waiting_since="2026-01-01T12:00:00Z",
        until="2026-01-01T12:06:00Z",
        nodes=12,
        reasons=(
            ReasonCount(reason="Insufficient cpu", nodes=10),
            ReasonCount(reason="node(s) were unschedulable", nodes=2),
        ),
        nearest=(NearNode(name="a", missing=("cpu: wants 8, 3 of 4 left", "cordoned")),),
        changes=(
            Change(text="if cpu ≤ 3.5", nodes=4, examples=("a", "b", "c")),
            Change(text="if it tolerates taint k:NoSchedule", nodes=1, examples=("d",)),
            Change(text="when pod default/x on a ends", nodes=1, examples=("a",)),
        ),
        attempts=(
            Attempt(
                result="unschedulable",
                time="2026-01-01T12:04:00Z",
                since="2025-12-31T23:00:00Z",
                times=7,
                message="0/12 nodes are available: 12 Insufficient cpu.",
            ),
        ),
    )
    assert explanation_text.render("pod/big", found, now=NOW) == [
        "pod/big waits until something changes that may help",
        "  since 12:00:00Z (5m ago), tried again at 12:06:00Z at the latest (in 60s)",
        "",
        "0 of 12 nodes would do:",
        "  10  Insufficient cpu",
        "   2  node(s) were unschedulable",
        "",
        "It would fit",
        "  • on 4 nodes (a, b, c, …) if cpu ≤ 3.5",
        "  • on d if it tolerates taint k:NoSchedule",
        "  • when pod default/x on a ends",
        "",
        "Nearest nodes:",
        "  a   cpu: wants 8, 3 of 4 left",
        "      cordoned",
        "",
        "Attempts:",
        "  2025-12-31 23:00:00Z to 12:04:00Z, 7 times   "
        "0/12 nodes are available: 12 Insufficient cpu.",
    ]


def test_a_pod_that_is_placed() -> None:
    found = Explanation(
        state=SchedulingState.PLACED,
        summary="is on a",
        nodes=3,
        feasible=2,
        choice=Choice(
            node="a",
            score=470,
            parts={"TaintToleration": 300, "NodeResourcesFit": 170},
            candidates=2,
            runner_up="b",
            runner_up_score=389,
            runner_up_parts={"TaintToleration": 300, "NodeResourcesFit": 89},
        ),
        attempts=(
            Attempt(
                result="scheduled",
                time="2026-01-01T12:04:00Z",
                since="2026-01-01T12:04:00Z",
                node="a",
                score=470,
            ),
        ),
    )
    assert explanation_text.render("pod/web", found, now=NOW) == [
        "pod/web is on a",
        "",
        "Why a (2 of 3 nodes would do, as things are now and without counting the pod itself):",
        "                      a    b",
        "  TaintToleration   300  300",
        "  NodeResourcesFit  170   89",
        "  total             470  389",
        "",
        "Attempts:",
        "  12:04:00Z   a (score 470)",
    ]


def test_where_it_would_go_and_what_has_changed_since() -> None:
    choice = Choice(node="a", score=1, candidates=2, runner_up="b", runner_up_score=1)
    equal = Explanation(state=SchedulingState.ACTIVE, nodes=2, feasible=2, choice=choice)
    assert "It would go to a now (2 of 2 nodes would do):" in explanation_text.render(
        "pod/x", equal, now=NOW
    )
    assert any("Equal" in line for line in explanation_text.render("pod/x", equal, now=NOW))
    worse = Choice(node="a", score=1, candidates=2, runner_up="b", runner_up_score=9)
    later = Explanation(state=SchedulingState.PLACED, nodes=2, feasible=2, choice=worse)
    assert any("Today b" in line for line in explanation_text.render("pod/x", later, now=NOW))
    only = Choice(node="a", score=1, candidates=1)
    found = Explanation(state=SchedulingState.PLACED, nodes=2, feasible=1, choice=only)
    assert "1 of 2 nodes would do: a is the only one." in explanation_text.render(
        "pod/x", found, now=NOW
    )


def test_attempts_within_a_second_have_one_time() -> None:
    at = "2026-01-01T12:04:00Z"
    tried = Attempt(result="unschedulable", time=at, since=at, times=2, message="full")
    found = Explanation(state=SchedulingState.UNSCHEDULABLE, summary="waits", attempts=(tried,))
    assert explanation_text.render("pod/x", found, now=NOW)[-1] == "  12:04:00Z, 2 times   full"


def test_a_hint_comes_early() -> None:
    found = Explanation(
        state=SchedulingState.GATED, summary="is held back by its gates: a", hint="do this"
    )
    assert explanation_text.render("pod/x", found, now=NOW) == [
        "pod/x is held back by its gates: a",
        "What to do: do this.",
    ]


def test_gang_is_explained_as_a_whole() -> None:
    found = Explanation(
        state=SchedulingState.UNSCHEDULABLE,
        summary="waits for its gang default/g (…)",
        nodes=2,
        feasible=1,
        reasons=(ReasonCount(reason="Insufficient cpu", nodes=2),),
        gang=GangRoom(pods=6, room=4, when_empty=8),
        changes=(Change(text="if cpu ≤ 1 in each pod", nodes=0),),
    )
    assert explanation_text.render("pod/x", found, now=NOW) == [
        "pod/x waits for its gang default/g (…)",
        "",
        "4 of 6 pods fit; why 2 nodes would not take one more:",
        "  2  Insufficient cpu",
        "",
        "All of its pods would fit",
        "  • if cpu ≤ 1 in each pod",
    ]


def test_unobserved_controller_points_to_the_logs() -> None:
    fresh = {"metadata": {"generation": 1}}
    assert "grange farm status" in replicationcontrollers.unseen_lines(fresh)[0]
    seen = {**fresh, "status": {"observedGeneration": 1}}
    assert replicationcontrollers.unseen_lines(seen) == []


def test_rollout_stopped_on_purpose_names_the_next_step() -> None:
    def lines(phase: str, **spec: object) -> list[str]:
        status = {"rollout": {"phase": phase}}
        found = {"metadata": {"name": "web"}, "spec": spec, "status": status}
        return replicationcontrollers.waiting_lines(found)

    assert "remove spec.rollout.canary to go on" in lines("Waiting")[0]
    assert "grange rc rollout resume web" in lines("Paused")[0]
    assert lines("Paused", paused=True) == [], "Paused=True shows it, and resume would not help"
    assert lines("Progressing") == []
    assert replicationcontrollers.waiting_lines({"metadata": {"name": "web"}}) == []


def test_conditions_that_show_that_something_is_wrong() -> None:
    conditions = [
        {"type": "Ready", "status": "True"},
        {"type": "MemoryPressure", "status": "False"},
        {"type": "Paused", "status": "False"},
        {"type": "InsufficientNodes", "status": "False"},
        {"type": "Misplaced", "status": "False"},
        {"type": "RolloutFailed", "status": "False"},
        {"type": "AuditRefused", "status": "False"},
        {"type": "Misplaced", "status": "True", "reason": "Static"},
        {"type": "DiskPressure", "status": "True", "reason": "Full"},
        {"type": "Available", "status": "False"},
    ]
    document = {"status": {"conditions": conditions}}
    assert [item["type"] for item in failures.unmet(document)] == [
        "Misplaced",
        "DiskPressure",
        "Available",
    ]
    assert generic.unmet_lines({}) == []


@pytest.mark.parametrize("error", [NotFound, Forbidden])
async def test_a_server_without_explanations_leaves_the_pods_message(
    error: type[ApiError], clock: Clock, rng: Stream, log: Logger
) -> None:
    """Kubernetes does not know the path: it answers so, or refuses it to who may not ask for it."""
    async with world(clock, rng, log, hands=False) as there:
        document = builders.pod_document("p", requests={"cpu": "1"})
        await there.client.create(POD, document, "default")
        there.gate = lambda request: error("no") if request.path.endswith("/why") else None
        session = opened(there.deps.client, clock=clock, rng=rng, log=log)
        answer = await pods.ask(session, POD, "p")
        assert answer.lines[-1] == "(No scheduler answers: no)"
        assert answer.lines[0].startswith("pod/p: ")
