"""Objects that only a schema has judged, as in a cluster of another user: nothing is lost by them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders
from tests.unit.controllers.test_rolling_update import begun, change, phase, roll, update
from tests.unit.controllers.test_rollout_service import version

from grange.api import crds
from grange.api.kinds import BUILT_IN, POD, PODGROUP, QUEUE, REPLICATIONCONTROLLER
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication.controller import ReplicationService
from grange.scheduler.service import Scheduler
from grange.sim.builders import pod_document


def unruled(info: AnyKind) -> AnyKind:
    """A kind of ours as a server knows it that has its schema alone."""
    if not crds.installable([info]):
        return info
    return replace(
        info, validate=lambda document, old: [], default=lambda document: None, immutable=()
    )


class Foreign(World):
    """A world whose server has no rules for our kinds."""

    kinds = tuple(map(unruled, BUILT_IN))


async def test_rollout_from_a_controller_to_itself_changes_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await begun(there, 3)
        await roll(there, old="one", new="one")
        await there.until(lambda: phase(there, "Refused"))
        await there.settle(30.0)
        assert await there.ready(3, "one")
        assert "two controllers" in str((await update(there)).status.conditions)


async def controllers(there: World) -> list[str]:
    return [one.metadata.name for one in (await there.client.list(REPLICATIONCONTROLLER)).items]


@pytest.mark.parametrize(
    "spec",
    [
        {"minimum": 4},
        {"minimum": 3},
        {"desired": 0, "minimum": 3},
        {"canary": 9},
        {"old": None, "leaveOld": True, "desired": 3},
    ],
)
async def test_counts_that_contradict_each_other_cost_no_pod(
    spec: Document, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await begun(there, 3)
        await roll(there, **spec)
        least = 99
        for _ in range(60):
            await there.settle(1.0)
            counts = [await there.controller(name) for name in await controllers(there)]
            least = min(least, sum(one.status.ready_replicas for one in counts))
        floor = min(3, {"minimum": 2, **spec}["minimum"])
        assert least >= floor, f"{least} ready"


async def test_controllers_changed_in_a_rollout_stay_the_same_ones(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await begun(there, 3, nodes=3)
        await there.add_controller("three", replicas=0, placement="Packed", template=version(3))
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        await change(there, new="three")
        await there.settle(60.0)
        counts = {name: (await there.controller(name)).spec.replicas for name in ("one", "two")}
        assert sum(counts.values()) >= 3, counts


async def test_a_rollout_that_can_replace_nothing_keeps_what_is_there(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await there.add_node("n0")
        await there.add_controller(
            replicas=1, rollout={"maxUnavailable": 0, "maxSurge": 0}, template=version(1)
        )
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        await there.change(template=version(2))
        await there.settle(700.0)
        assert (await there.controller()).status.ready_replicas == 1
        assert (await there.condition("RolloutFailed")).status == "True"


def bad(**spec: Any) -> Document:
    template = builders.TEMPLATE
    return {**template, "spec": {**template["spec"], **spec}}


@pytest.mark.parametrize(
    "spec",
    [
        {"podLabels": {"a": "b c"}},
        {"template": bad(containers=[{"name": "A b", "image": "x"}])},
    ],
)
async def test_pods_that_the_server_refuses_are_reported(
    spec: Document, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await there.add_node("n0")
        await there.add_controller(replicas=1, **spec)
        await there.add_controller("good", replicas=1)
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1, "good"))
        await there.settle(5.0)
        stated = await there.condition("Reconciled")
        assert stated.status == "False"
        assert "nvalid" in stated.message


async def test_never_restarted_programs_are_replaced_ever_later(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await there.add_node("n0")
        await there.add_controller(replicas=1, template=bad(restartPolicy="Never"))
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        births = set()
        for _ in range(300):
            for pod in await there.pods():
                births.add(pod.metadata.uid)
                if pod.status.phase == "Running":
                    await there.set_phase(pod, "Succeeded")
            await there.settle(1.0)
        assert 3 <= len(births) <= 12


@pytest.mark.parametrize(
    "spec",
    [
        {"capacity": {"cpu": "-1"}},
        {"capacity": {"cpu": 0}, "borrowingLimit": {"cpu": "5", "memory": "-3"}},
        {"capacity": {"cpu": "0"}, "cohort": "c", "borrowingLimit": {"other": "1"}},
    ],
)
async def test_quotas_that_make_no_sense_hold_up_their_own_pods_only(
    spec: Document, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign, hands=False) as there:
        await there.add_node("n0")
        await there.client.create(QUEUE, {"metadata": {"name": "q"}, "spec": spec})
        group: Document = {"minMember": 1, "topology": {"key": "a b"}}
        await there.client.create(PODGROUP, {"metadata": {"name": "g"}, "spec": group}, "default")
        there.start(Scheduler(there.deps))
        marks = {"queued": {QUEUE_LABEL: "q"}, "grouped": {GROUP_LABEL: "g"}, "free": {}}
        for name, labels in marks.items():
            document = pod_document(name, labels=labels, requests={"cpu": "1"})
            await there.client.create(POD, document, "default")
        await there.settle(30.0)
        assert [pod.metadata.name for pod in await there.pods() if pod.spec.node_name] == ["free"]
