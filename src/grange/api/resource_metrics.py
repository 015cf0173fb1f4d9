"""What containers use, as agents measure it and the API group ``metrics.k8s.io`` shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ContainerSample:
    """What a container uses.

    Attributes:
        cpu_cores: the average over the window of the pod's sample.
        memory_bytes: its working set at the end of the window.
    """

    cpu_cores: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PodSample:
    """What a pod uses.

    Attributes:
        uid, namespace, name, node: of the pod.
        window_s: seconds over which CPU was measured.
        containers: those that run, by name.
    """

    uid: str
    namespace: str
    name: str
    node: str
    window_s: float
    containers: Mapping[str, ContainerSample]


@dataclass(frozen=True, slots=True)
class UsageSample:
    """What the pods of some nodes use.

    Attributes:
        taken_at: the end of the window.
        window_s: seconds between this sample and the one before.
        nodes: the nodes that were measured, those without pods included.
        pods: those with a running container.
    """

    taken_at: datetime
    window_s: float
    nodes: tuple[str, ...]
    pods: tuple[PodSample, ...] = field(default=())
