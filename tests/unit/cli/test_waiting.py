"""What is waited for, while the server comes and goes."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest
from rich.console import Console
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened

from grange.api.http import Request
from grange.api.kinds import GANGJOB, REPLICATIONCONTROLLER
from grange.api.status import ApiError, ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli import progress, readiness, waiting
from grange.cli.progress import ProgressRow
from grange.cli.verbs import wait

SILENT = "the server does not answer; trying again"


class Cut(World):
    """Its server is away while ``away``."""

    away = False

    async def deliver(self, path: str, chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        async with aclosing(super().deliver(path, chunks)) as received:
            async for chunk in received:
                if self.away:
                    raise ServiceUnavailable("cut off")
                yield chunk

    def go(self) -> None:
        """The server goes away."""
        self.away, self.gate = True, refused

    def come(self) -> None:
        """It is there again."""
        self.away, self.gate = False, lambda request: None


def refused(request: Request) -> ApiError:
    return ServiceUnavailable("cannot connect")


def done(found: object) -> readiness.WaitState:
    replicas = found["spec"]["replicas"] if isinstance(found, dict) else 0
    return readiness.WaitState(done=replicas == 3, text=f"{replicas} wanted")


async def test_silent_server_is_reported_with_the_last_state(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a wait whose server is gone looks like one where nothing happens."""
    async with world(clock, rng, log, hands=False, kind=Cut) as there:
        assert isinstance(there, Cut)
        session = opened(there.deps.client, clock=clock, rng=rng, log=log)
        target = [(REPLICATIONCONTROLLER, "web", "default")]
        there.go()
        task = asyncio.create_task(waiting.wait_all(session, target, done, timeout_s=60.0))
        await there.settle()
        assert printed(capsys) == [f"… grc/web {SILENT}"]
        await there.add_controller("web", replicas=1)
        there.come()
        await there.settle()
        assert printed(capsys) == ["… grc/web 1 wanted"]
        there.go()
        await there.change(replicas=2)
        await there.settle()
        assert printed(capsys) == [f"… grc/web 1 wanted, as last seen: {SILENT}"]
        there.come()
        await there.settle()
        assert printed(capsys) == ["… grc/web 2 wanted"]
        await there.change(replicas=3)
        assert await task == 0


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines since the last call, without their times."""
    return [" ".join(line.split()[1:]) for line in capsys.readouterr().err.splitlines()]


async def test_timeout_of_a_job_leads_to_why(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job knows what all its pods wait for; one of them does not."""
    async with world(clock, rng, log, hands=False) as there:
        session = opened(there.client, clock=clock, rng=rng, log=log)
        template = {"spec": {"containers": [{"name": "main", "command": ["work"]}]}}
        roles = {"worker": {"replicas": 1, "template": template}}
        job = {"metadata": {"name": "train"}, "spec": {"replicaSpecs": roles}}
        await there.client.create(GANGJOB, job, "default")
        target = [(GANGJOB, "train", "default")]
        assert await waiting.wait_ready(session, target, timeout_s=5.0) == 1
        assert capsys.readouterr().err.splitlines()[-1] == "next: grange why gj/train"


async def test_another_object_under_the_name_is_not_waited_for(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A controller replaces a pod that was deleted, maybe before anybody looks."""
    async with world(clock, rng, log, hands=False) as there:
        session = opened(there.client, clock=clock, rng=rng, log=log)
        target = [(REPLICATIONCONTROLLER, "web", "default")]
        await there.add_controller("web", replicas=0)
        uid = (await there.controller("web")).metadata.uid
        started = clock.monotonic()
        assert await waiting.wait_gone(session, target, {"before"}, timeout_s=60.0) == 0
        assert clock.monotonic() - started < 1.0
        for uids in (await wait.uids(session, target), {"before", ""}):
            assert await waiting.wait_gone(session, target, uids, timeout_s=5.0) == 1
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
        assert await waiting.wait_gone(session, target, {uid}, timeout_s=5.0) == 0
        assert await wait.uids(session, target) == set()


def test_long_causes_are_wrapped_and_whole() -> None:
    cause = "0/3 ready; pod/web-1: main: " + " ".join(f"word{number}" for number in range(40))
    row = ProgressRow("grc/web", since=0.0, state=readiness.WaitState(done=False, text=cause))
    console = Console(width=60, color_system=None)
    with console.capture() as shown:
        console.print(progress.table([row], now=7.0))
    text = shown.get()
    assert all(f"word{number}" in text.split() for number in range(40))
    assert max(len(line) for line in text.splitlines()) <= 60
