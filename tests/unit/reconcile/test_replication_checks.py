"""The numbered checks of replication about stores, labels and health, on what took their place.

S… and L… are numbers of the specification of replication; what P2 kept in separate stores (labels,
locks, lists of keys) are labels, annotations and informers here.
"""

from collections.abc import AsyncGenerator

import msgspec
import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers import builders

from grange.alerts.targets import InvalidTarget
from grange.api import codec
from grange.api.farm_protocol import OWNER_ANNOTATION
from grange.api.kinds import CONFIGMAP, REPLICATIONCONTROLLER
from grange.api.kinds.configmap import ConfigMap
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import NodeTransfer
from grange.api.meta import Document, ObjectKey, Resource
from grange.api.selectors import Labels
from grange.api.status import BadRequest, Conflict
from grange.app.alerting import checked
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.shared import deletion_order
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.leases import Token
from grange.reconcile.farm.ownership import claim_patch, owner_text, ownership
from grange.reconcile.workqueue import WorkQueue

A, B = Token("a", "x1", 1), Token("b", "y2", 4)


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log, hands=False) as made:
        yield made


async def put(there: World, name: str, **labels: str) -> ConfigMap:
    document: Document = {"metadata": {"name": name, "labels": labels}}
    return await there.client.create(CONFIGMAP, document, "default")


async def relabel(
    there: World, name: str, labels: dict[str, str | None], version: str = ""
) -> ConfigMap:
    meta: Document = {"labels": labels, **({"resourceVersion": version} if version else {})}
    return await there.client.patch(CONFIGMAP, name, "default", patch={"metadata": meta})


async def selected(there: World, labels: str) -> list[str]:
    found = await there.client.list(CONFIGMAP, "default", labels=labels)
    return [item.metadata.name for item in found.items]


# --- objects ----------------------------------------------------------------------------------


def test_check_s1_a_controller_survives_json() -> None:
    owner = builders.controller(replicas=3, nodeSelector={"matchLabels": {"disk": "ssd"}})
    back = msgspec.json.decode(msgspec.json.encode(owner), type=ReplicationController)
    assert back == owner
    assert (back.metadata.uid, back.spec.template) == (owner.metadata.uid, builders.TEMPLATE)


async def test_check_s3_busy_readers_get_newest_and_corrupt_recovers(
    there: World, clock: Clock
) -> None:
    informer = there.informers.informer(REPLICATIONCONTROLLER)
    queue: WorkQueue[ObjectKey] = WorkQueue(clock)
    informer.add_handler(lambda obj: queue.add(obj.key), lambda _, new: queue.add(new.key))
    await there.add_controller("web", replicas=1)
    await there.settle(0.5)
    for replicas in (2, 3, 4):
        await there.change("web", replicas=replicas)
    await there.settle(0.5)
    key = await queue.get()
    queue.done(key)
    shown = informer.store.get(key)
    assert shown is not None
    assert (shown.spec.replicas, len(queue)) == (4, 0), "what was not read yet is superseded"

    raw = f"/grange.dev/replicationcontrollers/default/{key.name}"
    entry = there.store.latest(raw)
    assert entry is not None
    sound: Document = msgspec.json.decode(entry.value)

    async def write(spec: Document) -> None:
        def stored(revision: int) -> bytes:
            meta = {**sound["metadata"], "resourceVersion": str(revision)}
            return codec.encode({**sound, "metadata": meta, "spec": spec})

        await there.store.put(raw, stored)
        await there.settle(0.5)

    await write({"replicas": "many"})
    assert informer.statistics().undecodable > 0
    await write({**sound["spec"], "replicas": 5})
    shown = informer.store.get(key)
    assert shown is not None
    assert shown.spec.replicas == 5


# --- who holds what ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("a_x1/1", A),
        ("host-1.rack_2/17", Token("host-1.rack", "2", 17)),
        ("", None),
        ("a/1", None),
        ("_x/1", None),
        ("a_/1", None),
        ("a_x", None),
        ("a_x/", None),
        ("a_x/one", None),
        ("a_x/-1", None),
    ],
)
def test_check_s4_s5_names_of_sessions_are_read_exactly(text: str, token: Token | None) -> None:
    assert Token.parse(text) == token
    assert token is None or str(token) == text


