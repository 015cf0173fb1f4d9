"""What is simulated: nodes, and pods that come at some time and stay for a while."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from grange.api import gpus, pod_requests
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.pod_requests import PodRequest, Resources
from grange.base.errors import GrangeError
from grange.placement import devices
from grange.placement.fragmentation import PodKind

KINDS_MAX = 10_000


class TraceError(GrangeError):
    """A trace cannot be used; the message names the file and the place in it."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod that comes.

    Attributes:
        at_s: when, in seconds since the trace began.
        pod: waiting for a node.
        stays_s: for how long it runs once it is placed; None to the end.
    """

    at_s: float
    pod: Pod
    stays_s: float | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A cluster and its pods.

    Attributes:
        nodes: at least one.
        arrivals: by time.
    """

    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]

    def offered(self) -> list[Resources]:
        """What each node offers."""
        return [pod_requests.allocatable(node.status.allocatable) for node in self.nodes]


def kinds(pods: Sequence[Pod]) -> list[PodKind]:
    """The pods as a target workload: how many ask for what.

    What no node could offer is left out, and of very many different demands the rarest are.
    """
    asked: Counter[tuple[int, int]] = Counter()
    for pod in pods:
        request: PodRequest = pod_requests.pod_request(pod.spec)
        want = devices.asked(request)
        if devices.is_possible(want) and want <= gpus.DEVICES_MAX * gpus.WHOLE:
            asked[request.resources.cpu_milli, want] += 1
    common = sorted(asked.items(), key=lambda pair: (-pair[1], pair[0]))[:KINDS_MAX]
    return [PodKind(cpu, gpu, number) for (cpu, gpu), number in sorted(common)] or [
        PodKind(0, 0, 1)
    ]
