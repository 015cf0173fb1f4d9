"""Pods of a session keep their names until no creation that is under way can start a program."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.session_world import SessionWorld, session_world

from grange.api.http import Request, Response
from grange.api.kinds import CONFIGMAP, POD, TESTSESSION
from grange.api.kinds.testsession import SESSION_FINALIZER
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.api_fixture import Handler

CONFLICT = 409


@pytest.fixture
async def world(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[SessionWorld]:
    async with session_world(clock, rng, log) as made:
        yield made


class LateCreation:
    """A creation of a pod that arrives a second time, when the files of the attempt are to go.

    So does the one of a member of the farm that was cut off before its successor sent the same.

    Args:
        pod: its name.

    Attributes:
        decided: set, it lets the controller write what it has decided.
        status: of the late answer.
    """

    def __init__(self, pod: str) -> None:
        self.decided = asyncio.Event()
        self.status = 0
        self._name = f'"{pod}"'.encode()
        self._held: Request | None = None

    async def intercept(self, request: Request, handle: Handler) -> Response:
        """Pass requests on; the creation twice."""
        body = request.body or b""
        if request.method == "POST" and request.path.endswith("/pods") and self._name in body:
            self._held = request
        elif request.method == "PATCH" and b'"Passed"' in body:
            await self.decided.wait()
        elif request.method == "DELETE" and "/configmaps/" in request.path and self._held:
            late, self._held = self._held, None
            self.status = (await handle(late)).status
        return await handle(request)


async def test_late_creation_of_a_driver_that_was_drained(world: SessionWorld) -> None:
    """The driver has ended, its node is drained, and the files are still there."""
    late = LateCreation("qps-driver")
    world.intercept = late.intercept
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    await world.finish("qps-driver")
    await world.settle(2)
    await world.client.delete(POD, "qps-driver", "default", grace_period_s=0)
    late.decided.set()
    await world.reaches("Succeeded")
    assert late.status == CONFLICT
    assert await world.pods() == {}


async def test_verdict_of_a_driver_survives_its_drain(world: SessionWorld) -> None:
    """The controller was away when the driver ended and its node was drained."""
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    world.held_watches.add("/api/v1/pods")
    await world.settle(2)
    await world.finish("qps-driver")
    await world.settle(2)
    await world.client.delete(POD, "qps-driver", "default")
    world.held_watches.clear()
    await world.reaches("Succeeded")
    assert (await world.status()).verdict == "Passed"


async def attempt_files(world: SessionWorld) -> list[str]:
    """Names of the ConfigMaps of the first attempt."""
    found = (await world.client.list(CONFIGMAP, "default")).items
    return [item.metadata.name for item in found if item.metadata.name.startswith("qps-0-")]


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_deleted_session_keeps_no_pod(propagation: str, world: SessionWorld) -> None:
    """The garbage collector, here the test, deletes the pods; their files go before their names."""
    world.serve()
    await world.add_session()
    await world.reaches("Running")
    assert len(await attempt_files(world)) == 2
    await world.client.delete(TESTSESSION, "qps", "default", propagation=propagation)
    for name, pod in (await world.pods()).items():
        assert SESSION_FINALIZER in pod.metadata.finalizers
        await world.client.delete(POD, name, "default", uid=pod.metadata.uid)
    await world.settle(5)
    assert await world.pods() == {}
    assert await attempt_files(world) == []


async def test_pod_without_an_owner_is_released(world: SessionWorld) -> None:
    """As the garbage collector leaves it where dependents are to be orphaned."""
    world.serve()
    await world.add_session(retries={"infrastructure": 0})
    await world.reaches("Running")
    patch = {"metadata": {"ownerReferences": None}}
    await world.client.patch(POD, "qps-server", "default", patch=patch)
    await world.settle(5)
    assert (await world.pods())["qps-server"].metadata.finalizers == ()
