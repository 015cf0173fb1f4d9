"""Decisions: pure, so they can be asked about every situation."""

import signal
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.agent.builders import NOW, UID, at, container, pod, run

from grange.agent import lifecycle
from grange.agent.config import Timing
from grange.agent.container_runtime import ContainerID, Run
from grange.agent.lifecycle import Abandon, ManagedContainer, PodTermination, Role, Signal, Start
from grange.agent.transitions import ALIVE, ContainerPhase

TIMING = Timing()


def states(*containers: dict[str, object], **spec: object) -> list[ManagedContainer]:
    return lifecycle.managed_containers(pod(*containers, **spec))


def ask(
    found: list[ManagedContainer],
    seconds: float = 0,
    *,
    termination: PodTermination = PodTermination.NONE,
    grace_s: float = 30,
) -> lifecycle.LifecycleDecision:
    return lifecycle.decide(
        found, at(seconds), termination=termination, grace_s=grace_s, spec_grace_s=grace_s
    )


def test_containers_without_inits_start_together() -> None:
    assert ask(states(container("a"), container("b"))).actions == (Start("a"), Start("b"))


def test_first_of_several_containers_with_one_name_counts() -> None:
    """Rules refuse such pods; one that is stored all the same is brought to its end."""
    found = states(container("a"), container("a"), container("b"))
    assert [item.name for item in found] == ["a", "b"]
    end = ask(found, termination=PodTermination.DELETED)
    assert end.actions == (Abandon("a"), Abandon("b"))


def test_init_containers_hold_the_others_back() -> None:
    found = states(initContainers=[container("i"), container("j")])
    assert ask(found).actions == (Start("i"),)
    found[0].on_created(run("i"))
    assert ask(found).actions == ()
    found[0].on_ended(run("i", end=1), NOW, TIMING, pod_ends=False)
    assert ask(found).actions == (Start("j"),)


def test_a_sidecar_holds_the_others_back_until_it_has_started() -> None:
    found = states(initContainers=[container("s", restartPolicy="Always")])
    assert found[0].role is Role.SIDECAR
    found[0].on_created(run("s"))
    assert ask(found).actions == ()
    found[0].started = True
    assert ask(found).actions == (Start("main"),)


def test_backing_off_asks_to_be_woken() -> None:
    (state,) = states()
    for attempt in range(3):
        state.on_created(run(attempt=attempt))
        state.on_ended(run(attempt=attempt, end=1, code=1), at(10), TIMING, pod_ends=False)
    assert ask([state], 10).actions == ()
    assert ask([state], 10).wake_at == at(12)
    assert ask([state], 12).actions == (Start("main"),)
    assert lifecycle.next_id(UID, state).attempt == 3


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Always", 0, ContainerPhase.BACKOFF),
        ("Always", 1, ContainerPhase.BACKOFF),
        ("OnFailure", 0, ContainerPhase.DONE),
        ("OnFailure", 1, ContainerPhase.BACKOFF),
        ("Never", 0, ContainerPhase.DONE),
        ("Never", 1, ContainerPhase.DONE),
    ],
)
def test_the_restart_policy_decides_after_an_end(
    policy: str, code: int, phase: ContainerPhase
) -> None:
    (state,) = states(restartPolicy=policy)
    state.on_created(run())
    state.on_ended(run(end=1, code=code), at(1), TIMING, pod_ends=False)
    assert state.phase is phase


@pytest.mark.parametrize(
    ("policy", "code", "phase"),
    [
        ("Always", 0, ContainerPhase.DONE),
        ("Always", 1, ContainerPhase.BACKOFF),
        ("Never", 1, ContainerPhase.DONE),
    ],
)
def test_an_init_container_is_repeated_until_it_succeeds(
    policy: str, code: int, phase: ContainerPhase
) -> None:
    state = states(initContainers=[container("i")], restartPolicy=policy)[0]
    state.on_created(run("i"))
    state.on_ended(run("i", end=1, code=code), at(1), TIMING, pod_ends=False)
    assert state.phase is phase


def test_an_ending_pod_restarts_nothing() -> None:
    (state,) = states()
    state.on_created(run())
    state.on_ended(run(end=1, code=1), at(1), TIMING, pod_ends=True)
    assert state.phase is ContainerPhase.DONE


