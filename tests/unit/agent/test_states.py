"""The tables: nothing is a dead end, nothing comes back from the end."""

from enum import Enum
from pathlib import Path

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
    for name, diagram in transitions.diagrams().items():
        assert f"<!-- {name} -->\n```mermaid\n{diagram}```\n" in page, "run make update"
