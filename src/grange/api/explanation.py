"""``Explanation``: why a pod is where it is, or why it still waits. What the ``why`` subresource answers.

Nothing stores it; it is true for the moment in which it was asked for.
"""

from enum import StrEnum

import msgspec

from grange.api import codec
from grange.api.meta import Document, ObjectMeta, View

API_VERSION = "grange.dev/v1alpha1"
KIND = "Explanation"


class SchedulingState(StrEnum):
    """How far a pod is, from the scheduler's point of view."""

    PLACED = "Placed"
    BINDING = "Binding"  # a node is decided and held for it; the API server does not know it yet
    ACTIVE = "Active"  # it is tried as soon as its turn comes
    BACKOFF = "Backoff"
    UNSCHEDULABLE = "Unschedulable"
    GATED = "Gated"
    UNSEEN = "Unseen"  # no scheduler here has it
    TERMINATING = "Terminating"
    FINISHED = "Finished"


class ReasonCount(View, frozen=True):
    """A reason, and how many nodes gave it."""

    reason: str
    nodes: int


class NearNode(View, frozen=True):
    """A node that almost would do."""

    name: str
    missing: tuple[str, ...]


class Change(View, frozen=True):
    """What would make the pod fit.

    Attributes:
        text: a clause that completes "fits on these nodes …".
        nodes: how many nodes would do then; 0 where it is about a whole gang.
        examples: some of them.
    """

    text: str
    nodes: int
    examples: tuple[str, ...] = ()


class GangRoom(View, frozen=True):
    """For how many pods of a gang there is room.

    Attributes:
        pods: how many need a node.
        room: how many of them would get one.
        when_empty: the same if no other pods were on the nodes, and none was tainted or cordoned.
    """

    pods: int
    room: int
    when_empty: int


class Choice(View, frozen=True):
    """How a node compares with the others, now and without counting the pod itself.

    Attributes:
        node: the node.
        score: its total.
        parts: the same by plugin, weighted.
        candidates: how many nodes would do.
        runner_up: the best of the others; empty when there is none.
        runner_up_score: its total.
        runner_up_parts: the same by plugin.
    """

    node: str
    score: int
    parts: dict[str, int] = msgspec.field(default_factory=dict)
    candidates: int = 0
    runner_up: str = ""
    runner_up_score: int = 0
    runner_up_parts: dict[str, int] = msgspec.field(default_factory=dict)


class Attempt(View, frozen=True):
    """One decision, or several in a row that ended alike.

    Attributes:
        result: ``scheduled``, ``unschedulable`` or ``error``.
        time: of the last of them, RFC 3339.
        since: of the first of them.
        times: how many.
        node: what was chosen.
        score: its total, without what was alike for all candidates; -1 when nothing was compared.
        message: why there was no node.
        plugins: who turned the pod down.
    """

    result: str
    time: str
    since: str
    times: int = 1
    node: str = ""
    score: int = -1
    message: str = ""
    plugins: tuple[str, ...] = ()


class Explanation(View, frozen=True):
    """The answer.

    Attributes:
        state: how far the pod is.
        summary: the same in words: a predicate, as in "pod/x waits for its turn".
        hint: what to do, where the user must act.
        node: where it is, will be, or is to be once room is made.
        waiting_since: when the scheduler first saw it.
        until: when it is tried again at the latest, unless something happens before.
        nodes: how many nodes there are.
        feasible: how many of them would do now.
        reasons: why the others would not, the most frequent first.
        gang: of a pod that waits for nodes with its gang; then reasons and changes are about all
            of its pods: why nodes take no more of them, and what would let all fit.
        nearest: nodes with the least in the way.
        changes: what would help, the cheapest first.
        choice: how its node compares, or the one that it would be given now.
        attempts: the last decisions, the newest last.
    """

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    state: SchedulingState = SchedulingState.UNSEEN
    summary: str = ""
    hint: str = ""
    node: str = ""
    waiting_since: str = ""
    until: str = ""
    nodes: int = 0
    feasible: int = 0
    reasons: tuple[ReasonCount, ...] = ()
    gang: GangRoom | None = None
    nearest: tuple[NearNode, ...] = ()
    changes: tuple[Change, ...] = ()
    choice: Choice | None = None
    attempts: tuple[Attempt, ...] = ()


def document(found: Explanation) -> Document:
    """The answer as it goes over the wire."""
    return {"apiVersion": API_VERSION, "kind": KIND, **codec.to_document(found)}
