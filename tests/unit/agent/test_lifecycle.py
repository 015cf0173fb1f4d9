"""Decisions: pure, so they can be asked about every situation."""

import signal
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.agent.builders import NOW, UID, at, container, pod, run

from grange.agent import lifecycle
from grange.agent.config import Timing
from grange.agent.lifecycle import Abandon, Ending, Role, Signal, Start, Track
from grange.agent.runtime import ContainerID, Run
from grange.agent.states import ALIVE, State

TIMING = Timing()


def tracks(*containers: dict[str, object], **spec: object) -> list[Track]:
    return lifecycle.tracks_of(pod(*containers, **spec))


def ask(
    found: list[Track], seconds: float = 0, *, ending: Ending = Ending.NONE, grace_s: float = 30
) -> lifecycle.Decision:
    return lifecycle.decide(
        found, at(seconds), ending=ending, grace_s=grace_s, spec_grace_s=grace_s
    )


def test_containers_without_inits_start_together() -> None:
    assert ask(tracks(container("a"), container("b"))).actions == (Start("a"), Start("b"))


def test_init_containers_hold_the_others_back() -> None:
    found = tracks(initContainers=[container("i"), container("j")])
    assert ask(found).actions == (Start("i"),)
    found[0].on_created(run("i"))
    assert ask(found).actions == ()
    found[0].on_ended(run("i", end=1), NOW, TIMING, pod_ends=False)
    assert ask(found).actions == (Start("j"),)


def test_a_sidecar_holds_the_others_back_until_it_has_started() -> None:
    found = tracks(initContainers=[container("s", restartPolicy="Always")])
    assert found[0].role is Role.SIDECAR
    found[0].on_created(run("s"))
    assert ask(found).actions == ()
    found[0].started = True
    assert ask(found).actions == (Start("main"),)


def test_backing_off_asks_to_be_woken() -> None:
    (track,) = tracks()
    for attempt in range(3):
        track.on_created(run(attempt=attempt))
        track.on_ended(run(attempt=attempt, end=1, code=1), at(10), TIMING, pod_ends=False)
    assert ask([track], 10).actions == ()
    assert ask([track], 10).wake_at == at(12)
    assert ask([track], 12).actions == (Start("main"),)
    assert lifecycle.next_id(UID, track).attempt == 3


@pytest.mark.parametrize(
    ("policy", "code", "state"),
    [
        ("Always", 0, State.BACKOFF),
        ("Always", 1, State.BACKOFF),
        ("OnFailure", 0, State.DONE),
        ("OnFailure", 1, State.BACKOFF),
        ("Never", 0, State.DONE),
        ("Never", 1, State.DONE),
    ],
)
def test_the_restart_policy_decides_after_an_end(policy: str, code: int, state: State) -> None:
    (track,) = tracks(restartPolicy=policy)
    track.on_created(run())
    track.on_ended(run(end=1, code=code), at(1), TIMING, pod_ends=False)
    assert track.state is state


@pytest.mark.parametrize(
    ("policy", "code", "state"),
    [("Always", 0, State.DONE), ("Always", 1, State.BACKOFF), ("Never", 1, State.DONE)],
)
def test_an_init_container_is_repeated_until_it_succeeds(
    policy: str, code: int, state: State
) -> None:
    track = tracks(initContainers=[container("i")], restartPolicy=policy)[0]
    track.on_created(run("i"))
    track.on_ended(run("i", end=1, code=code), at(1), TIMING, pod_ends=False)
    assert track.state is state


def test_an_ending_pod_restarts_nothing() -> None:
    (track,) = tracks()
    track.on_created(run())
    track.on_ended(run(end=1, code=1), at(1), TIMING, pod_ends=True)
    assert track.state is State.DONE


def test_an_ending_stops_all_but_sidecars_first() -> None:
    found = tracks(
        container("a"), container("b"), initContainers=[container("s", restartPolicy="Always")]
    )
    for track in found[:2]:
        track.on_created(run(track.name))
    decision = ask(found, ending=Ending.DELETED)
    assert [type(action) for action in decision.actions] == [Signal, Abandon]
    assert decision.actions[0] == Signal("a", signal.SIGTERM, "the pod ends")
    found[1].on_stop(NOW)
    assert ask(found, 29, ending=Ending.DELETED).wake_at == at(30)
    killing = ask(found, 30, ending=Ending.DELETED).actions[0]
    assert isinstance(killing, Signal)
    assert killing.number == signal.SIGKILL
    found[1].on_ended(run("a", end=31, code=137), at(31), TIMING, pod_ends=True)
    found[2].on_abandoned()
    last = ask(found, 31, ending=Ending.DELETED).actions
    assert [action.container for action in last] == ["s"]


def test_no_grace_means_sigkill_at_once() -> None:
    (track,) = tracks()
    track.on_created(run())
    (action,) = ask([track], ending=Ending.DELETED, grace_s=0).actions
    assert isinstance(action, Signal)
    assert action.number == signal.SIGKILL


def test_an_unhealthy_container_is_stopped_and_then_killed() -> None:
    (track,) = tracks()
    track.on_created(run())
    track.unhealthy = "Liveness probe failed: stuck"
    assert ask([track]).actions == (Signal("main", signal.SIGTERM, track.unhealthy),)
    track.on_stop(NOW)
    assert ask([track], 1).wake_at == at(30)
    (kill,) = ask([track], 30).actions
    assert isinstance(kill, Signal)
    assert kill.number == signal.SIGKILL


