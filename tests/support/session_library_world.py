"""An API server for tests of the library of sessions, and pods whose states the test sets."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import COMPONENT_LABEL, SESSION_LABEL
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.api_fixture import ApiFixture, opened
from grange.sim.builders import create_node, pod_document

RUNNING: Document = {"running": {"startedAt": "2026-03-01T12:00:00Z"}}
IMAGE: Document = {"image": "i", "imageID": "i", "restartCount": 0}


def ended(code: int) -> Document:
    return {"terminated": {"exitCode": code, "finishedAt": "2026-03-01T12:00:01Z"}}


class SessionLibraryWorld(ApiFixture):
    """A server with pods of sessions."""

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        self.cuts = 0
        self.garbage: list[bytes] = []  # what the next watches begin with, one each

    def cut_watches(self) -> None:
        """End the open watches at their next change, which they do not deliver."""
        self.cuts += 1

    async def deliver(self, path: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """A watch as those under test get it."""
        cuts = self.cuts
        async with aclosing(super().deliver(path, chunks)) as delivered:
            if self.garbage:
                yield self.garbage.pop(0)
            async for chunk in delivered:
                if cuts != self.cuts:
                    return
                yield chunk

    async def add_pools(self, **pools: int) -> None:
        """Create the machines of pools: ``drivers=1``."""
        for pool, count in pools.items():
            for index in range(count):
                await create_node(self.client, f"{pool}-{index}", labels={"pool": pool})

    async def add_pod(self, session: str, component: str = "driver") -> Pod:
        """Create a pod of a session."""
        labels = {SESSION_LABEL: session, COMPONENT_LABEL: component}
        document = pod_document(f"{session}-{component}", labels=labels, restartPolicy="Never")
        return await self.client.create(POD, document)

    async def set_state(self, name: str, state: Document, *, ip: str = "10.0.0.1") -> None:
        """Set the state of a pod's main container."""
        phase = "Running"
        if (end := state.get("terminated")) is not None:
            phase = "Failed" if end["exitCode"] else "Succeeded"
        status: Document = {
            "phase": phase,
            "containerStatuses": [
                {"name": "main", "state": state, "ready": phase == "Running", **IMAGE}
            ],
        }
        if ip:
            status["podIP"] = ip
            status["podIPs"] = [{"ip": ip}]
        await self.client.patch(
            POD, name, "default", patch={"status": status}, subresource="status"
        )

    async def remove(self, name: str) -> None:
        """Delete a pod at once."""
        await self.client.delete(POD, name, "default", grace_period_s=0)


@asynccontextmanager
async def session_library_world(
    clock: Clock, rng: Stream, log: Logger
) -> AsyncIterator[SessionLibraryWorld]:
    async with opened(SessionLibraryWorld(clock, rng, log)) as world:
        yield world
