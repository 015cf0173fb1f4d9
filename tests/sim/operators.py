"""What operators order of the pods of controllers, on a network that may lose their requests; and its judge."""

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import Document, controller_of
from grange.api.replication import ordered
from grange.api.status import ApiError, NotFound
from grange.base.errors import invariant
from grange.base.rng import Stream
from grange.client.replica_operations import OperationRefused, ReplicationControllers
from grange.reconcile.deps import Deps
from grange.sim.invariants import ObservedWrite
from grange.sim.world import World

NAMESPACE = "default"
_LEFT = 2  # nodes that pods of one controller have to leave at a time
_ATTEMPTS = 20


class _Desk:
    """Where an operator sits: it has a way to the server and does nothing by itself."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def run(self) -> None:
        while True:
            await self._world.clock.sleep(3600.0)


class Operators:
    """Wishes for some controllers and nodes, drawn from their own stream.

    Orders are given over a bad network, as the component ``operator``; one without an answer is given again.

    Args:
        world: where.
        draw: the stream.
        names: of the controllers.
        nodes: names of the nodes.
        labels: that make a node eligible.
    """

    def __init__(
        self,
        world: World,
        draw: Stream,
        names: tuple[str, ...],
        nodes: tuple[str, ...],
        labels: dict[str, str],
    ) -> None:
        self._world = world
        self._draw = draw
        self._names = names
        self._nodes = nodes
        self._labels = labels
        self._ops = ReplicationControllers(world.client, NAMESPACE)
        world.add("operator", self._seated)

    def _seated(self, deps: Deps) -> _Desk:
        self._ops = ReplicationControllers(deps.client, NAMESPACE)
        return _Desk(self._world)

    async def run(self, seconds: float) -> None:
        """Order something every few seconds, for so long."""
        clock = self._world.clock
        until = clock.monotonic() + seconds
        wishes = [self._relabel, self._relabel, self._cordon, self._remove_pod]
        wishes += [self._drain, self._drain, self._undrain]
        while clock.monotonic() < until:
            await clock.sleep(self._draw.uniform(0.0, 12.0))
            await self._draw.choice(wishes)()

    async def leave(self, name: str, node: str) -> None:
        """Have a controller's pods leave this node, and only this one.

        Args:
            name: of the controller.
            node: which; empty for none.
        """
        found = await self._ops.get(name)
        for left in sorted(drained_nodes(found) - {node}):
            await self._ops.undrain_node(name, left)
        if node:
            await self._ops.drain_node(name, node)

    async def _relabel(self) -> None:
        name, keep = self._draw.choice(self._nodes), self._draw.choice([True, False])
        labels = {key: value if keep else None for key, value in self._labels.items()}
        await self._change(name, {"metadata": {"labels": labels}})

    async def _cordon(self) -> None:
        closed = self._draw.choice([True, False, False])
        await self._change(self._draw.choice(self._nodes), {"spec": {"unschedulable": closed}})

    async def _change(self, node: str, patch: Document) -> None:
        with suppress(ApiError):  # the server is away: the wish stays what it was
            await self._world.client.patch(NODE, node, patch=patch)
            self._world.network.note("an operator", f"changes {node}: {patch}")

    async def _drain(self) -> None:
        name, node = self._draw.choice(self._names), self._draw.choice(self._nodes)
        shrink = self._draw.choice([True, False])
        with suppress(ApiError):
            if len(drained_nodes(await self._ops.get(name)) - {node}) >= _LEFT:
                return
        await self._insist(
            f"drains {node} of {name}{', shrinking' if shrink else ''}",
            lambda: self._ops.drain_node(name, node, shrink=shrink),
        )

    async def _undrain(self) -> None:
        name, node = self._draw.choice(self._names), self._draw.choice(self._nodes)
        await self._insist(f"undrains {node} of {name}", lambda: self._ops.undrain_node(name, node))

    async def _remove_pod(self) -> None:
        try:
            pods = (await self._world.client.list(POD)).items
        except ApiError:
            return
        if not pods:
            return
        pod = self._draw.choice(pods)
        owner = controller_of(pod.metadata)
        name = owner.name if owner is not None else self._draw.choice(self._names)

        async def remove() -> ReplicationController:
            # Names come back: another pod may have it by the time an order is given again.
            return await self._ops.remove_pod(name, pod.metadata.name, uid=pod.metadata.uid)

        await self._insist(f"removes {pod.metadata.name} of {name}", remove)

    async def _insist(self, what: str, order: Callable[[], Awaitable[object]]) -> None:
        """Give an order until it is answered, or for as long as patience lasts."""
        for _ in range(_ATTEMPTS):
            try:
                await order()
            except (OperationRefused, NotFound) as error:
                self._world.network.note("an operator", f"is refused: {what}: {error}")
                return
            except ApiError:
                await self._world.clock.sleep(1.0)
                continue
            self._world.network.note("an operator", what)
            return


class OrdersTakeReplicasAlong:
    """A pod is ordered to go once, in the write that asks for one replica less.

    Attributes:
        ordered: names of the pods by uid.
        forgotten: uids of those whose controller was deleted before they went.
    """

    def __init__(self) -> None:
        self.ordered: dict[str, str] = {}
        self.forgotten: set[str] = set()
        self._before: dict[str, ReplicationController] = {}
        self._gone: set[str] = set()

    def see(self, change: ObservedWrite) -> None:
        """Compare what is ordered with the replicas."""
        if change.concerns(POD) and change.deleted:
            self._gone.add(change.uid)
        if not change.concerns(REPLICATIONCONTROLLER):
            return
        after = msgspec.convert(change.document, ReplicationController)
        if change.deleted:
            self.forgotten |= set(ordered(after)) - self._gone
            return
        before = self._before.get(change.uid, after)
        self._before[change.uid] = after
        fresh = {u: n for u, n in ordered(after).items() if u not in ordered(before)}
        facts = {"revision": change.revision, "pods": sorted(fresh.values())}
        again = sorted(self.ordered[uid] for uid in fresh if uid in self.ordered)
        invariant(not again, "a pod is ordered to go once", again=again, **facts)
        if fresh:
            invariant(
                after.spec.replicas == max(0, before.spec.replicas - len(fresh)),
                "an order takes a replica along for each pod",
                before=before.spec.replicas,
                after=after.spec.replicas,
                **facts,
            )
        self.ordered |= fresh

    def left(self, pods: list[Pod]) -> list[str]:
        """Names of the pods that were ordered to go, and are there."""
        due = set(self.ordered) - self.forgotten
        return [pod.metadata.name for pod in pods if pod.metadata.uid in due]
