"""ReplicationController of grange.dev: so many copies of a pod, on nodes that fit."""

from typing import Any

import msgspec

from grange.api.meta import Condition, Document, LabelSelector, Resource, View


class Rollout(View, frozen=True):
    """How a change of the template spreads; percentages are of ``replicas``."""

    max_unavailable: int | str = "25%"
    max_surge: int | str = "25%"
    min_ready_seconds: int = 0
    progress_deadline_seconds: int = 600


class ReplicationControllerSpec(View, frozen=True):
    """What is wanted.

    Attributes:
        replicas: how many pods; required, never defaulted.
        node_selector: label selector over nodes; empty means every node.
        placement: ``OnePerNode`` or ``Packed``.
        strategy: ``Static`` (pods never move because of eligibility) or ``Dynamic``.
        paused: stop scaling and repairing; pods keep running.
        pod_labels: labels for every pod, over the template's.
        template: the pod to copy: metadata and spec, as a full document.
    """

    replicas: int
    node_selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    placement: str = "OnePerNode"
    strategy: str = "Static"
    paused: bool = False
    pod_labels: dict[str, str] = msgspec.field(default_factory=dict)
    template: Document = msgspec.field(default_factory=dict)
    rollout: Rollout = msgspec.field(default_factory=Rollout)


class ReplicationControllerStatus(View, frozen=True):
    """What is: counts of pods that this controller owns."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0
    conditions: list[Condition] = msgspec.field(default_factory=list)
    node_transfer: dict[str, Any] | None = None


class ReplicationController(Resource, frozen=True):
    """A replicated service."""

    spec: ReplicationControllerSpec = msgspec.field(
        default_factory=lambda: ReplicationControllerSpec(replicas=0)
    )
    status: ReplicationControllerStatus = msgspec.field(default_factory=ReplicationControllerStatus)
