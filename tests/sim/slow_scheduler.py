"""A scheduler of a packed pool that binds pods some time after it has chosen their nodes, and agents that end pods."""

from contextlib import suppress

from tests.sim.machine_trouble import TroubledWorld

from grange.api import quantity
from grange.api.bindings import Binding
from grange.api.kinds import NODE, POD
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.pod import Pod, is_active
from grange.api.meta import Document
from grange.api.status import NotFound
from grange.base.rng import Stream

_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
_LOOK_S = 0.5


class SlowScheduler:
    """Places the pods that select a pool.

    Args:
        world: where.
        pool: name of the pool.
        draw: of the times that bindings take.
        lag_s: a binding takes no longer.

    Attributes:
        placed: node of each pod that has not ended, by the name of the pod.
        bound: node that each pod was bound to last, by the name of the pod.
        free: nodes that took pods at the last look and had none.
    """

    def __init__(self, world: TroubledWorld, pool: str, draw: Stream, lag_s: float) -> None:
        self._world, self._draw, self._lag_s = world, draw, lag_s
        self._selector = {NODE_POOL_LABEL: pool}
        self._assumed: dict[str, str] = {}
        self._cpu: dict[str, int] = {}
        self.placed: dict[str, str] = {}
        self.bound: dict[str, str] = {}
        self.free: list[str] = []

    async def run(self) -> None:
        """Schedule until cancelled."""
        while True:
            await self._look()
            await self._world.clock.sleep(_LOOK_S)

    async def _look(self) -> None:
        nodes = (await self._world.client.list(NODE)).items
        pods = (await self._world.client.list(POD)).items
        own = [pod for pod in pods if self._selector.items() <= pod.spec.node_selector.items()]
        known = {"", *(one.metadata.name for one in nodes)}
        for pod in own:
            # As its agent does, and pod garbage collection where a late binding found its node gone.
            if pod.metadata.deletion_timestamp is not None or pod.spec.node_name not in known:
                await self.end(pod.metadata.name)
        there = {pod.metadata.name for pod in own if is_active(pod)}
        self.placed = {name: node for name, node in self.placed.items() if name in there}
        room = {one.metadata.name: _cpu_of(one) for one in nodes if self._takes_pods(one)}
        for name, node in {**self.placed, **self._assumed}.items():
            if node in room:
                room[node] -= self._cpu[name]
        self.free = [
            one.metadata.name for one in nodes if room.get(one.metadata.name) == _cpu_of(one)
        ]
        for pod in own:
            if not pod.spec.node_name and is_active(pod) and pod.metadata.name not in self._assumed:
                await self._place(pod, room)

    async def _place(self, pod: Pod, room: dict[str, int]) -> None:
        name = pod.metadata.name
        cpu = self._cpu[name] = quantity.milli(pod.spec.containers[0].resources.requests["cpu"])
        found = next((node for node, left in room.items() if left >= cpu), "")
        if not found:
            await self._report(name, {"phase": "Pending", "conditions": [_UNSCHEDULABLE]})
            return
        room[found] -= cpu
        self._assumed[name] = found
        self._world.nursery.start(self._bind(pod))

    async def _bind(self, pod: Pod) -> None:
        meta, node = pod.metadata, self._assumed[pod.metadata.name]
        await self._world.clock.sleep(self._draw.uniform(0.0, self._lag_s))
        binding = Binding(meta.namespace, meta.name, meta.uid, node)
        (error,) = await self._world.client.bind([binding])
        if error is None:
            self.placed[meta.name] = self.bound[meta.name] = node
            await self._report(meta.name, {"phase": "Running", "conditions": []})
        del self._assumed[meta.name]

    async def _report(self, name: str, status: Document) -> None:
        with suppress(NotFound):  # it has ended meanwhile
            await self._world.client.patch(
                POD, name, "default", patch={"status": status}, subresource="status"
            )

    async def end(self, name: str) -> None:
        """A pod ends."""
        with suppress(NotFound):
            await self._world.delete_pod(name)
        self.placed.pop(name, None)

    def _takes_pods(self, node: Node) -> bool:
        open_ = is_ready(node) and not node.spec.unschedulable and not node.spec.taints
        return open_ and self._selector.items() <= node.metadata.labels.items()


def _cpu_of(node: Node) -> int:
    return quantity.milli(node.status.allocatable.get("cpu", 0))
