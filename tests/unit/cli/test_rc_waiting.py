"""What a person sees while a verb of ``grange rc`` takes its time."""

import asyncio

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened, session
from tests.unit.controllers.test_rolling_update import begun, phase, roll
from tests.unit.controllers.test_rollout_service import Tools, tools, version

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.status import ServiceUnavailable
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.slow_notice import SlowNotice
from grange.cli.verbs.rc import nodes, rolling_updates
from grange.client.replica_operations import ReplicationControllers
from grange.controllers.replication.controller import ReplicationService

__all__ = ["tools"]


def printed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of the board since the last call, without their times."""
    return [" ".join(line.split()[1:]) for line in capsys.readouterr().err.splitlines()]


async def drained(there: World, *names: str) -> None:
    """A pod on node a of ``names``, which it is to leave."""
    for name in names:
        await there.add_node(name)
    await there.add_controller(replicas=1)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(1))
    await ReplicationControllers(there.client, "default").drain_node("web", "a")


async def test_a_node_that_is_left_is_followed_on_the_board(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log) as there:
        await drained(there, "a", "b")
        assert await nodes.left(session(there), "web", "a", 60.0) == 0
        assert printed(capsys) == ["… grc/web 1 pod still on a", "✔ grc/web no pod on a"]


async def test_waiting_reports_pods_on_a_node_and_an_absent_server(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log) as there:
        await drained(there, "a")
        env = opened(there.deps.client, clock=clock, rng=rng, log=log)
        waiting = asyncio.create_task(nodes.left(env, "web", "a", 30.0))
        await there.settle(5.0)
        kept = (await there.condition("Misplaced")).message
        assert kept
        assert printed(capsys)[-1] == f"… grc/web 1 pod still on a: {kept}"
        there.gate = lambda request: ServiceUnavailable("cannot connect")
        await there.settle()
        assert printed(capsys) == ["… grc/web the server does not answer; trying again"]
        there.gate = lambda request: None
        assert await waiting == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[-2].startswith("timed out after 30s: grc/web: 1 pod still on a: ")
        assert lines[-1] == "next: grange why grc/web"


async def test_a_wait_for_an_unowned_controller_is_explained(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, startingReplicas={"old": 7, "new": 0})
        await there.until(lambda: phase(there, "Refused"))
        there.gate = lambda request: (
            ServiceUnavailable("away") if request.method == "PATCH" else None
        )
        change = {"spec": {"template": version(3)}}
        await there.client.patch(REPLICATIONCONTROLLER, "one", "default", patch=change)
        await rolling_updates.to_follow(session(there), "one", wait=False)
        assert capsys.readouterr().err == ""
        await rolling_updates.to_follow(session(there), "one", wait=True)
        assert capsys.readouterr().err == "waiting for the controller of one\n"


async def test_nothing_is_reported_of_what_ends_at_once(
    clock: Clock, rng: Stream, log: Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(clock, rng, log, hands=False) as there:
        slow = SlowNotice(session(there).env, "waiting")
        for _ in range(4):
            slow.check()
            await there.settle(0.4)
        assert capsys.readouterr().err == ""
        await there.settle(0.4)
        for _ in range(2):
            slow.check()
        assert capsys.readouterr().err == "waiting\n"
