"""The tables: nothing is a dead end, nothing comes back from the end."""

from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from grange.agent import states
from grange.agent.states import Event, Phase, PhaseEvent, State
from grange.base import statemachine
from grange.base.errors import InvariantError


def following(state: State) -> set[State]:
    return {after for (before, _), after in states.CONTAINER.items() if before is state}


def test_every_state_is_reached_and_only_done_is_the_end() -> None:
    reached = {State.WAITING}
    for _ in State:
        reached |= {after for before in reached for after in following(before)}
    assert reached == set(State)
    assert [state for state in State if not following(state)] == [State.DONE]


def test_every_state_has_a_way_to_the_end() -> None:
    ending = {State.DONE}
    for _ in State:
        ending |= {state for state in State if following(state) & ending}
    assert ending == set(State)


def test_what_is_alive_ends_only_by_ending() -> None:
    for (before, event), after in states.CONTAINER.items():
        if before in states.ALIVE and after not in states.ALIVE:
            assert event in {Event.ENDED, Event.ENDED_AGAIN}


def test_a_running_container_is_never_created_again() -> None:
    for state in states.ALIVE | {State.DONE}:
        with pytest.raises(InvariantError, match=r"CREATED.*" + state.name):
            statemachine.advance(states.CONTAINER, state, Event.CREATED)


@given(st.lists(st.sampled_from(list(PhaseEvent)), max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_phase_never_goes_back(events: list[PhaseEvent]) -> None:
    order = [Phase.PENDING, Phase.RUNNING]
    phase = Phase.PENDING
    for event in events:
        if phase in states.FINISHED:
            with pytest.raises(InvariantError):
                statemachine.advance(states.POD, phase, event)
            return
        after = statemachine.advance(states.POD, phase, event)
        assert after in states.FINISHED or order.index(after) >= order.index(phase)
        phase = after


class Light(Enum):
    RED = "Red"
    GREEN = "Green"


class Switch(Enum):
    ON = "on"
    KEEP = "keep"
    OFF = "off"


def test_a_diagram_draws_each_pair_once() -> None:
    table = {
        (Light.RED, Switch.ON): Light.GREEN,
        (Light.RED, Switch.KEEP): Light.GREEN,
        (Light.GREEN, Switch.OFF): Light.RED,
    }
    assert statemachine.diagram(table, Light.RED, frozenset({Light.GREEN})) == (
        "stateDiagram-v2\n"
        "    [*] --> Red\n"
        "    Red --> Green: on / keep\n"
        "    Green --> Red: off\n"
        "    Green --> [*]\n"
    )


def test_the_documentation_shows_the_tables_as_they_are() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "agent.md").read_text()
    for name, diagram in states.diagrams().items():
        assert f"<!-- {name} -->\n```mermaid\n{diagram}```\n" in page, "run make update"
