"""Pods of an earlier controller of the same name, seen late, are neither doubled nor left out.

Names collide on purpose, so that two that decide the same make one pod; but a name that an earlier
controller's pod has is avoided. Who avoids one that was adopted meanwhile puts two pods on a node.
"""

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_replication_service import orphaned, refuse, started

from grange.api import codec
from grange.api.http import Request, Response
from grange.api.kinds import POD, REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.status import Conflict, Forbidden, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication import pod_control
from grange.controllers.shared import pod_identity

PODS = "/api/v1/pods"
PLACEMENTS = pytest.mark.parametrize("placement", ["OnePerNode", "Packed"])


class Unanswered(World):
    """The first change of a pod is carried out and never answered."""

    unanswered = ""

    async def handle(self, request: Request) -> Response:
        answer = await super().handle(request)
        if request.method == "PATCH" and request.path.endswith(f"/pods/{self.unanswered}"):
            self.unanswered = ""
            await self.clock.sleep(5.0)
            return Response(504, codec.encode(Timeout("no answer came").status().document()))
        return answer


async def adopted(there: World) -> None:
    """Another member gives the pods to the controller that there is now."""
    uid = (await there.controller()).metadata.uid
    owner = {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "name": "web",
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    ours: Document = {"ownerReferences": [owner], "labels": {pod_identity.RC_ID_LABEL: uid}}
    for name in await there.names():
        await there.client.patch(POD, name, "default", patch={"metadata": ours})


async def made_again(there: World, placement: str) -> list[str]:
    """A controller loses its pods and comes again while no news of pods arrives; their names."""
    await started(there, "a", "b", replicas=2, placement=placement)
    await there.until(lambda: there.ready(2))
    names = await there.names()
    there.held_watches.add(PODS)
    await orphaned(there)
    return names


@PLACEMENTS
@pytest.mark.parametrize("by_another", [True, False])
async def test_pods_cached_under_an_earlier_controller_are_not_doubled(
    clock: Clock, rng: Stream, log: Logger, placement: str, by_another: bool
) -> None:
    """Whether another member has adopted them, or none yet (simulation, seed 135)."""
    async with world(clock, rng, log) as there:
        names = await made_again(there, placement)
        await there.add_controller(replicas=2, paused=by_another, placement=placement)
        if by_another:
            await adopted(there)
            await there.change(paused=False)
        await there.settle(10.0)
        assert await there.names() == names
        there.held_watches.clear()
        await there.until(lambda: there.ready(2))
        assert await there.names() == names


@PLACEMENTS
async def test_a_pod_that_could_not_be_adopted_is_not_doubled(
    clock: Clock, rng: Stream, log: Logger, placement: str
) -> None:
    async with world(clock, rng, log) as there:
        names = await made_again(there, placement)
        there.held_watches.clear()
        await there.settle()
        there.gate = refuse("PATCH", "/pods/", ServiceUnavailable("not now"))
        await there.add_controller(replicas=2, placement=placement)
        await there.settle(10.0)
        assert await there.names() == names
        error = await there.condition("Reconciled")
        assert (error.status, error.reason) == ("False", "WriteFailed")
        assert error.message == (
            f"pods {names[0]}, {names[1]} could not be adopted (not now), so no other pod is "
            "created: delete them, or remove their label grange.dev/replication-controller"
        )
        there.gate = lambda request: None
        await there.until(lambda: there.ready(2))
        assert await there.names() == names


@PLACEMENTS
async def test_a_pod_that_was_adopted_without_an_answer_is_not_doubled(
    clock: Clock, rng: Stream, log: Logger, placement: str
) -> None:
    """The news that it is ours comes while the pass goes on without it (simulation, seed 241)."""
    async with world(clock, rng, log, kind=Unanswered) as there:
        assert isinstance(there, Unanswered)
        names = await made_again(there, placement)
        there.held_watches.clear()
        await there.settle()
        there.unanswered = names[-1]
        await there.add_controller(replicas=2, placement=placement)
        await there.until(lambda: there.ready(2))
        assert there.unanswered == ""
        assert there.requests.count(("POST", "/api/v1/namespaces/default/pods")) == len(names)
        assert await there.names() == names


async def test_node_is_not_taken_twice_while_an_unseen_pod_leaves(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """The pod that was adopted, and is going since, is shown as the earlier controller's."""
    async with world(clock, rng, log) as there:
        names = await made_again(there, "OnePerNode")
        await there.add_controller(replicas=2, paused=True)
        await adopted(there)
        there.silent.add("a")  # no agent confirms the deletion
        await there.client.delete(POD, "web-a", "default")
        await there.change(paused=False)
        await there.settle(10.0)
        assert [pod.metadata.name for pod in await there.pods()] == names
        there.silent.clear()
        there.held_watches.clear()
        await there.until(lambda: there.ready(2))
        assert await there.names() == names


@PLACEMENTS
async def test_pods_still_of_an_earlier_controller_delay_nothing(
    clock: Clock, rng: Stream, log: Logger, placement: str
) -> None:
    """They are deleted with it, some day; ours come in addition."""
    async with world(clock, rng, log) as there:
        await started(there, "a", "b", replicas=2, placement=placement)
        await there.until(lambda: there.ready(2))
        names = await there.names()
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        await there.settle()
        await there.add_controller(replicas=2, placement=placement)
        await there.until(lambda: there.ready(2))
        assert len(await there.names()) == 4
        assert {*names} <= {*await there.names()}


@pytest.mark.parametrize(
    ("adopted", "expected"),
    [
        (
            3,
            "pod d could not be adopted (no), so no other pod is created: delete it, or remove its",
        ),
        (
            2,
            "pods c, d could not be adopted (no), so no other pod is created: delete them, or remove",
        ),
        (0, "pods a, b, c and 1 more could not be adopted (no), so no other"),
    ],
)
def test_those_who_hold_up_others_are_named(adopted: int, expected: str) -> None:
    pods = [builders.pod(builders.controller(), name=name, orphan=True) for name in "abcd"]
    error = pod_control.not_adopted(pods, pods[:adopted], Forbidden("no"))
    assert str(error).startswith(expected)


def test_a_race_is_no_refusal() -> None:
    race = Conflict("overtaken")
    left = [builders.pod(builders.controller(), name="a", orphan=True)]
    assert pod_control.not_adopted(left, [], race) is race
