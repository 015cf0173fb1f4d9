"""What a session costs the server with the controllers of sessions and of leases: requests and turns."""

from collections import Counter
from dataclasses import dataclass

import pytest

from grange.api.http import Request, Response
from grange.api.kinds import NODE, POD, TESTSESSION
from grange.api.kinds.machinelease import POOL_LABEL
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.machinelease.controller import MachineLeaseController
from grange.controllers.testsession.controller import SessionService
from grange.sim import builders
from grange.sim.api_fixture import ApiFixture, Handler, opened

MACHINES, WORKERS = 50, 4
TURN_S = 1.0  # of virtual time: what one request of a controller takes


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request of a controller.

    Attributes:
        at: when the server had answered it, in turns, rounded.
        what: verb and collection; events are left out.
    """

    at: int
    what: str


class SlowServer(ApiFixture):
    """A server whose every answer takes a turn, and a pool of machines."""

    def __init__(self, clock: Clock, rng: Stream, log: Logger) -> None:
        super().__init__(clock, rng, log)
        deps = self.new_deps()
        self.intercept = self._take_a_turn
        self.sent: list[SentRequest] = []
        self._deps = deps
        self._began = 0.0

    async def begin(self) -> None:
        """Machines that are known, and controllers at work."""
        for number in range(MACHINES):
            document = builders.node_document(f"n{number:02}", labels={POOL_LABEL: "w"})
            await self.client.create(NODE, document)
        self.nursery.start(self._deps.informers.run())
        self.start(MachineLeaseController(self._deps), SessionService(self._deps))
        await self.settle(30.0)

    async def submit(self) -> None:
        """A session of a driver and workers that have a machine each."""
        server: Document = {"pool": "w", "command": ["serve"], "count": WORKERS}
        spec: Document = {"driver": {"pool": "w", "command": ["drive"]}, "servers": [server]}
        self.sent.clear()
        self._began = self.clock.monotonic()
        document: Document = {"metadata": {"name": "qps", "namespace": "default"}, "spec": spec}
        await self.client.create(TESTSESSION, document, "default")

    def counts(self) -> Counter[str]:
        """How many requests of each sort were sent."""
        return Counter(one.what for one in self.sent)

    async def _take_a_turn(self, request: Request, handle: Handler) -> Response:
        if request.query.get("watch"):
            return await handle(request)
        await self.clock.sleep(TURN_S)
        response = await handle(request)
        parts = request.path.split("/")
        kinds = ("testsessions", "machineleases", "nodes", "pods", "configmaps")
        if kind := next((part for part in parts if part in kinds), ""):
            status = "/status" if parts[-1] == "status" else ""
            at = round((self.clock.monotonic() - self._began) / TURN_S)
            self.sent.append(SentRequest(at, f"{request.method} {kind}{status}"))
        return response


async def has_workers(server: SlowServer) -> bool:
    return len((await server.client.list(POD)).items) == WORKERS


@pytest.fixture
async def asked(clock: Clock, rng: Stream, log: Logger) -> tuple[list[SentRequest], Counter[str]]:
    """The requests between the creation of a session and its last worker."""
    async with opened(SlowServer(clock, rng, log)) as server:
        await server.begin()
        await server.submit()
        await server.until(lambda: has_workers(server))
        return [*server.sent], server.counts()


def test_workers_are_there_after_eight_turns(
    asked: tuple[list[SentRequest], Counter[str]],
) -> None:
    """Queued; lease; marks; pods of the machines; grant; accepted; files; pods."""
    sent, _ = asked
    first = {one.what: one.at for one in reversed(sent)}
    assert first == {
        "PATCH testsessions/status": 1,
        "POST machineleases": 2,
        "PATCH nodes": 3,
        "GET pods": 4,
        "PATCH machineleases/status": 5,
        "POST configmaps": 7,
        "POST pods": 8,
    }
    assert max(one.at for one in sent if one.what == "POST pods") == 8


def test_no_request_before_the_workers_is_needless(
    asked: tuple[list[SentRequest], Counter[str]],
) -> None:
    _, counts = asked
    assert counts == {
        "PATCH testsessions/status": 2,
        "POST machineleases": 1,
        "PATCH nodes": WORKERS + 1,
        "GET pods": WORKERS + 1,
        "PATCH machineleases/status": 1,
        "POST configmaps": 1,
        "POST pods": WORKERS,
    }
