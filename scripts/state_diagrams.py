"""The diagrams of the pages: each draws a table of transitions of the source, for Mermaid."""

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from grange.agent.transitions import CONTAINER, FINISHED, POD, ContainerPhase, PodPhase
from grange.api import machine_phases
from grange.api.machine_phases import MachinePhase
from grange.controllers.gangjob.job_phase import FINAL as JOB_FINAL, JOB, JobPhase
from grange.controllers.replication import node_transfer
from grange.controllers.replication.node_transfer import TransferPhase
from grange.controllers.shared.rollout_phase import ROLLOUT, RolloutPhase
from grange.controllers.testsession.session_phase import (
    FINAL as SESSION_FINAL,
    SESSION,
    SessionPhase,
)

S = TypeVar("S", bound=Enum)
E = TypeVar("E", bound=Enum)


def diagram(table: Mapping[tuple[S, E], S], first: S, last: frozenset[S]) -> str:
    """The table as a Mermaid state diagram: events between the same two states share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), following in table.items():
        arrows.setdefault((str(state.value), str(following.value)), []).append(str(event.value))
    lines = ["stateDiagram-v2", f"    [*] --> {first.value}"]
    lines += [f"    {a} --> {b}: {' / '.join(why)}" for (a, b), why in arrows.items()]
    lines += [f"    {state.value} --> [*]" for state in type(first) if state in last]
    return "\n".join(lines) + "\n"


_ROLLOUT_ENDS = frozenset({RolloutPhase.COMPLETE, RolloutPhase.ROLLED_BACK, RolloutPhase.REFUSED})
DIAGRAMS: Mapping[str, Mapping[str, str]] = {
    "docs/reference/machines.md": {
        "State of a machine": diagram(
            machine_phases.TRANSITIONS,
            MachinePhase.CREATING,
            frozenset({MachinePhase.TERMINATED}),
        )
    },
    "docs/reference/agent.md": {
        "container": diagram(CONTAINER, ContainerPhase.WAITING, frozenset({ContainerPhase.DONE})),
        "pod": diagram(POD, PodPhase.PENDING, FINISHED),
    },
    "docs/explanation/jobs.md": {"job": diagram(JOB, JobPhase.CREATED, JOB_FINAL)},
    "docs/explanation/sessions.md": {
        "test session": diagram(SESSION, SessionPhase.QUEUED, SESSION_FINAL)
    },
    "docs/reference/rollouts.md": {
        "rollout": diagram(ROLLOUT, RolloutPhase.PENDING, _ROLLOUT_ENDS)
    },
    "docs/reference/node-transfers.md": {
        "node transfer": diagram(
            node_transfer.TRANSITIONS, TransferPhase.ALLOCATING, frozenset({TransferPhase.DONE})
        )
    },
}
"""By page and by title on it."""