def test_failed_creation_waits_longer_each_time() -> None:
    (track,) = tracks()
    waits = []
    for _ in range(9):
        track.on_refused("CreateContainerError", "no", NOW, TIMING)
        waits.append((track.due - NOW).total_seconds() if track.due else 0)
    assert waits == [0.5, 1, 2, 4, 8, 10, 10, 10, 10]


def test_what_ends_a_pod() -> None:
    found = tracks()
    view = pod()
    expiry = at(10)

    def ending(seconds: float, *, vanished: bool = False) -> Ending:
        return lifecycle.ending_of(view, found, at(seconds), vanished=vanished, expired_at=expiry)

    assert ending(0) is Ending.NONE
    assert ending(10) is Ending.DEADLINE
    assert ending(0, vanished=True) is Ending.VANISHED
    view = pod(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert ending(10) is Ending.DELETED
    view = pod()
    found[0].on_abandoned()
    assert ending(0) is Ending.FINISHED


def test_how_long_a_pod_may_take_to_stop() -> None:
    slow = pod(terminationGracePeriodSeconds=60)
    assert lifecycle.grace_of(slow, Ending.DEADLINE, TIMING) == 60
    assert lifecycle.grace_of(slow, Ending.VANISHED, TIMING) == TIMING.vanished_grace_s
    asked = pod(
        terminationGracePeriodSeconds=60,
        meta={"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5},
    )
    assert lifecycle.grace_of(asked, Ending.DELETED, TIMING) == 5


def test_taking_over_continues_the_count() -> None:
    (track,) = tracks()
    lifecycle.adopt(track, [run(attempt=4, end=1, code=1), run(attempt=5)], NOW, TIMING)
    assert (track.state, track.attempt) == (State.RUNNING, 5)
    assert track.previous is not None
    assert track.previous.id.attempt == 4
    (other,) = tracks()
    lifecycle.adopt(other, [run(attempt=5, end=1, code=1)], NOW, TIMING)
    assert (other.state, other.attempt, other.due) == (State.BACKOFF, 6, None)
    (fresh,) = tracks()
    lifecycle.adopt(fresh, [], NOW, TIMING)
    assert (fresh.state, fresh.attempt) == (State.WAITING, 0)


# --- every story ends well -------------------------------------------------------------------------


@dataclass
class Machine:
    """Does what it is told, badly: refuses, loses and ignores as the story says."""

    draw: st.DataObject
    tracks: list[Track]
    now_s: float = 0.0
    alive: set[ContainerID] = field(default_factory=set)
    started: list[ContainerID] = field(default_factory=list)

    def perform(self, action: lifecycle.Action, *, ends: bool) -> None:
        track = next(item for item in self.tracks if item.name == action.container)
        match action:
            case Start():
                target = lifecycle.next_id(UID, track)
                assert target not in self.started, "an attempt was started twice"
                assert not [x for x in self.alive if x.container == track.name], "doubled"
                if self.draw.draw(st.sampled_from(["ok", "ok", "refused"])) == "refused":
                    track.on_refused("CreateContainerError", "no", at(self.now_s), TIMING)
                    return
                self.started.append(target)
                self.alive.add(target)
                track.on_created(Run(target, at(self.now_s)))
                track.started = self.draw.draw(st.booleans())
            case Signal(number=signal.SIGKILL):
                track.on_kill()
                self.end(track, 137, ends=ends)
            case Signal():
                track.on_stop(at(self.now_s))
                if self.draw.draw(st.booleans()):
                    self.end(track, 143, ends=ends)
            case Abandon():
                track.on_abandoned()

    def end(self, track: Track, code: int, *, ends: bool) -> None:
        assert track.latest is not None
        self.alive.discard(track.latest.id)
        ended = Run(
            track.latest.id,
            track.latest.started_at,
            finished_at=at(self.now_s),
            exit_code=code,
            reason="Error" if code else "Completed",
        )
        track.on_ended(ended, at(self.now_s), TIMING, pod_ends=ends)

    def happen(self, *, ends: bool) -> None:
        """Something that nobody ordered."""
        for track in self.tracks:
            if track.state in ALIVE:
                match self.draw.draw(st.sampled_from(["ok", "fail", "sick", "up", "-", "-"])):
                    case "ok":
                        self.end(track, 0, ends=ends)
                    case "fail":
                        self.end(track, 1, ends=ends)
                    case "sick":
                        track.unhealthy = "Liveness probe failed"
                    case "up":
                        track.started = True


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
    machine = Machine(data, lifecycle.tracks_of(view))
    end_at = data.draw(st.integers(0, 12))
    ending = Ending.NONE
    for step in range(40):
        found = lifecycle.ending_of(
            view, machine.tracks, at(machine.now_s), vanished=step >= end_at, expired_at=None
        )
        ending = found if ending is Ending.NONE or found is Ending.VANISHED else ending
        ends = ending is not Ending.NONE
        decision = lifecycle.decide(
            machine.tracks, at(machine.now_s), ending=ending, grace_s=5, spec_grace_s=30
        )
        for action in decision.actions:
            machine.perform(action, ends=ends)
        if not decision.actions:
            if ends and all(track.state is State.DONE for track in machine.tracks):
                break
            if decision.wake_at is not None:
                assert decision.wake_at > at(machine.now_s)
                machine.now_s = (decision.wake_at - NOW) / timedelta(seconds=1)
        if step < end_at:
            machine.happen(ends=ends)
    assert ending is not Ending.NONE
    assert not machine.alive
    assert all(track.state is State.DONE for track in machine.tracks)
