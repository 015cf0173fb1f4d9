"""The tables: nothing is a dead end, nothing comes back from the end."""

import pytest
from hypothesis import given, settings, strategies as st

from grange.agent import transitions
from grange.agent.transitions import ContainerEvent, ContainerPhase, PodPhase, PodPhaseEvent
from grange.base import statemachine
from grange.base.errors import InvariantError


def following(state: ContainerPhase) -> set[ContainerPhase]:
    return {after for (before, _), after in transitions.CONTAINER.items() if before is state}


def test_every_state_is_reached_and_only_done_is_the_end() -> None:
    reached = {ContainerPhase.WAITING}
    for _ in ContainerPhase:
        reached |= {after for before in reached for after in following(before)}
    assert reached == set(ContainerPhase)
    assert [state for state in ContainerPhase if not following(state)] == [ContainerPhase.DONE]


def test_every_state_has_a_way_to_the_end() -> None:
    ending = {ContainerPhase.DONE}
    for _ in ContainerPhase:
        ending |= {state for state in ContainerPhase if following(state) & ending}
    assert ending == set(ContainerPhase)


def test_what_is_alive_ends_only_by_ending() -> None:
    for (before, event), after in transitions.CONTAINER.items():
        if before in transitions.ALIVE and after not in transitions.ALIVE:
            assert event in {ContainerEvent.ENDED, ContainerEvent.ENDED_AGAIN}


def test_a_running_container_is_never_created_again() -> None:
    for state in transitions.ALIVE | {ContainerPhase.DONE}:
        with pytest.raises(InvariantError, match=r"CREATED.*" + state.name):
            statemachine.advance(transitions.CONTAINER, state, ContainerEvent.CREATED)


@given(st.lists(st.sampled_from(list(PodPhaseEvent)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_phase_never_goes_back(events: list[PodPhaseEvent]) -> None:
    order = [PodPhase.PENDING, PodPhase.RUNNING]
    phase = PodPhase.PENDING
    for event in events:
        if phase in transitions.FINISHED:
            with pytest.raises(InvariantError):
                statemachine.advance(transitions.POD, phase, event)
            return
        after = statemachine.advance(transitions.POD, phase, event)
        assert after in transitions.FINISHED or order.index(after) >= order.index(phase)
        phase = after
