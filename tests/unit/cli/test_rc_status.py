"""``grange rc status``: whose the pods are, who works on it, and what is on its way."""

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import session
from tests.unit.controllers import builders
from tests.unit.controllers.test_rolling_update import begun, phase, roll
from tests.unit.controllers.test_rollout_service import Tools, tools

from grange.api import timestamps
from grange.api.farm_protocol import GROUP_LABEL, NAMESPACE, OWNER_ANNOTATION
from grange.api.kinds import LEASE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.transfer_status import TRANSFER_LOCK
from grange.api.meta import Document
from grange.api.replication import TRANSFER_ANNOTATION, Transfer, written
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.verbs.rc import nodes, status
from grange.client.replica_operations import ReplicationControllers

__all__ = ["tools"]
NAME = "grange.dev/replication-controller"


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    """A controller that no process works on."""
    async with world(clock, rng, log, hands=False) as made:
        await made.add_controller("web", replicas=2)
        yield made


async def lines(there: World, name: str = "web") -> list[str]:
    return [" ".join(line.split()) for line in await status.page(session(there), name)]


async def add_pod(there: World, name: str, owner: str = "", **labels: str) -> None:
    references = [] if not owner else [controlled(owner)]
    document: Document = {
        "metadata": {"name": name, "labels": labels, "ownerReferences": references},
        "spec": builders.TEMPLATE["spec"],
    }
    await there.client.create(POD, document, "default")


def controlled(uid: str) -> Document:
    return {
        "apiVersion": "grange.dev/v1alpha1",
        "kind": "ReplicationController",
        "name": "web",
        "uid": uid,
        "controller": True,
    }


async def annotate(there: World, **notes: str) -> None:
    change = {"metadata": {"annotations": notes}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=change)


async def test_owner_references_name_a_pods_owner_and_labels_do_not(there: World) -> None:
    uid = (await there.controller()).metadata.uid
    marks = {NAME: "web", f"{NAME}-uid": uid}
    await add_pod(there, "ours", uid, **marks)
    await add_pod(there, "unmarked", uid)
    await add_pod(there, "alike", "another-uid", **marks)
    page = await lines(there)
    table = page[page.index("POD READY STATUS NODE TEMPLATE AGE") + 1 :]
    assert [line.split()[0] for line in table] == ["ours", "unmarked"]
    assert not any(line.startswith("Not adopted") for line in page)


async def test_pods_that_are_still_to_be_adopted_are_named(there: World) -> None:
    marks = {NAME: "web"}
    await add_pod(there, "left", **marks)
    await add_pod(there, "ended", **marks)
    await there.set_phase(await there.client.get(POD, "ended", "default"), "Succeeded")
    page = await lines(there)
    assert "Not adopted: left" in page
    assert not any("READY" in line for line in page), "they are not its own"


async def test_replicas_in_transfer_count_until_it_is_given_up(there: World) -> None:
    order = Transfer(id="t1", to="web-2", to_uid="u", to_start=0, add=2, remove=1)
    await annotate(there, **{TRANSFER_ANNOTATION: written(order) or ""})
    assert "Replicas on their way: 2 more for web-2, then 1 fewer here (t1)" in await lines(there)
    refused = Transfer(id="t1", to="web-2", to_uid="u", to_start=0, add=2, remove=1, refused=True)
    await annotate(there, **{TRANSFER_ANNOTATION: written(refused) or ""})
    assert "on their way" not in "".join(await lines(there))
    await annotate(there, **{TRANSFER_ANNOTATION: "{"})
    assert "cannot be read" in "".join(await lines(there))


async def test_a_move_between_controllers_is_on_the_page_of_both(tools: Tools) -> None:
    async with world(*tools) as there:
        await begun(there, 3)
        assert "Replicas move" not in "".join(await lines(there, "one"))
        await roll(there, canary=1)
        await there.until(lambda: phase(there, "Waiting"))
        for name in ("one", "two"):
            reported = "Replicas move: one to two (gru/roll): Waiting, 1 of 3 moved: the canaries"
            assert any(line.startswith(reported) for line in await lines(there, name))


async def test_what_an_operator_ordered_is_shown_until_it_ends(there: World) -> None:
    await ReplicationControllers(there.client, "default").drain_node("web", "b")
    await ReplicationControllers(there.client, "default").drain_node("web", "a")
    lock = nodes.lock(session(there), "web", 60.0)
    await lock.acquire()
    until = timestamps.rfc3339(there.clock.now() + timedelta(seconds=60))
    page = await lines(there)
    assert "Drained nodes: a, b" in page
    assert any(
        line.startswith("Transfers locked: by ") and line.endswith(f", until {until}")
        for line in page
    )
    assert TRANSFER_LOCK in (await there.controller()).metadata.annotations
    await there.settle(61.0)
    assert "locked" not in "".join(await lines(there))


async def test_a_member_that_has_left_works_on_nothing(there: World) -> None:
    assert "Owner: none" in await lines(there)
    await annotate(there, **{OWNER_ANNOTATION: "host-1_abc/7"})
    assert "Owner: none (host-1 has left)" in await lines(there)
    spec = {
        "holderIdentity": "host-1_abc",
        "leaseTransitions": 7,
        "leaseDurationSeconds": 15,
        "renewTime": timestamps.rfc3339_micro(there.clock.now()),
    }
    meta = {"name": "grange-host-1", "labels": {GROUP_LABEL: "grange"}}
    await there.client.create(LEASE, {"metadata": meta, "spec": spec}, NAMESPACE)
    assert "Owner: host-1" in await lines(there)
    await there.settle(20.0)
    assert "Owner: host-1, silent for 20 s" in await lines(there)
