"""A real API server in memory, for tests of what writes to it."""

import pytest
from tests.support.request_log import RequestLog

from grange.api.http import ADMIN
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.store.memory import MemoryStore


@pytest.fixture
async def request_log(clock: Clock, rng: Stream, log: Logger) -> RequestLog:
    """The server's handler, which records requests and fails on demand."""
    application = Application(MemoryStore(), Scheme(BUILT_IN), clock=clock, rng=rng, log=log)
    await application.bootstrap()
    return RequestLog(application.handle)


@pytest.fixture
def client(request_log: RequestLog, clock: Clock) -> Client:
    """A client of that server."""
    return Client(InProcess(request_log.handle, ADMIN), clock=clock)
