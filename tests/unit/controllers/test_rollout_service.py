"""Rollouts of one controller against a real API server in memory, under virtual time.

A ``DeletionGate`` looks at every change of a pod, so a minimum that was broken for a moment is seen.
Numbers are those of the checks in the specification of replication.
"""

from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import session
from tests.unit.controllers import builders

from grange.api import rollouts
from grange.api.http import Request
from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.meta import Document
from grange.api.rollouts import RolloutState
from grange.api.status import InternalError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.rc import objects
from grange.controllers.replication.controller import ReplicationService

SPREAD, PACKED = "OnePerNode", "Packed"


def version(number: int, *, ready: bool = True) -> Document:
    """A template; one that is not ready runs and never becomes Ready."""
    labels = {"app": "web", "v": str(number), "sick": "no" if ready else "yes"}
    return {**builders.TEMPLATE, "metadata": {"labels": labels}}


class Sick(World):
    """A world in which pods with the label ``sick=yes`` run but never become ready."""

    async def set_phase(self, pod: Pod, phase: str) -> None:
        if pod.metadata.labels["sick"] == "yes" and phase == "Running":
            ready = {"type": "Ready", "status": "False", "lastTransitionTime": self._now()}
            body = {"phase": phase, "conditions": [ready]}
            await self.client.patch(
                POD,
                pod.metadata.name,
                pod.metadata.namespace,
                patch={"metadata": {"uid": pod.metadata.uid}, "status": body},
                subresource="status",
            )
            return
        await super().set_phase(pod, phase)


class DeletionGate:
    """Counts the available pods at every change, and remembers the least and the most."""

    def __init__(self, there: World) -> None:
        self._there = there
        self._pods: dict[str, Pod] = {}
        self.reset()
        informer = there.informers.informer(POD)
        informer.add_handler(self._seen, lambda old, new: self._seen(new), self._gone)

    def reset(self) -> None:
        """Forget what was."""
        self.least, self.most, self.started = 10**9, 0, False

    def _seen(self, pod: Pod) -> None:
        self._pods[pod.metadata.uid] = pod
        self._count()

    def _gone(self, pod: Pod) -> None:
        self._pods.pop(pod.metadata.uid, None)
        self._count()

    def _count(self) -> None:
        live = [pod for pod in self._pods.values() if not pod.metadata.deletion_timestamp]
        self.least = min(self.least, sum(map(pods.is_ready, live)))
        self.most = max(self.most, len(live))


Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    """What a world is made with."""
    return clock, rng, log


async def begun(
    there: World, nodes: int, replicas: int, placement: str, **rollout: Any
) -> DeletionGate:
    """A controller at version 1 that is complete, and a deletion gate that begins to watch then."""
    for number in range(nodes):
        await there.add_node(f"n{number}")
    deletion_gate = DeletionGate(there)
    await there.add_controller(
        replicas=replicas, placement=placement, template=version(1), rollout=rollout
    )
    there.start(ReplicationService(there.deps))
    await there.until(lambda: phase_is(there, "Complete"))
    deletion_gate.reset()
    return deletion_gate


async def state(there: World) -> RolloutState:
    found = (await there.controller()).status.rollout
    assert found is not None
    return found


async def phase_is(there: World, *phases: str) -> bool:
    found = (await there.controller()).status.rollout
    return found is not None and found.phase in phases


async def versions(there: World) -> list[str]:
    live = [pod for pod in await there.pods() if not pod.metadata.deletion_timestamp]
    return sorted(pod.metadata.labels["v"] for pod in live)


@pytest.mark.parametrize(
    ("shape", "rollout", "least", "most"),
    [
        ((PACKED, 2, 8), {}, 6, 10),  # a quarter more, a quarter less
        ((PACKED, 1, 1), {}, 1, 2),  # make before break for one replica
        ((PACKED, 2, 3), {"maxUnavailable": 0, "maxSurge": 1}, 3, 4),
        ((PACKED, 2, 4), {"maxUnavailable": 1, "maxSurge": 0}, 3, 4),
        ((SPREAD, 4, 3), {}, 3, 4),  # a spare node for a pod more
        ((SPREAD, 3, 3), {}, 2, 3),  # no spare node: one at a time
        ((SPREAD, 2, 1), {}, 1, 2),
        ((SPREAD, 6, 6), {"maxUnavailable": 2}, 4, 6),
    ],
)
async def test_a_changed_template_rolls_out_within_what_is_allowed(
    tools: Tools, shape: tuple[str, int, int], rollout: dict[str, Any], least: int, most: int
) -> None:
    """W11: in P2 an edit of the manifest restarted the whole fleet at once."""
    placement, nodes, replicas = shape
    async with world(*tools) as there:
        deletion_gate = await begun(there, nodes, replicas, placement, **rollout)
        await there.change(template=version(2))
        await there.until(lambda: phase_is(there, "Progressing"))
        await there.until(lambda: phase_is(there, "Complete"))
        assert await versions(there) == ["2"] * replicas
        assert deletion_gate.least >= least
        assert deletion_gate.most <= most
        await there.settle()
        status = (await there.controller()).status
        assert (status.replicas, status.updated_replicas) == (replicas, replicas)
        assert status.available_replicas == replicas
        assert (await there.condition("Reconciled")).status == "True"
        assert (await there.condition("Progressing")).reason == "RolloutComplete"
        assert [item.revision for item in status.history] == [1, 2]
        there.requests.clear()
        await there.settle(400.0)
        assert there.requests == []


