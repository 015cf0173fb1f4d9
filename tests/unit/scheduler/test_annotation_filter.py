"""A filter by an annotation of nodes: what it decides follows each change, and waiting pods are tried."""

from typing import Any

from tests.support.scheduler_world import World, world

from grange.api.kinds import NODE
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.scheduler import plugins
from grange.scheduler.framework import Profile
from grange.scheduler.node_plugin import NodeFilter, annotation
from grange.scheduler.podinfo import PodInfo

KEY = "example.com/closed"
OPEN: dict[str, Any] = {KEY: None}
CLOSED: dict[str, Any] = {KEY: "true"}


class ClosedNode(NodeFilter[bool, str | None]):
    """Refuses nodes that are annotated as closed."""

    name = "ClosedNode"
    attribute = annotation(KEY)
    reason = "node(s) were closed"

    def demand(self, pod: PodInfo) -> bool:
        return True

    def allows(self, demand: bool, value: str | None) -> bool:
        return value != "true"


PROFILE = Profile([*plugins.DEFAULT, ClosedNode().plugin()])


async def annotate(made: World, node: str, annotations: dict[str, Any]) -> None:
    await made.client.patch(NODE, node, patch={"metadata": {"annotations": annotations}})
    await made.settle()


async def test_annotation_filter_follows_changes_of_nodes(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.add_nodes("a", "b")
        await annotate(made, "a", CLOSED)  # before the first decision
        await made.start_scheduler(profile=PROFILE)
        await made.add_pods("first")
        await made.settle()
        assert (await made.pod("first")).spec.node_name == "b"

        await annotate(made, "b", CLOSED)  # after it
        await made.add_pods("second")
        await made.settle()
        assert (await made.pod("second")).spec.node_name == ""
        message = await made.message("second")
        assert message.startswith("0/2 nodes are available: 2 node(s) were closed.")

        await annotate(made, "a", OPEN)  # wakes the pod that waits
        await made.settle(30.0)
        assert (await made.pod("second")).spec.node_name == "a"