def test_check_s13_what_is_held_is_named_exactly_so() -> None:
    assert FarmConfig(member="host-1").lease_name("host-1") == "grange-host-1"
    assert OWNER_ANNOTATION == "grange.dev/owner"
    assert A.holder == "a_x1"
    assert str(A) == "a_x1/1"


async def test_check_s6_s14_one_session_holds_until_its_release(
    there: World,
) -> None:
    free = await put(there, "web")
    assert (owner_text(free), ownership(free)) == (None, None)
    patch = claim_patch(free, A)
    held = await there.client.patch(CONFIGMAP, "web", "default", patch=patch)
    assert ownership(held) == A
    with pytest.raises(Conflict):
        await there.client.patch(CONFIGMAP, "web", "default", patch=claim_patch(free, B))
    patch = claim_patch(held, None)
    released = await there.client.patch(CONFIGMAP, "web", "default", patch=patch)
    assert (owner_text(released), ownership(released)) == ("", None)
    patch = claim_patch(released, B)
    taken = await there.client.patch(CONFIGMAP, "web", "default", patch=patch)
    assert ownership(taken) == B


# --- labels -----------------------------------------------------------------------------------


async def test_check_l1_labels_are_set_read_and_removed(there: World) -> None:
    assert (await put(there, "bare")).metadata.labels == {}
    await relabel(there, "bare", {"a": "1", "b": "2"})
    assert (await there.client.get(CONFIGMAP, "bare", "default")).metadata.labels == {
        "a": "1",
        "b": "2",
    }
    await relabel(there, "bare", {"a": None})
    await relabel(there, "bare", {"b": None})
    await relabel(there, "bare", {"b": None})
    assert (await there.client.get(CONFIGMAP, "bare", "default")).metadata.labels == {}


async def test_check_l2_labels_select_what_they_name(there: World) -> None:
    await put(there, "one", app="x", zone="1")
    await put(there, "two", app="x", zone="2")
    await put(there, "none")
    assert await selected(there, "app=x") == ["one", "two"]
    assert await selected(there, "zone notin (1)") == ["none", "two"]
    assert await selected(there, "app=x,zone=2") == ["two"]
    assert await selected(there, "app=y") == []


async def test_check_l3_l4_fenced_labels_are_refused_whole_on_change(
    there: World,
) -> None:
    seen = await put(there, "one", a="1")
    await relabel(there, "one", {"b": "2"})
    with pytest.raises(Conflict):
        await relabel(there, "one", {"a": None, "c": "3"}, seen.metadata.resource_version)
    now = await there.client.get(CONFIGMAP, "one", "default")
    assert now.metadata.labels == {"a": "1", "b": "2"}
    await relabel(there, "one", {"a": None, "c": "3"}, now.metadata.resource_version)
    now = await there.client.get(CONFIGMAP, "one", "default")
    assert now.metadata.labels == {"b": "2", "c": "3"}


async def test_check_l5_watch_by_labels_gives_every_change(
    there: World,
) -> None:
    reported: list[tuple[str, str]] = []
    informer = there.informers.informer(CONFIGMAP, namespace="default", labels="app=x")
    informer.add_handler(
        lambda obj: reported.append(("created", obj.metadata.name)),
        lambda _, new: reported.append(("updated", new.metadata.name)),
        lambda old: reported.append(("deleted", old.metadata.name)),
    )
    await put(there, "one", app="x")
    await put(there, "other", app="y")
    await there.settle(0.5)
    await relabel(there, "one", {"more": "1"})
    await relabel(there, "other", {"app": "x"})
    await relabel(there, "one", {"app": None})
    await there.settle(0.5)
    await there.client.delete(CONFIGMAP, "other", "default")
    await there.settle(0.5)
    assert reported == [
        ("created", "one"),
        ("updated", "one"),
        ("created", "other"),
        ("deleted", "one"),
        ("deleted", "other"),
    ]


