"""Who answers why a pod waits, and what is shown when nothing does."""

import pytest

from grange.api.explanation import Explanation, SchedulingState
from grange.api.kinds.pod import Pod
from grange.api.status import NotFound, ServiceUnavailable
from grange.app.explanations import Explanations
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.tasks import Nursery
from grange.scheduler.errors import SchedulerNotRunning
from grange.sim import builders


async def test_none_is_asked_before_a_scheduler_runs(clock: Clock) -> None:
    with pytest.raises(ServiceUnavailable, match="--disable scheduler"):
        await Explanations(clock).explain(builders.pod("p"))


async def test_first_scheduler_is_waited_for(clock: Clock) -> None:
    """The API server answers before the roles of its process have begun."""
    mine = Explanation(state=SchedulingState.BACKOFF)
    why = Explanations(clock)

    async def begin() -> None:
        await clock.sleep(1.0)
        why.add(frozenset({"default-scheduler"}), lambda _: mine)

    async with Nursery("test") as nursery:
        nursery.start(begin())
        assert await why.explain(builders.pod("p")) is mine


async def test_the_scheduler_that_has_the_pod_answers(clock: Clock) -> None:
    mine = Explanation(state=SchedulingState.BACKOFF)
    why = Explanations(clock)
    why.add(frozenset({"other"}), lambda _: None)
    why.add(frozenset({"default-scheduler"}), lambda _: mine)
    assert await why.explain(builders.pod("p")) is mine


async def test_a_pod_for_a_scheduler_that_is_not_here(clock: Clock) -> None:
    """Waiting for it is useless, and which names would do is shown."""
    why = Explanations(clock)
    why.add(frozenset({"grange"}), lambda _: None)
    waiting = await why.explain(builders.pod("p", schedulerName="mine"))
    assert waiting.state is SchedulingState.UNSEEN
    assert "'mine'" in waiting.summary
    assert "grange" in waiting.hint
    placed = await why.explain(builders.pod("p", schedulerName="mine", nodeName="a"))
    assert (placed.state, placed.node) == (SchedulingState.PLACED, "a")


async def test_a_scheduler_that_cannot_explain_now(clock: Clock) -> None:
    def fails(_: Pod) -> Explanation:
        raise GrangeError("books are being put right")

    why = Explanations(clock)
    why.add(frozenset({"grange"}), fails)
    with pytest.raises(ServiceUnavailable, match="books are being put right"):
        await why.explain(builders.pod("p"))


async def test_a_scheduler_that_starts_is_waited_for(clock: Clock) -> None:
    """Else who asks in the first moment is sent to another process, and there is none."""
    begins = clock.monotonic() + 1.0

    def starts(_: Pod) -> Explanation:
        if clock.monotonic() < begins:
            raise SchedulerNotRunning("it lists the pods")
        return Explanation(state=SchedulingState.BACKOFF)

    why = Explanations(clock)
    why.add(frozenset({"default-scheduler"}), starts)
    assert (await why.explain(builders.pod("p"))).state is SchedulingState.BACKOFF
    begins = clock.monotonic() + 60.0
    with pytest.raises(ServiceUnavailable, match="it lists the pods"):
        await why.explain(builders.pod("p"))
    assert clock.monotonic() < begins


async def test_only_pods_are_scheduled(clock: Clock) -> None:
    why = Explanations(clock)
    why.add(frozenset({"grange"}), lambda _: None)
    with pytest.raises(NotFound):
        await why.explain(builders.node("n"))
