"""How long a pod has been ready, whatever its node believes the time to be."""

from datetime import timedelta

from tests.unit.controllers import builders

from grange.api import timestamps
from grange.base.clock import Clock
from grange.controllers.shared import availability
from grange.controllers.shared.availability import SKEW_S, Readiness


async def test_a_clock_that_is_behind_makes_no_pod_available_early(clock: Clock) -> None:
    """The stamp on the condition is a minute old the moment it is written."""
    owner = builders.controller(rollout={"minReadySeconds": 10})
    stamp = timestamps.rfc3339(clock.now() - timedelta(seconds=59))
    starting = builders.pod(owner, node="a", ready=False)
    ready = builders.pod(owner, node="a", ready_since=stamp)
    readiness = Readiness(clock)
    readiness.appeared(starting)
    readiness.changed(starting, ready)

    def wait() -> float:
        return availability.wait_for_available(owner, ready, clock.now(), readiness)

    assert wait() == 10.0
    await clock.sleep(4.0)
    assert wait() == 6.0
    readiness.changed(ready, ready)
    await clock.sleep(6.0)
    assert wait() == 0.0
    readiness.changed(ready, starting)
    readiness.changed(starting, ready)
    assert wait() == 10.0


async def test_a_pod_that_broke_unseen_starts_over(clock: Clock) -> None:
    """Two states of which both are ready, with different stamps: in between it was not."""
    owner = builders.controller(rollout={"minReadySeconds": 10})
    starting = builders.pod(owner, node="a", ready=False)
    stamps = [timestamps.rfc3339(clock.now() + timedelta(seconds=more)) for more in (0, 8)]
    first, second = (builders.pod(owner, node="a", ready_since=stamp) for stamp in stamps)
    readiness = Readiness(clock)
    readiness.appeared(starting)
    readiness.changed(starting, first)
    await clock.sleep(9.0)
    readiness.changed(first, second)
    assert availability.wait_for_available(owner, second, clock.now(), readiness) == 10.0


async def test_pod_ready_long_before_start_is_believed(
    clock: Clock,
) -> None:
    owner = builders.controller(rollout={"minReadySeconds": 10})
    readiness = Readiness(clock)
    for age_s, wait_s in ((10 + SKEW_S, 0.0), (9 + SKEW_S, 10.0)):
        stamp = timestamps.rfc3339(clock.now() - timedelta(seconds=age_s))
        pod = builders.pod(owner, node="a", uid=f"pod-{age_s}", ready_since=stamp)
        readiness.appeared(pod)
        assert availability.wait_for_available(owner, pod, clock.now(), readiness) == wait_s
