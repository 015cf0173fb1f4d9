"""Lifecycle hooks: after the start of a container and before its end."""

import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.probe_answer import Answer
from grange.api.kinds import POD
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

YES = Answer(ok=True)
NO = Answer(ok=False, message="command exited with 3: no")


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[World]:
    async with world(clock, rng, log) as made:
        yield made


def hooked(**hooks: Any) -> dict[str, Any]:
    """The fields of a container with hooks: commands by name, or whole handlers."""
    return {
        "lifecycle": {
            name: {"exec": {"command": [hook]}} if isinstance(hook, str) else hook
            for name, hook in hooks.items()
        }
    }


async def reported(there: World, reason: str) -> list[str]:
    return [message for why, message in await there.events() if why == reason]


async def until_delete(there: World, **options: Any) -> float:
    await there.client.delete(POD, "web", "default", **options)
    return round(await there.until_gone(), 1)


# --- postStart -------------------------------------------------------------------------------------


async def test_pod_is_ready_after_its_post_start_hook(there: World) -> None:
    there.prober.commands["warm-up"] = (5.0, YES)
    probe: Any = {"readinessProbe": {"tcpSocket": {"port": 80}}}
    await there.create(document(container(**hooked(postStart="warm-up"), **probe)))
    assert 5.0 <= await there.until_ready() < 5.2
    assert there.prober.ran == [("warm-up", "main")]
    assert len(there.starts()) == 1


async def test_next_container_starts_after_the_hook(there: World) -> None:
    there.prober.commands["warm-up"] = (5.0, YES)
    first = container("first", **hooked(postStart="warm-up"))
    await there.create(document(first, container("second")))
    await there.clock.sleep(4)
    assert [target.container for target in there.machine.starts] == ["first"]
    await there.until_ready()
    assert [target.container for target in there.machine.starts] == ["first", "second"]


async def test_failed_post_start_hook_restarts_the_container(there: World) -> None:
    there.prober.commands["warm-up"] = (0.5, NO)
    await there.create(document(container(**hooked(postStart="warm-up"))))
    await there.clock.sleep(0.9)
    assert len(there.starts()) == 2
    message = "PostStartHook of container main failed: command exited with 3: no"
    assert message in await reported(there, "FailedPostStartHook")
    assert "Stopping container main: FailedPostStartHook" in await reported(there, "Killing")
    there.prober.commands["warm-up"] = (0.5, YES)
    await there.until_ready()


async def test_post_start_hook_that_cannot_be_run_is_tried_again(there: World) -> None:
    there.prober.commands["warm-up"] = (0.0, Answer(ok=None, message="no descriptor left"))
    await there.create(document(container(**hooked(postStart="warm-up"))))
    await there.clock.sleep(3.5)
    assert len(there.starts()) == 1
    assert (await there.condition("Ready"))[0] == "False"
    there.prober.commands["warm-up"] = (0.0, YES)
    assert await there.until_ready() < 1


async def test_deletion_does_not_wait_for_a_post_start_hook(there: World) -> None:
    there.prober.commands["hang"] = (1e6, YES)
    await there.create(document(container(**hooked(postStart="hang"))))
    await there.clock.sleep(3)
    assert await until_delete(there) == 0.0


# --- preStop ---------------------------------------------------------------------------------------


async def test_sigterm_comes_after_the_pre_stop_hook(there: World) -> None:
    there.prober.commands["drain"] = (4.0, YES)
    await there.create(document(container(**hooked(preStop="drain"))))
    await there.until_ready()
    await there.client.delete(POD, "web", "default")
    await there.clock.sleep(1)
    assert (await there.condition("Ready"))[0] == "False"
    assert (await there.main()).state.running is not None
    assert round(await there.until_gone()) == 3


async def test_pre_stop_hook_may_sleep(there: World) -> None:
    await there.create(document(container(**hooked(preStop={"sleep": {"seconds": 7}}))))
    await there.until_ready()
    assert await until_delete(there) == 7.0