def test_an_ending_stops_all_but_sidecars_first() -> None:
    found = states(
        container("a"), container("b"), initContainers=[container("s", restartPolicy="Always")]
    )
    for state in found[:2]:
        state.on_created(run(state.name))
    decision = ask(found, termination=PodTermination.DELETED)
    assert [type(action) for action in decision.actions] == [Signal, Abandon]
    assert decision.actions[0] == Signal("a", signal.SIGTERM, "the pod ends")
    found[1].on_stop(NOW)
    assert ask(found, 29, termination=PodTermination.DELETED).wake_at == at(30)
    killing = ask(found, 30, termination=PodTermination.DELETED).actions[0]
    assert isinstance(killing, Signal)
    assert killing.number == signal.SIGKILL
    found[1].on_ended(run("a", end=31, code=137), at(31), TIMING, pod_ends=True)
    found[2].on_abandoned()
    last = ask(found, 31, termination=PodTermination.DELETED).actions
    assert [action.container for action in last] == ["s"]


def test_no_grace_means_sigkill_at_once() -> None:
    (state,) = states()
    state.on_created(run())
    (action,) = ask([state], termination=PodTermination.DELETED, grace_s=0).actions
    assert isinstance(action, Signal)
    assert action.number == signal.SIGKILL


def test_an_unhealthy_container_is_stopped_and_then_killed() -> None:
    (state,) = states()
    state.on_created(run())
    state.unhealthy = "Liveness probe failed: stuck"
    assert ask([state]).actions == (Signal("main", signal.SIGTERM, state.unhealthy),)
    state.on_stop(NOW)
    assert ask([state], 1).wake_at == at(30)
    (kill,) = ask([state], 30).actions
    assert isinstance(kill, Signal)
    assert kill.number == signal.SIGKILL


def test_failed_creation_waits_longer_each_time() -> None:
    (state,) = states()
    waits = []
    for _ in range(9):
        state.on_refused("CreateContainerError", "no", NOW, TIMING)
        waits.append((state.due - NOW).total_seconds() if state.due else 0)
    assert waits == [0.5, 1, 2, 4, 8, 10, 10, 10, 10]


def test_what_ends_a_pod() -> None:
    found = states()
    view = pod()
    expiry = at(10)

    def termination(seconds: float, *, vanished: bool = False) -> PodTermination:
        return lifecycle.termination_of(
            view, found, at(seconds), vanished=vanished, evicted=False, expired_at=expiry
        )

    assert termination(0) is PodTermination.NONE
    assert termination(10) is PodTermination.DEADLINE
    assert termination(0, vanished=True) is PodTermination.VANISHED
    view = pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert termination(10) is PodTermination.DELETED
    view = pod()
    found[0].on_abandoned()
    assert termination(0) is PodTermination.FINISHED


