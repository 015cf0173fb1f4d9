"""Events that may make a waiting pod schedulable, and the plugins that ask for them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, IntFlag, auto

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.placement.node_usage import amount_of, asked_amounts
from grange.scheduler.podinfo import PodInfo


class Subject(Enum):
    """What an event is about."""

    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    NODE = "Node"
    NAMESPACE = "Namespace"
    ANY = "*"


_ANY = Subject.ANY  # looking a member up takes longer than all else in matches


class Action(IntFlag):
    """What happened to it; a registration may combine several."""

    ADD = auto()
    DELETE = auto()
    NODE_ALLOCATABLE = auto()
    NODE_LABEL = auto()
    NODE_ANNOTATION = auto()
    NODE_TAINT = auto()
    NODE_CONDITION = auto()
    NODE_FEATURES = auto()
    POD_LABEL = auto()
    POD_SCALE_DOWN = auto()
    POD_TOLERATION = auto()
    POD_GATES = auto()
    UPDATE = auto()


EVERYTHING = Action((1 << len(Action)) - 1)


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Something happened, or would be of interest.

    Attributes:
        action: what; of a registration, any of these.
    """

    subject: Subject
    action: Action
    # The action as a plain integer: events come by the thousand, and flags are slow to intersect.
    _bits: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Take the flags apart once."""
        object.__setattr__(self, "_bits", self.action.value)

    def matches(self, happened: "ClusterEvent") -> bool:
        """Whether an event is one of those registered here."""
        mine, its = self.subject, happened.subject
        if mine is not its and mine is not _ANY and its is not _ANY:
            return False
        return bool(self._bits & happened._bits)


LEFTOVER = ClusterEvent(Subject.ANY, EVERYTHING)
ASSIGNED_POD_ADD = ClusterEvent(Subject.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(Subject.ASSIGNED_POD, Action.DELETE)
NODE_ADD = ClusterEvent(Subject.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(Subject.NODE, Action.DELETE)
NAMESPACE_CHANGE = ClusterEvent(Subject.NAMESPACE, Action.UPDATE)

Object = Node | Pod | None
Hint = Callable[[PodInfo, Object, Object], bool]
"""Of the waiting pod and the object before and after: whether another try is worth it."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin's wish to have pods that it rejected tried again.

    Attributes:
        hint: asked for every such event; None stands for yes.
    """

    event: ClusterEvent
    hint: Hint | None = None


def node_update(old: Node, new: Node) -> ClusterEvent | None:
    """What a node's change means; None when it cannot matter to any pod."""
    action = Action(0)
    if old.status.allocatable != new.status.allocatable:
        action |= Action.NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        action |= Action.NODE_LABEL
    if old.metadata.annotations != new.metadata.annotations:
        action |= Action.NODE_ANNOTATION
    # Becoming schedulable is the removal of a taint, and no pod waits for the opposite.
    opened = old.spec.unschedulable and not new.spec.unschedulable
    if opened or old.spec.taints != new.spec.taints:
        action |= Action.NODE_TAINT
    if _conditions(old) != _conditions(new):
        action |= Action.NODE_CONDITION
    if old.status.declared_features != new.status.declared_features:
        action |= Action.NODE_FEATURES
    return ClusterEvent(Subject.NODE, action) if action else None


def _conditions(node: Node) -> dict[str, str]:
    return {item.type: item.status for item in node.status.conditions}


def pod_update(before: PodInfo, after: PodInfo, subject: Subject) -> ClusterEvent | None:
    """What a pod's change means; None when it cannot matter to any pod."""
    old, new = before.pod, after.pod
    action = Action(0)
    if old.metadata.labels != new.metadata.labels:
        action |= Action.POD_LABEL
    if old.spec.tolerations != new.spec.tolerations:
        action |= Action.POD_TOLERATION
    if old.spec.scheduling_gates and not new.spec.scheduling_gates:
        action |= Action.POD_GATES
    if before.request is not after.request and _shrank(before, after):
        action |= Action.POD_SCALE_DOWN
    if not action and old.spec != new.spec:
        action |= Action.UPDATE
    return ClusterEvent(subject, action) if action else None


def _shrank(before: PodInfo, after: PodInfo) -> bool:
    """Whether the pod asks for less of anything than before."""
    now = after.request.resources
    asked = asked_amounts(before.request.resources)
    return any(amount_of(now, name) < amount for name, amount in asked)
