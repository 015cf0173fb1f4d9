"""``grange rc rollout`` where replicas move between two controllers: whose end is reported, and how."""

import asyncio

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened, session
from tests.unit.controllers.test_rolling_update import begun, phase, roll, update
from tests.unit.controllers.test_rollout_service import Sick, Tools, tools, version

from grange.api.codec import convert
from grange.api.kinds import REPLICATIONCONTROLLER, ROLLINGUPDATE
from grange.api.kinds.rollingupdate import RollingUpdate
from grange.api.meta import Document
from grange.api.status import Forbidden, NotFound
from grange.cli.verbs.rc import nodes, rolling_updates, rollout

__all__ = ["tools"]


async def follow_rollout(
    there: World, capsys: pytest.CaptureFixture[str], name: str, *, waiting: bool = True
) -> tuple[int, str]:
    code = await rollout.followed(session(there), name, wait=waiting, timeout_s=300.0)
    return code, "".join(capsys.readouterr())


@pytest.mark.parametrize("waiting", [True, False])
async def test_refused_rollout_has_failed_by_either_name(
    tools: Tools, capsys: pytest.CaptureFixture[str], *, waiting: bool
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, startingReplicas={"old": 7, "new": 0})
        await there.until(lambda: phase(there, "Refused"))
        for name in ("one", "two"):
            code, reported = await follow_rollout(there, capsys, name, waiting=waiting)
            assert code == 1, (name, reported)
            assert "Refused" in reported
            assert "expected 7 and 0, found 3 and 0" in reported


async def test_failed_and_undone_rollouts_are_reported(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(*tools, kind=Sick) as there:
        await begun(there, 3, healthy=False)
        await roll(there, progressDeadlineSeconds=30)
        code, reported = await follow_rollout(there, capsys, "two")
        assert (code, "Failed, 1 of 3 moved: two 0 of 3 healthy" in reported) == (1, True), reported
        found = await rolling_updates.under_way(session(there), "one")
        assert found is not None
        assert found.metadata.name == "roll"
        await rolling_updates.change(session(there), found, {"undo": True})
        await there.until(lambda: phase(there, "RolledBack"))
        code, reported = await follow_rollout(there, capsys, "two")
        assert (code, "RolledBack" in reported) == (1, True), reported
        assert await rolling_updates.under_way(session(there), "two") is None


async def test_one_that_is_deleted_before_its_end_was_cancelled(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        following = asyncio.create_task(follow_rollout(there, capsys, "two"))
        await there.settle()
        await there.client.delete(ROLLINGUPDATE, "roll", "default")
        code, reported = await following
        assert (code, "was cancelled" in reported) == (1, True), reported


async def test_pausing_by_the_name_of_either_controller_stops_the_move(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        for name, paused in (("one", True), ("two", False)):
            assert await rollout.hold(session(there), name, paused=paused) == 0
            assert (await update(there)).spec.paused is paused
            assert "rollingupdate.grange.dev/roll" in capsys.readouterr().out
        assert not (await there.controller("one")).spec.rollout.paused


async def test_complete_rollout_is_complete_and_new_template_another(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there)
        assert (await follow_rollout(there, capsys, "two"))[0] == 0
        await there.until(lambda: gone(there, "one"))
        assert (await follow_rollout(there, capsys, "two"))[0] == 0
        code, reported = await follow_rollout(there, capsys, "one")
        assert (code, "gru/roll" in reported, "Complete" in reported) == (0, True, True), reported


async def test_template_after_a_refusal_is_followed_instead(
    tools: Tools, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        await roll(there, startingReplicas={"old": 7, "new": 0})
        await there.until(lambda: phase(there, "Refused"))
        await there.settle()
        change = {"spec": {"template": version(3)}}
        await there.client.patch(REPLICATIONCONTROLLER, "one", "default", patch=change)
        code, reported = await follow_rollout(there, capsys, "one")
        assert (code, "grc/one" in reported, "3 of 3 updated" in reported) == (0, True, True), (
            reported
        )
        assert (await follow_rollout(there, capsys, "two"))[0] == 1, "of that nothing has changed"


def test_latest_rollout_counts_and_of_ties_the_active_one() -> None:
    def made(name: str, second: int, phase: str, **ends: str) -> RollingUpdate:
        document: Document = {
            "metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:0{second}Z"},
            "spec": {"old": "a", "new": "b", "desired": 1, "minimum": 0, **ends},
            "status": {"phase": phase},
        }
        return convert(document, RollingUpdate)

    updates = [
        made("first", 1, "Progressing"),
        made("last", 2, "Refused"),
        made("middle", 2, "Waiting"),
        made("other", 3, "Waiting", old="x", new="y"),
    ]
    for name in ("a", "b"):
        found = rolling_updates.latest_first(name, updates)
        assert [item.metadata.name for item in found] == ["middle", "last", "first"]
    assert rolling_updates.latest_first("c", updates) == []


async def gone(there: World, name: str) -> bool:
    try:
        await there.controller(name)
    except NotFound:
        return True
    return False


async def test_status_of_missing_controller_does_not_wait(tools: Tools) -> None:
    async with world(*tools, hands=False) as there:
        for waiting in (True, False):
            with pytest.raises(NotFound):
                await rollout.followed(session(there), "web", wait=waiting, timeout_s=300.0)


async def test_node_that_does_not_exist_is_refused(tools: Tools) -> None:
    async with world(*tools, hands=False) as there:
        await there.add_node("a")
        await nodes.require_node(session(there), "a")
        with pytest.raises(NotFound, match="grange get nodes"):
            await nodes.require_node(session(there), "b")
        there.gate = lambda request: Forbidden("no")
        env = opened(there.deps.client, clock=there.clock, rng=there.rng, log=there.log)
        await nodes.require_node(env, "b")