def test_check_l6_selector_of_nothing_matches_nothing_stored_too() -> None:
    nothing = Labels(nothing=True)
    for labels in ({}, {"a": "1"}, {"grange.dev/nothing": ""}):
        assert not nothing.matches(labels)
        assert not Labels.parse(str(nothing)).matches(labels)
    assert Labels.parse("").matches({})


async def test_check_l7_many_readers_share_a_watch_undisturbed(
    there: World,
) -> None:
    first = there.informers.informer(CONFIGMAP, namespace="default", labels="app=x")
    assert there.informers.informer(CONFIGMAP, namespace="default", labels="app=x") is first
    await put(there, "one", app="x")
    await first.synced.wait()
    await there.settle(0.5)
    late: list[str] = []

    def broken(obj: Resource) -> None:
        raise ZeroDivisionError(obj.metadata.name)

    first.add_handler(broken)
    first.add_handler(lambda obj: late.append(obj.metadata.name))
    assert late == ["one"], "what is known is reported at once"
    await put(there, "two", app="x")
    await there.settle(0.5)
    assert late == ["one", "two"], "a reader that fails does not blind the others"
    assert first.statistics().handler_errors == 2


# --- alerts and health ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["secret/path", "ftp://secret", "https:///secret", "https://[secret", "://secret"]
)
def test_check_p1_bad_alert_address_is_refused_unrepeated(url: str) -> None:
    with pytest.raises(InvalidTarget) as caught:
        checked(url)
    assert "secret" not in str(caught.value), "an address may hold one"
    assert checked("") == ""
    assert checked("https://host/secret")


def test_check_p3_health_goes_by_node() -> None:
    owner = builders.controller(replicas=2)
    well, ill = (builders.pod(owner, node=node) for node in "ab")
    down = frozenset({"b"})
    assert [deletion_order.is_ready(pod, down) for pod in (well, ill)] == [True, False]


# --- what a controller knows about itself -----------------------------------------------------


async def test_check_s15_operation_in_progress_is_in_the_status(
    there: World,
) -> None:
    """P2 kept it in its own document; here it is part of the object, and gone with it."""
    await there.add_controller("web", replicas=0)
    fresh = await there.controller("web")
    assert fresh.status.node_transfers == ()
    under_way = NodeTransfer(id="t", phase="Starting", old="a", old_pod="web-a", old_uid="u")

    async def write(transfers: list[NodeTransfer], version: str) -> ReplicationController:
        patch = {
            "metadata": {"uid": fresh.metadata.uid, "resourceVersion": version},
            "status": {"nodeTransfers": msgspec.to_builtins(transfers)},
        }
        return await there.client.patch(
            REPLICATIONCONTROLLER, "web", "default", patch=patch, subresource="status"
        )

    written = await write([under_way], fresh.metadata.resource_version)
    assert written.status.node_transfers == (under_way,)
    with pytest.raises(Conflict):
        await write([], fresh.metadata.resource_version)
    assert (await there.controller("web")).status.node_transfers == (under_way,)
    cleared = await write([], written.metadata.resource_version)
    assert cleared.status.node_transfers == ()


@pytest.mark.parametrize("wrong", ["a=b=c", "in (a)", "a in b", "a in (b", "=x", "a!!=b"])
async def test_check_l8_unreadable_selector_is_refused_matches_nothing(
    there: World, wrong: str
) -> None:
    await put(there, "web", tier="x")
    with pytest.raises(BadRequest, match="selector"):
        await selected(there, wrong)


@pytest.mark.parametrize(
    ("form", "found"),
    [("tier=x", ["one"]), ("tier in (x, y)", ["one", "two"]), ("tier!=x,tier", ["two"])],
)
async def test_check_l8_every_form_of_a_selector_is_understood(
    there: World, form: str, found: list[str]
) -> None:
    await put(there, "one", tier="x")
    await put(there, "two", tier="y")
    await put(there, "three")
    assert await selected(there, form) == found
