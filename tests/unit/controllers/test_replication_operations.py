"""Operations on ReplicationControllers: each is exact, refuses what it must, and survives a crash.

Numbers S… and W… are those of the checks in the specification of replication.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.api.http import Request, Response
from grange.api.kinds import NAMESPACE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.meta import Document
from grange.api.replication import (
    PROTECT_ANNOTATION,
    RECEIVED_ANNOTATION,
    REMOVE_ANNOTATION,
    TRANSFER_ANNOTATION,
    BadIntent,
    pods_to_remove,
    received,
    transfer_of,
)
from grange.api.status import ApiError, Conflict, Forbidden, Invalid, NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.client.client import Client
from grange.client.replica_operations import (
    Ambiguous,
    OperationRefused,
    OtherCount,
    ReplicationControllers,
    StillWanted,
    WouldRemove,
)
from grange.client.transfers import complete_transfer, prune, transfer_replicas
from grange.controllers.replication.controller import ReplicationService
from grange.sim.api_fixture import Handler

SPEC: dict[str, object] = {"template": builders.TEMPLATE, "placement": "Packed"}


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log) as made:
        yield made


@pytest.fixture
def ops(there: World) -> ReplicationControllers:
    return ReplicationControllers(there.client, "default")


async def replicas(there: World, name: str = "web") -> int:
    return (await there.controller(name)).spec.replicas


# --- create, find, change ---------------------------------------------------------------------


async def test_check_s8_new_controller_wants_zero_and_has_its_labels(
    there: World, ops: ReplicationControllers
) -> None:
    dry = await ops.create("web", SPEC, labels={"tier": "front"}, dry_run=True)
    assert dry.spec.replicas == 0
    with pytest.raises(NotFound):
        await ops.get("web")
    made = await ops.create("web", {**SPEC, "replicas": 7}, labels={"tier": "front"})
    assert (made.spec.replicas, made.spec.paused) == (0, False)
    assert made.metadata.labels == {"tier": "front"}
    with pytest.raises(ApiError, match="already exists"):
        await ops.create("web", SPEC)


async def test_new_controller_removes_no_pods_of_an_earlier_one(
    there: World, ops: ReplicationControllers
) -> None:
    for name, labels in (("web-0", {NAME_LABEL: "web"}), ("else-0", {NAME_LABEL: "else"})):
        document = {**builders.TEMPLATE, "metadata": {"name": name, "labels": labels}}
        await there.client.create(POD, document, "default")
    with pytest.raises(
        WouldRemove, match=r"without a controller \(1\) .*grange apply .*replicas: 1"
    ):
        await ops.create("web", SPEC)
    with pytest.raises(NotFound):
        await ops.get("web")
    assert (await ops.create("web", {**SPEC, "paused": True})).spec.paused, "adopts nothing yet"
    await ops.create("other", SPEC)


async def test_check_s7_labels_find_the_one_controller(
    there: World, ops: ReplicationControllers
) -> None:
    await ops.create("a", SPEC, labels={"app": "x", "zone": "1"})
    await ops.create("b", SPEC, labels={"app": "x", "zone": "2"})
    assert (await ops.find("app=x,zone=2")).metadata.name == "b"
    with pytest.raises(Ambiguous, match="a, b"):
        await ops.find("app=x")
    with pytest.raises(NotFound):
        await ops.find("app=y")


async def test_check_s2_missing_replicas_are_refused_and_zero_is_not(
    there: World,
) -> None:
    document: Document = {"metadata": {"name": "web"}, "spec": {"template": builders.TEMPLATE}}
    with pytest.raises(Invalid) as caught:
        await there.client.create(REPLICATIONCONTROLLER, document, "default")
    assert [cause.field for cause in caught.value.causes] == ["spec.replicas"]
    document["spec"]["replicas"] = 0
    await there.client.create(REPLICATIONCONTROLLER, document, "default")


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"nodeSelector": {"matchLabels": {"disk": "a b"}}}, "spec.nodeSelector"),
        ({"strategy": "Sometimes"}, "spec.strategy"),
        ({"placement": "Everywhere"}, "spec.placement"),
        ({"template": {"spec": {"containers": []}}}, "spec.template.spec.containers"),
    ],
)
async def test_bad_input_is_refused_by_field_and_nothing_is_kept(
    there: World, ops: ReplicationControllers, spec: dict[str, object], field: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await ops.create("web", {**SPEC, **spec})
    assert any(cause.field.startswith(field) for cause in caught.value.causes), caught.value
    with pytest.raises(NotFound):
        await ops.get("web")


async def test_check_s12_enable_and_disable_take_effect_when_written(
    ops: ReplicationControllers,
) -> None:
    await ops.create("web", SPEC)
    assert (await ops.disable("web")).spec.paused
    assert (await ops.disable("web")).spec.paused, "again does no harm"
    assert not (await ops.enable("web")).spec.paused


async def test_check_s11_write_on_another_state_is_refused_whole(
    there: World, ops: ReplicationControllers
) -> None:
    seen = await ops.create("web", SPEC)
    await ops.set_replicas("web", 2)
    with pytest.raises(Conflict):
        await ops.disable("web", unchanged_since=seen)
    with pytest.raises(Conflict):
        await ops.enable("web", unchanged_since=seen)
    with pytest.raises(ApiError):
        await ops.update_template("web", {"spec": {}}, unchanged_since=seen)
    now = await ops.get("web")
    assert (now.spec.paused, now.spec.replicas) == (False, 2)
    assert now.spec.template["spec"]["containers"][0]["name"] == "web"


async def test_counts_are_set_added_clamped_and_compared(
    there: World, ops: ReplicationControllers
) -> None:
    await ops.create("web", SPEC)
    with pytest.raises(Invalid, match="negative"):
        await ops.set_replicas("web", -1)
    await ops.set_replicas("web", 3)
    assert (await ops.add_replicas("web", 4)).spec.replicas == 7
    assert (await ops.add_replicas("web", -9)).spec.replicas == 0, "clamped"
    assert (await ops.add_replicas("web", -1)).spec.replicas == 0
    with pytest.raises(OtherCount, match="expected 3 replicas, found 0"):
        await ops.compare_and_set_replicas("web", 3, 5)
    assert (await ops.compare_and_set_replicas("web", 0, 5)).spec.replicas == 5
    with pytest.raises(Invalid, match="negative"):
        await ops.compare_and_set_replicas("web", 5, -5)


async def test_adding_at_once_from_many_places_loses_nothing(
    there: World, ops: ReplicationControllers
) -> None:
    await ops.create("web", SPEC)
    for _ in range(5):
        there.nursery.start(ops.add_replicas("web", 2))
    await there.settle()
    assert await replicas(there) == 10


async def test_template_and_strategy_changes_are_judged_by_the_server(
    ops: ReplicationControllers,
) -> None:
    await ops.create("web", SPEC)
    changed = await ops.update_template(
        "web", {"spec": {"containers": [{"name": "other", "command": ["other"]}]}}
    )
    assert changed.spec.template["spec"]["containers"][0]["name"] == "other"
    with pytest.raises(Invalid, match="containers"):
        await ops.update_template("web", {"spec": {"containers": []}})
    assert (await ops.set_strategy("web", "Dynamic")).spec.strategy == "Dynamic"
    with pytest.raises(Invalid, match="Dynamic"):
        await ops.set_strategy("web", "cattle")


# --- delete -----------------------------------------------------------------------------------


async def test_check_s10_delete_above_zero_needs_force_and_orphans(
    there: World, ops: ReplicationControllers
) -> None:
    await there.add_node("a")
    there.start(ReplicationService(there.deps))
    await ops.create("web", SPEC)
    await ops.set_replicas("web", 2)
    await there.until(lambda: there.ready(2))
    with pytest.raises(StillWanted, match="2 replicas"):
        await ops.delete("web")
    await ops.delete("web", force=True)
    assert len(await there.names()) == 2
    # Without a garbage collector the finalizer stays: the pods' owners are its to remove.
    assert (await there.controller()).metadata.finalizers == ("orphan",)


async def test_check_s9_a_controller_at_zero_is_deleted_whole(
    there: World, ops: ReplicationControllers
) -> None:
    await ops.create("web", SPEC)
    await ops.delete("web", propagation="Background")
    with pytest.raises(NotFound):
        await ops.get("web")
    with pytest.raises(NotFound):
        await ops.delete("web")


async def test_forced_delete_does_not_wait_for_a_pause_of_other_writes(there: World) -> None:
    """The status changes before each write of the operation, as while pods move."""
    ops = ReplicationControllers(there.new_client(), "default")
    await ops.create("web", SPEC)
    await ops.set_replicas("web", 1)
    writes = 0

    async def write_before(request: Request, handle: Handler) -> Response:
        nonlocal writes
        if request.method != "GET":
            writes += 1
            status: Document = {"status": {"observedGeneration": writes}}
            await there.client.patch(
                REPLICATIONCONTROLLER, "web", "default", patch=status, subresource="status"
            )
        return await handle(request)

    there.intercept = write_before
    await ops.delete("web", force=True, propagation="Background")
    assert writes == 2  # without its protection, then gone
    with pytest.raises(NotFound):
        await there.controller()


async def test_the_server_keeps_what_is_protected_from_every_client(
    there: World, ops: ReplicationControllers
) -> None:
    """kubectl knows nothing of our rule; the server does."""
    await ops.create("web", SPEC)
    await ops.create("plain", SPEC, protect=False)
    for name in ("web", "plain"):
        await ops.set_replicas(name, 1)
    with pytest.raises(Forbidden, match="asks for 1 replica: scale it to zero") as caught:
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
    assert [cause.field for cause in caught.value.causes] == ["spec.replicas"]
    await there.client.delete(REPLICATIONCONTROLLER, "plain", "default")
    await ops.set_replicas("web", 0)
    await there.client.delete(REPLICATIONCONTROLLER, "web", "default")
    with pytest.raises(NotFound):
        await ops.get("web")


async def test_a_namespace_that_goes_takes_what_is_protected_along(there: World) -> None:
    await there.client.create(NAMESPACE, {"metadata": {"name": "team"}})
    ops = ReplicationControllers(there.client, "team")
    await ops.create("web", SPEC)
    await ops.set_replicas("web", 3)
    await there.client.delete(NAMESPACE, "team")
    await there.client.delete(REPLICATIONCONTROLLER, "web", "team")
    with pytest.raises(NotFound):
        await ops.get("web")


# --- one pod less -----------------------------------------------------------------------------


async def test_remove_pod_takes_this_pod_and_no_other(
    there: World, ops: ReplicationControllers
) -> None:
    for name in ("a", "b", "c"):
        await there.add_node(name)
    await there.add_controller(replicas=3)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(3))
    await ops.remove_pod("web", "web-a")
    await there.until(lambda: there.ready(2))
    await there.settle(10)
    assert await there.names() == ["web-b", "web-c"]
    assert await replicas(there) == 2
    await ops.remove_pod("web", "web-c")
    stated = (await there.controller()).metadata.annotations[REMOVE_ANNOTATION]
    assert "," not in stated, "what is done is forgotten"
    await there.settle(10)
    assert await there.names() == ["web-b"]


async def test_remove_pod_holds_also_while_pods_are_missing(
    there: World, ops: ReplicationControllers
) -> None:
    """It is this pod that shall go, however many there are."""
    for name in ("a", "b"):
        await there.add_node(name)
    await there.add_controller(replicas=3)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(2))
    await ops.remove_pod("web", "web-a")
    await there.settle(10)
    assert "web-a" in await there.names(), "node a is eligible and free again"
    pods = {item.metadata.name: item.metadata.uid for item in await there.pods()}
    (going,) = pods_to_remove(await there.controller())
    assert pods["web-a"] != going, "but that is another pod"


async def test_remove_pod_is_refused_where_it_could_not_be_done(
    there: World, ops: ReplicationControllers
) -> None:
    for name in ("a", "b"):
        await there.add_node(name)
    await there.add_controller(replicas=1)
    await there.add_controller("other", replicas=1)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(1))
    await there.until(lambda: there.ready(1, "other"))
    with pytest.raises(OperationRefused, match="does not belong to web"):
        await ops.remove_pod("web", "other-a")
    await ops.disable("web")
    with pytest.raises(OperationRefused, match="disabled"):
        await ops.remove_pod("web", "web-a")
    with pytest.raises(NotFound):
        await ops.remove_pod("web", "nothing")
    assert await replicas(there) == 1


async def test_remove_pod_given_again_never_means_the_successor(
    there: World, ops: ReplicationControllers
) -> None:
    """The first answer was lost; the pod is gone meanwhile, and its name came back."""
    for name in ("a", "b"):
        await there.add_node(name)
    await there.add_controller(replicas=3)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(2))
    meant = {item.metadata.name: item.metadata.uid for item in await there.pods()}["web-a"]
    done = await ops.remove_pod("web", "web-a", uid=meant)
    assert (await ops.remove_pod("web", "web-a", uid=meant)).spec == done.spec, "still under way"
    await there.settle(10)
    assert "web-a" in await there.names()
    with pytest.raises(OperationRefused, match="another one has the name"):
        await ops.remove_pod("web", "web-a", uid=meant)
    assert await replicas(there) == 2


# --- transfers of replicas --------------------------------------------------------------------


class Mortal:
    """A connection that dies with its process at the n-th request, before or after its effect."""

    def __init__(self, inner: Client, at: int, *, after: bool) -> None:
        self._inner = inner
        self._left = at
        self._after = after

    async def send(self, request: Request) -> Response:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise asyncio.CancelledError
        response = await self._inner.raw(request)
        if self._left == 0:
            raise asyncio.CancelledError
        return response

    async def close(self) -> None:
        """Nothing."""


def transfer(client: Client, **change: object) -> Awaitable[None]:
    settings: dict[str, object] = {
        "transfer_id": "t1",
        "add": 2,
        "remove": 3,
        "giver_start": 5,
        "receiver_start": 1,
        **change,
    }
    names = {key: settings.pop(key, key) for key in ("giver", "receiver")}
    return transfer_replicas(
        client,
        "default",
        str(names["giver"]),
        str(names["receiver"]),
        **settings,  # type: ignore[arg-type]  # each has its own type
    )


async def pair(there: World, giver: int = 5, receiver: int = 1) -> None:
    await there.add_controller("giver", replicas=giver, placement="Packed")
    await there.add_controller("receiver", replicas=receiver, placement="Packed")


async def counts(there: World) -> tuple[int, int]:
    return await replicas(there, "giver"), await replicas(there, "receiver")


async def test_transfer_moves_and_leaves_nothing_behind(there: World) -> None:
    await pair(there)
    await transfer(there.client)
    assert await counts(there) == (2, 3)
    for name in ("giver", "receiver"):
        kept = (await there.controller(name)).metadata.annotations
        assert not {TRANSFER_ANNOTATION, RECEIVED_ANNOTATION} & kept.keys()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"giver_start": 4}, OtherCount, "giver: expected 4 replicas, found 5"),
        ({"receiver_start": 2}, OtherCount, "receiver: expected 2 replicas, found 1"),
        ({"add": -1}, Invalid, "add: -1 is negative"),
        ({"remove": -1}, Invalid, "remove: -1 is negative"),
        ({"remove": 6}, Invalid, "remove: 6 is more than the 5"),
        ({"receiver": "giver"}, OperationRefused, "to itself"),
        ({"giver": ""}, Invalid, "giver: name"),
        ({"receiver": ""}, Invalid, "receiver: name"),
        ({"receiver": "absent"}, NotFound, "absent"),
    ],
)
async def test_transfer_that_makes_no_sense_changes_nothing(
    there: World, change: dict[str, object], error: type[Exception], message: str
) -> None:
    await pair(there)
    with pytest.raises(error, match=message):
        await transfer(there.client, **change)
    assert await counts(there) == (5, 1)
    assert TRANSFER_ANNOTATION not in (await there.controller("giver")).metadata.annotations


@pytest.mark.parametrize("after", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize("at", range(1, 16))
async def test_transfer_loses_nothing_wherever_its_giver_dies(
    there: World, clock: Clock, at: int, after: bool
) -> None:
    """A crash at every request: the next reconcile finishes it, or nothing has begun."""
    await pair(there)
    mortal = Client(Mortal(there.client, at, after=after), clock=clock)
    with suppress(asyncio.CancelledError):
        await transfer(mortal)
    between = await counts(there)
    assert sum(between) >= 2 + 3, "on the way there are too many, never too few"
    await complete_transfer(there.client, "default", "giver")
    assert await counts(there) in {(5, 1), (2, 3)}
    await complete_transfer(there.client, "default", "giver")
    end = await counts(there)
    if end == (2, 3):
        await transfer(there.client, transfer_id="t2", giver_start=2, receiver_start=3, remove=1)
        assert await counts(there) == (1, 5)
        assert received(await there.controller("receiver")) == {}, "old notes are taken away"


async def test_the_controller_finishes_what_a_dead_giver_began(there: World, clock: Clock) -> None:
    await pair(there)
    await there.add_node("a")
    mortal = Client(Mortal(there.client, 6, after=True), clock=clock)
    with pytest.raises(asyncio.CancelledError):
        await transfer(mortal)
    assert transfer_of(await there.controller("giver")) is not None
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(2, "giver"))
    await there.until(lambda: there.ready(3, "receiver"))


async def test_the_note_of_a_transfer_that_is_over_is_taken_away(
    there: World, clock: Clock
) -> None:
    """The member that carried it out may have died before the last write."""
    await pair(there, giver=2)
    await there.add_node("a")
    mortal = Client(Mortal(there.client, 9, after=True), clock=clock)
    with pytest.raises(asyncio.CancelledError):
        await transfer(mortal, giver_start=2, remove=1)
    assert await counts(there) == (1, 3)
    assert received(await there.controller("receiver")) == {"t1": "giver"}
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(3, "receiver"))

    async def pruned() -> bool:
        kept = (await there.controller("receiver")).metadata.annotations
        return RECEIVED_ANNOTATION not in kept

    await there.until(pruned)


async def test_the_note_of_a_transfer_under_way_is_kept(there: World, clock: Clock) -> None:
    """Without it the replicas would be given twice."""
    await pair(there)
    mortal = Client(Mortal(there.client, 8, after=True), clock=clock)
    with pytest.raises(asyncio.CancelledError):
        await transfer(mortal)
    receiver = await there.controller("receiver")
    assert received(receiver) == {"t1": "giver"}
    assert await prune(there.client, receiver) is None
    assert received(await there.controller("receiver")) == {"t1": "giver"}
    await complete_transfer(there.client, "default", "giver")
    assert await counts(there) == (2, 3)


async def test_two_who_finish_one_transfer_do_it_once(there: World, clock: Clock) -> None:
    await pair(there)
    mortal = Client(Mortal(there.client, 6, after=True), clock=clock)
    with pytest.raises(asyncio.CancelledError):
        await transfer(mortal)
    for _ in range(3):
        there.nursery.start(complete_transfer(there.client, "default", "giver"))
    await there.settle()
    assert await counts(there) == (2, 3)


async def test_transfer_is_given_up_when_the_receiver_changed_first(
    there: World, clock: Clock
) -> None:
    await pair(there)
    mortal = Client(Mortal(there.client, 4, after=True), clock=clock)
    with pytest.raises(asyncio.CancelledError):
        await transfer(mortal)
    await there.change("receiver", replicas=9)
    assert not await complete_transfer(there.client, "default", "giver")
    assert await counts(there) == (5, 9)
    await transfer(there.client, transfer_id="t2", receiver_start=9)
    assert await counts(there) == (2, 11), "what was given up blocks nothing"


async def test_an_order_that_cannot_be_read_concerns_nothing_else(
    there: World, ops: ReplicationControllers
) -> None:
    """W18: what a user wrote on one object stops neither it nor the others."""
    await pair(there, giver=1, receiver=1)
    await there.add_node("a")
    broken = {"metadata": {"annotations": {TRANSFER_ANNOTATION: "{"}}}
    await there.client.patch(REPLICATIONCONTROLLER, "giver", "default", patch=broken)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(1, "giver"))
    await there.until(lambda: there.ready(1, "receiver"))
    with pytest.raises(BadIntent, match="replica-transfer"):
        await transfer(there.client, giver_start=1, remove=1)


async def test_weakness_w17_there_is_no_moment_with_half_a_controller(
    there: World, ops: ReplicationControllers
) -> None:
    """Object, labels and protection are one write; deleting is one more, and strips nothing first."""
    made = await ops.create("web", SPEC, labels={"a": "b"})
    assert made.metadata.labels == {"a": "b"}
    assert made.metadata.annotations == {PROTECT_ANNOTATION: "replicas"}
    stale = made.metadata.resource_version
    await ops.set_replicas("web", 1)
    with pytest.raises(ApiError):
        await there.client.delete(REPLICATIONCONTROLLER, "web", "default", resource_version=stale)
    assert (await ops.get("web")).metadata.labels == {"a": "b"}, "a lost race changes nothing"


async def test_pods_of_a_deleted_controller_are_found_by_its_label(
    there: World, ops: ReplicationControllers
) -> None:
    await there.add_node("a")
    await there.add_controller(replicas=1)
    there.start(ReplicationService(there.deps))
    await there.until(lambda: there.ready(1))
    uid = (await there.controller()).metadata.uid
    await ops.delete("web", force=True)
    label = f"grange.dev/replication-controller-uid={uid}"
    assert len((await there.client.list(POD, "default", labels=label)).items) == 1
