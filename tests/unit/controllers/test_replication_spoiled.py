"""What a user broke is reported where people look, with the remedy, until it is repaired."""

from functools import partial

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.test_rolling_update import begun, phase, roll, update
from tests.unit.controllers.test_unruled_objects import Foreign

from grange.api import conditions
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.replication import (
    GIVEN_UP_ANNOTATION,
    RECEIVED_ANNOTATION,
    TRANSFER_ANNOTATION,
    Transfer,
    written,
)
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.replication.controller import ReplicationService
from grange.sim.pytest_plugin import Records


async def annotate(there: World, name: str, **notes: str | None) -> None:
    """Annotations of a controller, by the last part of their names."""
    known = {
        "order": TRANSFER_ANNOTATION,
        "received": RECEIVED_ANNOTATION,
        "given_up": GIVEN_UP_ANNOTATION,
    }
    patch = {"metadata": {"annotations": {known[key]: text for key, text in notes.items()}}}
    await there.client.patch(REPLICATIONCONTROLLER, name, "default", patch=patch)


def skipped(there: World, reason: str) -> float:
    labels = {"reason": reason}
    return there.deps.metrics.get_sample_value("grange_replication_skips_total", labels) or 0.0


async def has_reason(there: World, reason: str, name: str = "web") -> bool:
    return (await there.condition("Reconciled", name)).reason == reason


@pytest.mark.parametrize("note", ["order", "received"])
async def test_malformed_order_is_a_condition_until_it_is_gone(
    note: str, clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.add_controller(replicas=1)
        await annotate(there, "web", **{note: "{"})
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        await there.until(lambda: has_reason(there, "InvalidAnnotation"))
        stated = await there.condition("Reconciled")
        name = TRANSFER_ANNOTATION if note == "order" else RECEIVED_ANNOTATION
        assert stated.status == "False"
        assert f"kubectl annotate -n default grc/web {name}-" in stated.message
        await there.settle(1.0)
        logged = [event for event, _ in records].count("malformed annotation ignored")
        await there.settle(14.0)
        assert skipped(there, "InvalidAnnotation") == 1.0
        assert [event for event, _ in records].count("malformed annotation ignored") == logged > 0
        await annotate(there, "web", **{note: None})
        await there.until(lambda: has_reason(there, "ReplicasReady"), limit_s=5.0)


async def test_source_is_healed_while_target_annotation_is_malformed(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """Its order waits, and nothing else."""
    async with world(clock, rng, log) as there:
        await there.add_node("a")
        await there.add_controller("one", replicas=1, placement="Packed")
        await there.add_controller("two", replicas=0, placement="Packed")
        uid = (await there.controller("two")).metadata.uid
        waiting = Transfer(id="t", to="two", to_uid=uid, to_start=0, add=1, remove=0)
        await annotate(there, "two", received="{")
        await annotate(there, "one", order=written(waiting))
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1, "one"))
        for name in ("one", "two"):
            await there.until(partial(has_reason, there, "InvalidAnnotation", name))
            assert "grc/two" in (await there.condition("Reconciled", name)).message
        await annotate(there, "two", received=None)
        await there.until(lambda: there.ready(1, "two"), limit_s=20.0)
        await there.until(lambda: has_reason(there, "ReplicasReady", "one"), limit_s=5.0)


@pytest.mark.parametrize("note", ["order", "received", "given_up"])
async def test_rollout_names_the_malformed_order_and_goes_on(
    note: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        await begun(there, 3)
        spoiled = "two" if note == "received" else "one"
        if note == "given_up":  # it is read when the next order follows on one that was given up
            one = Transfer(id="t", to="x", to_uid="", to_start=0, add=1, remove=1, refused=True)
            await annotate(there, spoiled, order=written(one))
        await annotate(there, spoiled, **{note: "{"})
        await roll(there)
        await there.until(lambda: held_up(there))
        stated = conditions.find((await update(there)).status.conditions, "Progressing")
        assert stated is not None
        assert (stated.status, stated.reason) == ("False", "InvalidAnnotation")
        assert f"kubectl annotate -n default grc/{spoiled}" in stated.message
        before = (await update(there)).metadata.resource_version
        await there.settle(15.0)
        assert (await update(there)).metadata.resource_version == before, "reported once"
        assert skipped(there, "InvalidAnnotation") >= 1.0
        await annotate(there, spoiled, **{note: None})
        await there.until(lambda: phase(there, "Complete"), limit_s=30.0)
        assert not await held_up(there)


async def held_up(there: World) -> bool:
    stated = conditions.find((await update(there)).status.conditions, "Progressing")
    return stated is not None and stated.reason == "InvalidAnnotation"


async def test_invalid_controller_reports_it_until_corrected(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, kind=Foreign) as there:
        await there.add_node("a")
        await there.add_controller(replicas=1)
        there.start(ReplicationService(there.deps))
        await there.until(lambda: there.ready(1))
        unknown = {"key": "disk", "operator": "Like", "values": ["ssd"]}
        await there.change(nodeSelector={"matchExpressions": [unknown]})
        await there.until(lambda: has_reason(there, "InvalidController"))
        stated, seen = await there.condition("Reconciled"), await there.controller()
        assert stated.status == "False"
        assert stated.message.endswith("correct the spec; until then nothing is touched")
        assert seen.status.observed_generation == seen.metadata.generation
        await there.settle(15.0)
        assert skipped(there, "InvalidController") == 1.0
        await there.change(nodeSelector=None)
        await there.until(lambda: has_reason(there, "ReplicasReady"), limit_s=5.0)
