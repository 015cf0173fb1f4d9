"""A node that is stopped interrupts its programs: that is no failure of theirs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.unit.agent.builders import at, container, pod, run

from grange.agent import interrupted_runs, lifecycle, pod_status, take_over
from grange.agent.config import Timing
from grange.agent.container_runtime import PodRecord, PodSetup, Run, Sandbox
from grange.agent.lifecycle import PodTermination
from grange.agent.pod_status import PodPlace
from grange.agent.transitions import ContainerPhase
from grange.api.interrupted_restarts import CONDITION, condition, count_of
from grange.api.kinds.pod import Pod, PodStatus
from grange.api.meta import Condition, Document
from grange.base.log import Logger
from grange.base.offload import Inline

OWNER = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}]


class Node:
    """What the stop and the start of a node look at of its runtime."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(runs)
        self.stopped = False

    def pods(self) -> list[PodRecord]:
        setup = PodSetup("uid", "default", "web", "node")
        return [PodRecord(setup, Sandbox("uid", "127.0.0.2", "/none"), self.runs)]

    async def stop_all(self, grace_s: float) -> None:
        self.stopped = True
        self.runs = tuple(
            replace(one, finished_at=at(9), exit_code=143) if one.running else one
            for one in self.runs
        )


def status(view: Pod, *runs: Run) -> Document:
    """What a fresh agent reports of these runs."""
    states = lifecycle.managed_containers(view)
    for state in states:
        mine = [one for one in runs if one.id.container == state.name]
        lifecycle.adopt(state, mine, at(10), Timing(), replaced=lifecycle.is_replaced(view))
    return pod_status.build(
        view, states, PodPlace("127.0.0.1"), {}, termination=PodTermination.NONE, now=at(10)
    )


def interrupted(code: int, attempt: int = 0) -> Run:
    return replace(run("main", attempt, end=9, code=code), interrupted=True)


@pytest.mark.parametrize("code", [0, 143])
def test_interrupted_pod_was_disrupted(code: int) -> None:
    view = pod(container("main"), restartPolicy="Never", status={"phase": "Running"})
    found = status(view, interrupted(code))
    assert (found["phase"], found["reason"]) == ("Failed", "Terminated")
    (mark,) = [one for one in found["conditions"] if one["type"] == "DisruptionTarget"]
    assert (mark["status"], mark["reason"]) == ("True", "TerminationByKubelet")


def test_pod_that_failed_by_itself_was_not_disrupted() -> None:
    view = pod(container("main"), restartPolicy="Never", status={"phase": "Running"})
    found = status(view, run("main", end=9, code=143))
    assert found["phase"] == "Failed"
    assert "reason" not in found
    assert not any(one["type"] == "DisruptionTarget" for one in found["conditions"])


@pytest.mark.parametrize(
    ("policy", "owners", "goes_on"),
    [
        ("Always", [], True),
        ("Always", OWNER, True),
        ("OnFailure", [], True),
        ("OnFailure", OWNER, False),
        ("Never", OWNER, False),
    ],
)
def test_interrupted_pod_goes_on_or_is_replaced(
    policy: str, owners: list[Document], *, goes_on: bool
) -> None:
    view = pod(container("main"), restartPolicy=policy, meta={"ownerReferences": owners})
    (state,) = lifecycle.managed_containers(view)
    replaced = lifecycle.is_replaced(view)
    lifecycle.adopt(state, [interrupted(143)], at(10), Timing(), replaced=replaced)
    assert (state.phase is not ContainerPhase.DONE) == goes_on


ALWAYS = pod(container("main"), restartPolicy="Always", meta={"ownerReferences": OWNER})


def restarted(view: Pod, *runs: Run) -> tuple[int, int]:
    """What an agent that takes over these runs reports: ``restartCount``, and how many are interrupted."""
    states = lifecycle.managed_containers(view)
    take_over.adopt_runs(states, view, {"main": [*runs]}, at(10), Timing())
    place = PodPlace("127.0.0.1", interrupted_restarts=count_of(view.status.conditions))
    found = pod_status.build(view, states, place, {}, termination=PodTermination.NONE, now=at(10))
    shown = msgspec.convert(found, PodStatus)
    return shown.container_statuses[0].restart_count, count_of(shown.conditions)


