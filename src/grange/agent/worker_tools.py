"""What the workers of a node's pods share."""

from collections.abc import Callable
from dataclasses import dataclass

from grange.agent.config import NodeConfig
from grange.agent.container_runtime import PodRuntime
from grange.agent.container_start import ContainerStarter
from grange.agent.metrics import AgentMetrics
from grange.agent.prober import Prober
from grange.api.kinds.pod import Pod
from grange.api.pod_requests import Resources
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.reconcile.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Tools:
    """What a node's workers share.

    Attributes:
        client: where status goes.
        runtime: what runs containers.
        starter: what brings them there.
        prober: what asks probes.
        recorder: where Events go.
        clock, log: time and the node's logger.
        config: of the node.
        metrics: what is counted.
        admit: reason and message when the node cannot take a pod.
        refuse_resize: the same when a pod of the node cannot have other resources.
        room_changed: called when a pod holds something else than before.
    """

    client: Client
    runtime: PodRuntime
    starter: ContainerStarter
    prober: Prober
    recorder: Recorder
    clock: Clock
    log: Logger
    config: NodeConfig
    metrics: AgentMetrics
    admit: Callable[[Pod], tuple[str, str] | None]
    refuse_resize: Callable[[Pod, Resources], tuple[str, str] | None]
    room_changed: Callable[[], None]
