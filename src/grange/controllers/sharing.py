"""Which controllers are shared out object by object; every other one is run whole by one member."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.scheme import KindInfo


@dataclass(frozen=True, slots=True)
class Sharing:
    """A controller whose objects have an owner each; its service has a ``loop`` of their keys.

    Attributes:
        kind: of the objects.
        weight: what an object asks for, for the deletion guard.
    """

    kind: KindInfo[ReplicationController]
    weight: Callable[[ReplicationController], int]


def _replicas(controller: ReplicationController) -> int:
    return controller.spec.replicas


SHARED: Mapping[str, Sharing] = {"replication": Sharing(REPLICATIONCONTROLLER, _replicas)}
"""By the name of the controller in ``TABLE``."""