async def test_a_plain_zero_of_max_unavailable_is_a_promise(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Without a spare node nothing is broken; when one comes the rollout goes on."""
    async with world(clock, rng, log) as there:
        deletion_gate = await begun(there, 2, 2, SPREAD, maxUnavailable=0, maxSurge=1)
        await there.change(template=version(2))
        await there.settle(30.0)
        assert await versions(there) == ["1", "1"]
        await there.add_node("n9")
        await there.until(lambda: phase_is(there, "Complete"))
        assert await versions(there) == ["2", "2"]
        assert deletion_gate.least == 2


async def test_check_u11_never_healthy_template_stalls_and_fails(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with sick_world(clock, rng, log) as there:
        deletion_gate = await begun(there, 2, 4, PACKED, progressDeadlineSeconds=60)
        await there.change(template=version(2, ready=False))
        await there.until(lambda: phase_is(there, "Failed"), limit_s=90.0)
        assert (await there.condition("RolloutFailed")).reason == "ProgressDeadlineExceeded"
        assert (await there.condition("Progressing")).status == "False"
        assert (await there.condition("Available")).status == "True"
        assert deletion_gate.least >= 3
        assert [event.count for event in await there.events("RolloutFailed")] == [1]
        # A dead pod of the good template is made again from the good template.
        old = [p for p in await there.pods() if p.metadata.labels["v"] == "1"]
        await there.client.delete(POD, old[0].metadata.name, "default")
        await there.settle(5.0)
        assert (await versions(there)).count("1") == len(old)
        # A fix gets through.
        await there.change(template=version(3))
        await there.until(lambda: phase_is(there, "Complete"))
        assert await versions(there) == ["3"] * 4


async def test_rollout_scaled_on_the_way_fails_only_without_progress(
    tools: Tools,
) -> None:
    """Growing looked like getting far; going on from there, though steadily, like standing still."""
    async with world(*tools) as there:
        slow = {"minReadySeconds": 10, "progressDeadlineSeconds": 25}
        await begun(there, 2, 2, PACKED, maxUnavailable=1, maxSurge=0, **slow)
        await there.change(template=version(2), rollout={"canary": 1})
        await there.until(lambda: phase_is(there, "Waiting"))
        await there.change(replicas=8)
        await there.until(lambda: there.ready(8))
        await there.settle(15.0)
        await there.change(rollout={"canary": None})
        await there.until(lambda: phase_is(there, "Complete"), limit_s=150.0)
        assert await there.events("RolloutFailed") == []


async def test_a_chatty_unhealthy_pod_does_not_extend_the_deadline(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """W13: in P2 every health message armed the timer again."""
    async with sick_world(clock, rng, log) as there:
        await begun(there, 2, 4, PACKED, progressDeadlineSeconds=60)
        await there.change(template=version(2, ready=False))
        started = clock.monotonic()
        while not await phase_is(there, "Failed"):
            for pod in await there.pods():
                if pod.metadata.labels["sick"] == "yes" and pod.spec.node_name:
                    await World.set_phase(there, pod, "Running")
                    await there.settle(0.2)
                    await there.set_phase(pod, "Running")
            await there.settle(2.0)
            assert clock.monotonic() - started < 200.0


async def test_a_failed_rollout_goes_back_by_policy_and_stays_back(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """W19."""
    async with sick_world(clock, rng, log) as there:
        deletion_gate = await begun(
            there, 2, 4, PACKED, progressDeadlineSeconds=60, autoRollback=True
        )
        await there.change(template=version(2, ready=False))
        await there.until(lambda: phase_is(there, "RolledBack"), limit_s=120.0)
        assert await versions(there) == ["1"] * 4
        assert deletion_gate.least >= 3
        assert (await there.condition("RolloutFailed")).reason == "RolledBack"
        assert (await there.controller()).status.updated_replicas == 0
        # The refused template stays refused, whatever else changes or dies.
        await there.change(replicas=5)
        await there.client.delete(POD, (await there.names())[0], "default")
        await there.until(lambda: there.ready(5))
        assert await versions(there) == ["1"] * 5
        await there.change(template=version(3))
        await there.until(lambda: phase_is(there, "Complete"))
        assert await versions(there) == ["3"] * 5
        assert (await there.condition("RolloutFailed")).status == "False"


async def test_pause_stops_where_it_is_and_resume_goes_on(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await begun(
            there,
            2,
            8,
            PACKED,
            minReadySeconds=5,
            maxSurge=1,
            maxUnavailable=0,
            progressDeadlineSeconds=60,
        )
        await there.change(template=version(2))
        await there.settle(7.0)
        await there.client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=rollouts.pause_patch(paused=True)
        )
        await there.settle(20.0)
        assert await phase_is(there, "Paused")
        there_now = await versions(there)
        assert len(there_now) == 8
        assert {"1", "2"} == set(there_now)
        await there.settle(100.0)  # pausing stops the deadline too
        assert await versions(there) == there_now
        # Scaling goes on while paused, with the template that is known to be good.
        await there.change(replicas=10)
        await there.settle(20.0)
        assert (await versions(there)).count("2") == there_now.count("2")
        assert len(await versions(there)) == 10
        await there.client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=rollouts.pause_patch(paused=False)
        )
        await there.until(lambda: phase_is(there, "Complete"), limit_s=300.0)
        assert await versions(there) == ["2"] * 10


async def test_a_canary_waits_and_is_promoted(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await begun(there, 2, 5, PACKED, canary=1, progressDeadlineSeconds=60)
        await there.change(template=version(2))
        await there.until(lambda: phase_is(there, "Waiting"))
        await there.settle(100.0)
        assert await versions(there) == ["1", "1", "1", "1", "2"]
        for name in await there.names():
            await there.client.delete(POD, name, "default")
        await there.settle(10.0)
        assert await versions(there) == ["1", "1", "1", "1", "2"]
        await there.change(rollout={"canary": "50%"})
        await there.settle(10.0)
        assert await versions(there) == ["1", "1", "2", "2", "2"]
        await there.change(rollout={"canary": None})
        await there.until(lambda: phase_is(there, "Complete"))
        assert await versions(there) == ["2"] * 5


async def test_undo_goes_back_to_the_template_before(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """W19: in P2 a rollout only went forward; one could not be turned round half way."""
    async with world(clock, rng, log) as there:
        deletion_gate = await begun(there, 2, 4, PACKED, minReadySeconds=5, maxUnavailable=0)
        await there.change(template=version(2))
        await there.settle(7.0)
        assert set(await versions(there)) == {"1", "2"}
        found = await there.controller()
        before = rollouts.revision_to_undo(found.status.history, (await state(there)).spec_hash)
        assert before.revision == 1
        await objects.set_template(session(there), found, before.template)
        await there.until(lambda: phase_is(there, "Complete"), limit_s=300.0)
        assert await versions(there) == ["1"] * 4
        assert deletion_gate.least == 4
        history = (await there.controller()).status.history
        assert [item.revision for item in history] == [2, 3]
        assert history[-1].template == found.status.history[0].template


async def test_history_has_the_cause_of_each_change(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await begun(there, 1, 1, PACKED)

        async def annotate(cause: str) -> None:
            patch = {"metadata": {"annotations": {rollouts.CHANGE_CAUSE: cause}}}
            await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=patch)
            await there.settle(5.0)

        await annotate("first")
        await there.change(template=version(2))
        await annotate("second")
        history = (await there.controller()).status.history
        assert [item.change_cause for item in history] == ["first", "second"]
        await annotate("x" * 200_000)  # one for each revision would not fit into the object
        history = (await there.controller()).status.history
        assert [len(item.change_cause) for item in history] == [5, rollouts.CAUSE_MAX]


async def test_history_is_bounded(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        await begun(there, 1, 1, PACKED, revisionHistoryLimit=2)
        for number in range(2, 7):
            await there.change(template=version(number))
            await there.settle(5.0)
        assert [item.revision for item in (await there.controller()).status.history] == [4, 5, 6]


async def test_scaling_down_while_rolling_keeps_the_new_minimum(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        deletion_gate = await begun(there, 2, 8, PACKED, minReadySeconds=2, maxUnavailable=0)
        await there.change(template=version(2))
        await there.settle(3.0)
        await there.change(replicas=3)
        await there.until(lambda: phase_is(there, "Complete"), limit_s=120.0)
        assert await versions(there) == ["2"] * 3
        assert deletion_gate.least >= 3


async def test_intent_is_written_before_a_pod_is_touched(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """W1: a process that cannot write its intent (it lost the controller, for example) touches nothing."""
    async with world(clock, rng, log) as there:
        await begun(there, 2, 4, PACKED)

        def gate(request: Request) -> InternalError | None:
            away = request.method == "PATCH" and request.path.endswith("/status")
            return InternalError("no intent today") if away else None

        there.gate = gate
        before = [pod.metadata.uid for pod in await there.pods()]
        await there.change(template=version(2))
        await there.settle(30.0)
        assert [pod.metadata.uid for pod in await there.pods()] == before
        there.gate = lambda request: None
        await there.until(lambda: phase_is(there, "Progressing"), limit_s=120.0)
        await there.until(lambda: phase_is(there, "Complete"), limit_s=120.0)
        assert await versions(there) == ["2"] * 4


async def test_w14_a_watch_that_hangs_does_not_make_dead_pods_count(tools: Tools) -> None:
    """What was ready when it was last heard of is asked about before another one goes."""
    async with world(*tools) as there:
        await begun(there, 2, 4, PACKED, maxUnavailable=1, maxSurge=0)
        there.held_watches.add(POD.path())
        for pod in (await there.pods())[:2]:
            await there.set_phase(pod, "Failed")
        before = {pod.metadata.uid for pod in await there.pods()}
        await there.change(template=version(2))
        await there.settle(20.0)
        assert {pod.metadata.uid for pod in await there.pods()} == before
        there.held_watches.clear()
        await there.until(lambda: phase_is(there, "Complete"), limit_s=300.0)
        assert await versions(there) == ["2"] * 4


async def test_pod_kept_because_of_a_silent_one_is_reported(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 1, 3, PACKED, maxUnavailable=0)
        there.held_watches.add(POD.path())
        await there.set_phase((await there.pods())[0], "Failed")
        await there.change(replicas=2)
        await there.settle(20.0)
        assert len(await there.names()) == 3
        stated = await there.condition("Reconciled")
        assert (stated.reason, stated.message) == (
            "DisruptionBudget",
            "1 pod stays for now: 2 must be available",
        )
        there.held_watches.clear()
        await there.until(lambda: there.ready(2))


async def test_pod_counts_when_its_node_reported_since_available(tools: Tools) -> None:
    """While agents cannot write, the server shows pods as they were: heartbeats confirm them."""
    async with world(*tools) as there:
        rollout = {"minReadySeconds": 15, "maxUnavailable": 0, "maxSurge": 1}
        await begun(there, 2, 2, PACKED, **rollout)
        await there.change(template=version(2))

        async def one_is_new() -> bool:
            live = await there.pods()
            return any(pod.metadata.labels["v"] == "2" and pods.is_ready(pod) for pod in live)

        await there.until(one_is_new)
        there.silent.update(node.metadata.name for node in (await there.client.list(NODE)).items)
        await there.settle(35.0)
        assert await versions(there) == ["1", "1", "2"], "the new one was not ready for long"
        there.silent.clear()
        await there.until(lambda: phase_is(there, "Complete"), limit_s=120.0)
        assert await versions(there) == ["2", "2"]


async def test_another_owner_goes_on_where_the_first_one_stopped(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """What is needed is in the status; a new process knows nothing else."""
    async with world(clock, rng, log) as there:
        for number in range(2):
            await there.add_node(f"n{number}")
        await there.add_controller(
            replicas=6,
            placement=PACKED,
            template=version(1),
            rollout={"minReadySeconds": 3, "canary": 4},
        )
        first = ReplicationService(there.deps)
        async with there.nursery.__class__("first owner") as nursery:
            nursery.start(first.run())
            await there.until(lambda: phase_is(there, "Complete"))
            await there.change(template=version(2))
            await there.settle(4.0)
            nursery.cancel()
        stopped = await state(there)
        assert stopped.old_replicas > 0
        there.start(ReplicationService(there.deps))
        await there.until(lambda: phase_is(there, "Waiting"), limit_s=120.0)
        assert await versions(there) == ["1", "1", "2", "2", "2", "2"]
        assert (await state(there)).started_at == stopped.started_at


def sick_world(clock: Clock, rng: Stream, log: Logger) -> Any:
    """A world whose sick pods never become ready."""
    return world(clock, rng, log, kind=Sick)
