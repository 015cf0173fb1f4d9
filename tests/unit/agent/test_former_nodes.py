"""Pods of nodes that an earlier run of the server had."""

from grange.agent.container_runtime import PodSetup, RuntimeFailedError
from grange.agent.runtimes.fake import FakeMachine, FakeRuntime
from grange.agent.service import end_other_nodes
from grange.base.clock import Clock
from grange.base.log import Logger


class Stuck(FakeRuntime):
    """One pod's process does not die, and it takes a while to find out."""

    def __init__(self, machine: FakeMachine, clock: Clock, stuck: str) -> None:
        super().__init__(machine, clock)
        self._stuck, self._time = stuck, clock

    async def remove(self, pod_uid: str) -> None:
        if pod_uid == self._stuck:
            await self._time.sleep(30)
            raise RuntimeFailedError("a process does not die")
        await super().remove(pod_uid)


async def test_pod_that_does_not_end_holds_up_no_start(clock: Clock, log: Logger) -> None:
    machine = FakeMachine()
    runtime = Stuck(machine, clock, "a")
    for uid, node in (("a", "node-2"), ("b", "node-2"), ("c", "node-3"), ("d", "node-1")):
        await runtime.prepare(PodSetup(uid, "default", uid, node))
    began = clock.monotonic()
    await end_other_nodes(runtime, frozenset({"node-1"}), log)
    assert sorted(machine.pods) == ["a", "d"]
    assert clock.monotonic() - began == 30