def reported(restarts: int, interruptions: int) -> Pod:
    """The pod with a status that counts so many restarts."""
    status: Document = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "restartCount": restarts}],
        "conditions": [msgspec.to_builtins(condition(interruptions))] if interruptions else [],
    }
    return msgspec.structs.replace(ALWAYS, status=msgspec.convert(status, PodStatus))


def test_restart_after_a_stop_is_reported_as_interrupted() -> None:
    """Not before there is one: the two numbers are written together."""
    assert restarted(reported(0, 0), interrupted(143)) == (0, 0)
    assert restarted(reported(0, 0), interrupted(143), run("main", 1)) == (1, 1)
    assert restarted(reported(0, 0), run("main", 0, end=9, code=1), run("main", 1)) == (1, 0)


def test_interrupted_restarts_are_counted_once() -> None:
    """Also when the agent is started once more, and when it reported nothing between two stops."""
    assert restarted(reported(1, 1), interrupted(143), run("main", 1)) == (1, 1)
    again = (interrupted(143), interrupted(143, 1), run("main", 2))
    assert restarted(reported(1, 1), *again) == (2, 2)
    assert restarted(reported(0, 0), *again) == (2, 2)
    failed = (interrupted(143, 1), run("main", 2, end=9, code=1), run("main", 3))
    assert restarted(reported(2, 2), *failed) == (3, 2)


@pytest.mark.parametrize("number", ["many", "-1", "9" * 10, "9" * 5000])
def test_malformed_number_of_interrupted_restarts_is_none(number: str) -> None:
    stated = condition(0)
    wrong = Condition(CONDITION, "True", "NodeStopped", f"{stated.message[:-1]}{number}")
    assert count_of([wrong]) == count_of([]) == 0


async def test_stop_notes_what_ran(tmp_path: Path, log: Logger) -> None:
    node = Node([run("a"), run("b", end=3, code=1)])
    await interrupted_runs.stop_all(node, tmp_path, 1.0, offload=Inline(), log=log)
    assert node.stopped
    found = await interrupted_runs.take_over(node, tmp_path, Inline())
    assert found == {run("a").id}


async def test_run_that_goes_on_is_not_interrupted(tmp_path: Path, log: Logger) -> None:
    """A stop that was cut off: what it left at work may fail later by its own fault."""
    node = Node([run("a"), run("b")])
    await interrupted_runs.stop_all(node, tmp_path, 1.0, offload=Inline(), log=log)
    for left in ([run("a"), run("b", end=9, code=143)], [run("a", end=99, code=1)]):
        node.runs = tuple(left)
        found = await interrupted_runs.take_over(node, tmp_path, Inline())
        assert found == {run("b").id}


async def test_second_stop_keeps_what_the_first_interrupted(tmp_path: Path, log: Logger) -> None:
    """No agent may have reported it between the two."""
    node = Node([run("a")])
    await interrupted_runs.stop_all(node, tmp_path, 1.0, offload=Inline(), log=log)
    node.runs = (*node.runs, run("b"))
    await interrupted_runs.stop_all(node, tmp_path, 1.0, offload=Inline(), log=log)
    found = await interrupted_runs.take_over(node, tmp_path, Inline())
    assert found == {run("a").id, run("b").id}
    node.runs = ()
    await interrupted_runs.stop_all(node, tmp_path, 1.0, offload=Inline(), log=log)
    assert await interrupted_runs.take_over(node, tmp_path, Inline()) == frozenset()


async def test_stop_goes_on_without_a_note(tmp_path: Path, log: Logger) -> None:
    node = Node([run("a")])
    missing = tmp_path / "gone"
    await interrupted_runs.stop_all(node, missing, 1.0, offload=Inline(), log=log)
    assert node.stopped
    assert await interrupted_runs.take_over(node, missing, Inline()) == frozenset()