def test_how_long_a_pod_may_take_to_stop() -> None:
    slow = pod(terminationGracePeriodSeconds=60)
    assert lifecycle.grace_of(slow, PodTermination.DEADLINE, TIMING) == 60
    assert lifecycle.grace_of(slow, PodTermination.VANISHED, TIMING) == TIMING.vanished_grace_s
    asked = pod(
        terminationGracePeriodSeconds=60,
        meta={"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5},
    )
    assert lifecycle.grace_of(asked, PodTermination.DELETED, TIMING) == 5


def test_taking_over_continues_the_count() -> None:
    (state,) = states()
    lifecycle.adopt(state, [run(attempt=4, end=1, code=1), run(attempt=5)], NOW, TIMING)
    assert (state.phase, state.attempt) == (ContainerPhase.RUNNING, 5)
    assert state.previous is not None
    assert state.previous.id.attempt == 4
    (other,) = states()
    lifecycle.adopt(other, [run(attempt=5, end=1, code=1)], NOW, TIMING)
    assert (other.phase, other.attempt, other.due) == (ContainerPhase.BACKOFF, 6, None)
    (fresh,) = states()
    lifecycle.adopt(fresh, [], NOW, TIMING)
    assert (fresh.phase, fresh.attempt) == (ContainerPhase.WAITING, 0)


# --- every story ends well -------------------------------------------------------------------------


@dataclass
class Machine:
    """Does what it is asked, badly: refuses, loses and ignores as the story asks."""

    draw: st.DataObject
    states: list[ManagedContainer]
    now_s: float = 0.0
    alive: set[ContainerID] = field(default_factory=set)
    started: list[ContainerID] = field(default_factory=list)

    def perform(self, action: lifecycle.Action, *, ends: bool) -> None:
        state = next(item for item in self.states if item.name == action.container)
        match action:
            case Start():
                target = lifecycle.next_id(UID, state)
                assert target not in self.started, "an attempt was started twice"
                assert not [x for x in self.alive if x.container == state.name], "doubled"
                if self.draw.draw(st.sampled_from(["ok", "ok", "refused"])) == "refused":
                    state.on_refused("CreateContainerError", "no", at(self.now_s), TIMING)
                    return
                self.started.append(target)
                self.alive.add(target)
                state.on_created(Run(target, at(self.now_s)))
                state.started = self.draw.draw(st.booleans())
            case Signal(number=signal.SIGKILL):
                state.on_kill()
                self.end(state, 137, ends=ends)
            case Signal():
                state.on_stop(at(self.now_s))
                if self.draw.draw(st.booleans()):
                    self.end(state, 143, ends=ends)
            case Abandon():
                state.on_abandoned()

    def end(self, state: ManagedContainer, code: int, *, ends: bool) -> None:
        assert state.latest is not None
        self.alive.discard(state.latest.id)
        ended = Run(
            state.latest.id,
            state.latest.started_at,
            finished_at=at(self.now_s),
            exit_code=code,
            reason="Error" if code else "Completed",
        )
        state.on_ended(ended, at(self.now_s), TIMING, pod_ends=ends)

    def happen(self, *, ends: bool) -> None:
        """Something that was not ordered."""
        for state in self.states:
            if state.phase in ALIVE:
                match self.draw.draw(st.sampled_from(["ok", "fail", "sick", "up", "-", "-"])):
                    case "ok":
                        self.end(state, 0, ends=ends)
                    case "fail":
                        self.end(state, 1, ends=ends)
                    case "sick":
                        state.unhealthy = "Liveness probe failed"
                    case "up":
                        state.started = True


@given(
    st.data(),
    st.sampled_from(["Always", "OnFailure", "Never"]),
    st.integers(0, 2),
    st.booleans(),
    st.integers(1, 2),
)
@settings(max_examples=150, deadline=None)
def test_no_story_doubles_a_container_or_outlives_its_end(
    data: st.DataObject, policy: str, inits: int, sidecar: bool, mains: int
) -> None:
    before = [container(f"i{number}") for number in range(inits)]
    if sidecar:
        before.append(container("side", restartPolicy="Always"))
    view = pod(
        *[container(f"m{number}") for number in range(mains)],
        initContainers=before,
        restartPolicy=policy,
    )
    machine = Machine(data, lifecycle.managed_containers(view))
    end_at = data.draw(st.integers(0, 12))
    termination = PodTermination.NONE
    for step in range(40):
        found = lifecycle.termination_of(
            view,
            machine.states,
            at(machine.now_s),
            vanished=step >= end_at,
            evicted=False,
            expired_at=None,
        )
        termination = (
            found
            if termination is PodTermination.NONE or found is PodTermination.VANISHED
            else termination
        )
        ends = termination is not PodTermination.NONE
        decision = lifecycle.decide(
            machine.states, at(machine.now_s), termination=termination, grace_s=5, spec_grace_s=30
        )
        for action in decision.actions:
            machine.perform(action, ends=ends)
        if not decision.actions:
            if ends and all(state.phase is ContainerPhase.DONE for state in machine.states):
                break
            if decision.wake_at is not None:
                assert decision.wake_at > at(machine.now_s)
                machine.now_s = (decision.wake_at - NOW) / timedelta(seconds=1)
        if step < end_at:
            machine.happen(ends=ends)
    assert termination is not PodTermination.NONE
    assert not machine.alive
    assert all(state.phase is ContainerPhase.DONE for state in machine.states)
