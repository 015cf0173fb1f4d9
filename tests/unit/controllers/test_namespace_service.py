"""The end of a namespace against a real API server in memory."""

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api import conditions
from grange.api.kinds import CONFIGMAP, NAMESPACE, POD, REPLICATIONCONTROLLER, SECRET
from grange.api.kinds.namespace import Namespace
from grange.api.status import Forbidden, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.namespace.controller import NamespaceController
from grange.controllers.replication.controller import ReplicationService
from grange.sim import builders as objects


async def gone(there: World) -> bool:
    try:
        await there.client.get(NAMESPACE, "team")
    except NotFound:
        return True
    return False


async def made(there: World) -> None:
    await there.client.create(NAMESPACE, {"metadata": {"name": "team"}})
    there.start(NamespaceController(there.deps))


def stated(namespace: Namespace, kind: str) -> str:
    found = conditions.find(namespace.status.conditions, kind)
    return found.status if found else ""


async def test_an_empty_namespace_goes_at_once(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, hands=False) as there:
        await made(there)
        await there.client.delete(NAMESPACE, "team")
        assert await there.until(lambda: gone(there)) < 1.0


async def test_a_namespace_takes_everything_in_it_along_and_pods_first(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Pods may need their Secrets until their last second."""
    async with world(clock, rng, log) as there:
        await made(there)
        there.start(ReplicationService(there.deps))
        await there.add_node("a")
        await there.add_node("b")
        document = {
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "template": builders.TEMPLATE},
        }
        await there.client.create(REPLICATIONCONTROLLER, document, "team")
        await there.client.create(SECRET, {"metadata": {"name": "s"}}, "team")
        await there.client.create(CONFIGMAP, {"metadata": {"name": "kept"}}, "default")
        await there.settle()
        assert len(await there.pods()) == 2
        there.silent.add("a")  # this agent does not confirm the end of its pod
        await there.client.delete(NAMESPACE, "team")
        await there.settle(10.0)
        assert [p.spec.node_name for p in await there.pods()] == ["a"]
        await there.client.get(SECRET, "s", "team")
        with pytest.raises(Forbidden):
            await there.client.create(SECRET, {"metadata": {"name": "late"}}, "team")
        there.silent.clear()
        assert await there.until(lambda: gone(there)) < 5.0
        assert (await there.client.list(SECRET)).items == []
        assert (await there.client.list(REPLICATIONCONTROLLER)).items == []
        assert len((await there.client.list(CONFIGMAP)).items) == 1


async def test_a_namespace_that_is_stuck_shows_what_holds_it(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        await made(there)
        document = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        await there.client.create(CONFIGMAP, document, "team")
        await there.client.delete(NAMESPACE, "team")
        await there.settle(20.0)
        namespace = await there.client.get(NAMESPACE, "team")
        assert stated(namespace, "NamespaceContentRemaining") == "True"
        assert stated(namespace, "NamespaceFinalizersRemaining") == "True"
        assert stated(namespace, "NamespaceDeletionContentFailure") == "False"
        there.requests.clear()
        await there.settle(60.0)
        assert there.requests == []  # waiting writes nothing
        await there.client.patch(
            CONFIGMAP, "held", "team", patch={"metadata": {"finalizers": None}}
        )
        assert await there.until(lambda: gone(there)) < 10.0


async def test_more_objects_than_a_page_are_deleted(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, hands=False) as there:
        await made(there)
        for number in range(620):
            await there.client.create(CONFIGMAP, {"metadata": {"name": f"c{number}"}}, "team")
        await there.client.create(POD, objects.pod_document("p", namespace="team"), "team")
        await there.client.delete(NAMESPACE, "team")
        await there.until(lambda: gone(there))
        assert (await there.client.list(CONFIGMAP)).items == []


async def test_a_namespace_that_lives_is_left_alone(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, hands=False) as there:
        await made(there)
        await there.settle(30.0)
        assert there.requests == []
