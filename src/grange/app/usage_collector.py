"""What pods use on all nodes: measured in the process for this machine, read from agents for others."""

import math
from collections.abc import Callable, Collection, Iterator

import msgspec

from grange.agent.usage_sampler import PERIOD_S, UsageSampler
from grange.api.http import Request
from grange.api.kinds import NODE
from grange.api.kinds.node import Node, is_ready
from grange.api.resource_metrics import ContainerSample, PodSample, UsageSample
from grange.api.status import ApiError
from grange.app.agent_endpoints import USAGE_PATH
from grange.app.node_connections import NodeConnections
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.ratelimited import RateLimitedLogger
from grange.base.tasks import Nursery
from grange.reconcile.informer import InformerFactory

_AT_ONCE = 16
_KEPT_S = 4 * PERIOD_S
_AMOUNT_MAX = 1e18
"""Of CPUs, bytes or seconds: more is no measurement."""


class UsageCollector:
    """The API server's source of usage.

    Args:
        local: measures the pods of this machine; None where it runs no agent.
        local_nodes: gives the names of the nodes of this machine.
        connections: to the agents of other machines.
        clock: time.
        log: where failures go.
    """

    def __init__(
        self,
        local: UsageSampler | None,
        local_nodes: Callable[[], Collection[str]],
        connections: NodeConnections,
        *,
        clock: Clock,
        log: Logger,
    ) -> None:
        self._local = local
        self._local_nodes = local_nodes
        self._connections = connections
        self._clock = clock
        self._log = RateLimitedLogger(log, clock)
        self._remote: dict[str, tuple[float, UsageSample]] = {}

    def samples(self) -> tuple[UsageSample, ...]:
        """The newest sample of this machine, and of every other node that answered lately."""
        local = self._local.newest() if self._local is not None else None
        since = self._clock.monotonic() - _KEPT_S
        remote = [sample for at, sample in self._remote.values() if at >= since]
        return (*([local] if local is not None else []), *remote)

    async def run(self, informers: InformerFactory) -> None:
        """Read from the agents every period until cancelled."""
        nodes = informers.informer(NODE)
        await nodes.synced.wait()
        while True:
            await self.collect(list(nodes.store.list()))
            await self._clock.sleep(PERIOD_S)

    async def collect(self, nodes: Collection[Node]) -> None:
        """Read from the agents of other machines once; what cannot be read keeps its last sample."""
        local = self._local_nodes()
        names = [
            node.metadata.name
            for node in nodes
            if node.metadata.name not in local
            and is_ready(node)
            and node.status.daemon_endpoints.kubelet_endpoint.port
        ]
        left = iter(names)
        async with Nursery("usage") as nursery:
            for _ in range(min(_AT_ONCE, len(names))):
                nursery.start(self._read_each(left), name="usage of nodes")
        known = {node.metadata.name for node in nodes}
        self._remote = {name: item for name, item in self._remote.items() if name in known}

    async def _read_each(self, names: Iterator[str]) -> None:
        for name in names:
            try:
                async with self._connections.open(name) as agent:
                    answer = await agent.send(Request("GET", USAGE_PATH))
                sample = msgspec.json.decode(answer.body, type=UsageSample)
            except (ApiError, msgspec.MsgspecError, UnicodeDecodeError) as error:
                self._log.warning("usage of a node not read", node=name, error=error)
                continue
            at = self._clock.monotonic()
            checked = UsageSample(
                self._clock.now(),
                sample.window_s if _is_amount(sample.window_s) else PERIOD_S,
                (name,),
                tuple(pod for pod in sample.pods if is_sound(pod, name)),
            )
            self._remote[name] = (at, checked)


def is_sound(pod: PodSample, node: str) -> bool:
    """Whether a sample is of a pod of the node, and its amounts are some."""
    used: Collection[ContainerSample] = pod.containers.values()
    return (
        pod.node == node
        and _is_amount(pod.window_s)
        and all(_is_amount(item.cpu_cores) and _is_amount(item.memory_bytes) for item in used)
    )


def _is_amount(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= _AMOUNT_MAX