@pytest.mark.parametrize(("program", "took"), [("forever", 12.0), ("stubborn", 14.0)])
async def test_pre_stop_hook_ends_with_the_grace(there: World, program: str, took: float) -> None:
    """SIGTERM comes even so, and SIGKILL two seconds later."""
    there.prober.commands["drain"] = (60.0, YES)
    spec = container(program=program, **hooked(preStop="drain"))
    await there.create(document(spec, terminationGracePeriodSeconds=12))
    await there.until_ready()
    assert await until_delete(there) == took
    [message] = await reported(there, "FailedPreStopHook")
    assert "within the grace period" in message


async def test_failed_pre_stop_hook_is_reported_and_sigterm_follows(there: World) -> None:
    there.prober.commands["drain"] = (1.0, NO)
    await there.create(document(container(**hooked(preStop="drain"))))
    await there.until_ready()
    assert await until_delete(there) == 1.0
    message = "PreStopHook of container main failed: command exited with 3: no"
    assert await reported(there, "FailedPreStopHook") == [message]


async def test_no_grace_means_no_pre_stop_hook(there: World) -> None:
    there.prober.commands["drain"] = (1.0, YES)
    spec = container(**hooked(preStop="drain"))
    await there.create(document(spec, terminationGracePeriodSeconds=0))
    await there.until_ready()
    await until_delete(there)
    assert there.prober.ran == []


async def test_shorter_grace_ends_a_pre_stop_hook(there: World) -> None:
    there.prober.commands["drain"] = (25.0, YES)
    await there.create(document(container(**hooked(preStop="drain"))))
    await there.until_ready()
    await there.client.delete(POD, "web", "default")
    await there.clock.sleep(3)
    assert await until_delete(there, grace_period_s=5) == 2.0


async def test_program_that_ends_by_itself_ends_its_hook(there: World) -> None:
    there.prober.commands["drain"] = (20.0, YES)
    await there.create(document(container(program="long", **hooked(preStop="drain"))))
    await there.until_ready()
    await there.clock.sleep(890)
    assert await until_delete(there) == 10.0
    assert await reported(there, "FailedPreStopHook") == []


async def test_restart_by_a_liveness_probe_runs_the_hook(there: World) -> None:
    there.prober.commands["drain"] = (1.0, YES)
    probe = {"tcpSocket": {"port": 80}, "periodSeconds": 1, "failureThreshold": 1}
    await there.create(document(container(livenessProbe=probe, **hooked(preStop="drain"))))
    await there.until_ready()
    there.prober.answers["main"] = Answer(ok=False, message="stuck")
    await there.clock.sleep(0.5)
    there.prober.answers.clear()
    await there.clock.sleep(1)
    await there.until_ready()
    assert there.prober.ran == [("drain", "main")]
    assert len(there.starts()) == 2


async def test_pre_stop_hook_runs_again_for_the_next_agent(there: World) -> None:
    there.prober.commands["drain"] = (8.0, YES)
    await there.create(document(container(**hooked(preStop="drain"))))
    await there.until_ready()
    await there.client.delete(POD, "web", "default")
    await there.clock.sleep(5)
    there.crash_agent()
    there.start_agent()
    assert round(await there.until_gone()) == 8
    assert [word for word, _ in there.prober.ran] == ["drain", "drain"]


async def test_http_hook_is_done_with_any_answer(there: World) -> None:
    there.prober.answers["main"] = Answer(ok=False, message="HTTP status 404", code=404)
    hook = {"httpGet": {"path": "/warm", "port": 80}}
    await there.create(document(container(**hooked(postStart=hook))))
    assert await there.until_ready() < 0.1


async def test_stop_signal_is_sent_in_place_of_sigterm(there: World) -> None:
    await there.create(document(container(lifecycle={"stopSignal": "SIGUSR1"})))
    await there.until_ready()
    assert (await there.main()).stop_signal == "SIGUSR1"
    uid = (await there.pod()).metadata.uid
    sent = there.machine.signals
    await there.client.delete(POD, "web", "default")
    await there.until_gone()
    assert [number for target, number in sent if target.pod_uid == uid] == [signal.SIGUSR1]
