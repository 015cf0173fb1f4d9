"""Rollouts between two controllers while pods break and nodes are cordoned, drawn by lot.

Judged at every pod that is taken: so many as the minimum asks must be ready without it. What breaks by
itself is not judged, and nothing breaks in the moment between a decision and what is done for it.
"""

from contextlib import suppress

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.test_rolling_update import begun, change, roll
from tests.unit.controllers.test_rollout_service import Tools, tools

from grange.api.kinds import NODE, POD, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.status import NotFound
from grange.base.rng import Stream

__all__ = ["tools"]


class Judge:
    """Notes every ready pod that goes while fewer than the minimum stay."""

    def __init__(self, there: World, minimum: int) -> None:
        self.taken: list[str] = []
        self._minimum = minimum
        self._ready: set[str] = set()
        there.informers.informer(POD).add_handler(
            self._see, lambda _, new: self._see(new), self._took
        )

    def _see(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp:
            self._took(pod)
        elif pods.is_ready(pod):
            self._ready.add(pod.metadata.uid)
        else:
            self._ready.discard(pod.metadata.uid)

    def _took(self, pod: Pod) -> None:
        if pod.metadata.uid not in self._ready:
            return
        self._ready.discard(pod.metadata.uid)
        if len(self._ready) < self._minimum:
            self.taken.append(pod.metadata.name)


async def report_ready(there: World, pod: Pod, ready: bool) -> None:
    stated = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch = {"status": {"conditions": [stated]}}
    with suppress(NotFound):
        await there.client.patch(
            POD, pod.metadata.name, "default", patch=patch, subresource="status"
        )


async def cordon(there: World, draw: Stream) -> None:
    patch = {"spec": {"unschedulable": draw.choice([True, False])}}
    await there.client.patch(NODE, f"n{draw.integer(0, 1)}", patch=patch)


async def trouble(there: World, draw: Stream) -> None:
    """One of the things that happen."""
    running = [pod for pod in await there.pods() if pod.status.phase == "Running"]
    lot = draw.integer(0, 9)
    if lot < 4 and running:
        await report_ready(there, draw.choice(running), ready=False)
    elif lot < 5:
        for pod in running:
            await report_ready(there, pod, ready=True)
    elif lot < 8:
        await cordon(there, draw)
    elif lot < 9:
        await change(there, undo=True)
    else:
        await change(there, paused=draw.choice([True, False]))


@pytest.mark.parametrize("lot", range(12))
async def test_no_step_takes_what_the_minimum_needs_whatever_breaks(tools: Tools, lot: int) -> None:
    async with world(*tools) as there:
        draw = Stream(lot).fork("rolling update")
        replicas = draw.integer(2, 8)
        minimum = draw.integer(0, replicas - 1)
        await begun(there, replicas, nodes=draw.integer(2, 4))
        rules = {"maxUnavailable": draw.choice([0, 1, "50%"]), "maxSurge": 1}
        for name in ("one", "two"):
            await there.change(name, rollout=rules)
        for pod in (await there.pods())[: draw.integer(0, 2)]:
            await report_ready(there, pod, ready=False)
        await cordon(there, draw)
        await there.settle(1.0)
        judge = Judge(there, minimum)
        await roll(
            there,
            desired=draw.choice([replicas, replicas + 2, minimum + 1]),
            minimum=minimum,
            maxSurge=draw.integer(0, 2),
            progressDeadlineSeconds=20,
            autoRollback=draw.choice([True, False]),
        )
        for _ in range(8):
            await there.settle(draw.choice([0.2, 1.5, 3.0]))
            await trouble(there, draw)
        await there.settle(10.0)
        assert judge.taken == []
