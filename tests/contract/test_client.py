"""The client against the real API server, in memory and over HTTP: the one seam of the design."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import pytest
from tests.support import transport_factories

from grange.api import status
from grange.api.bindings import Binding
from grange.api.kinds import BUILT_IN, CONFIGMAP, LEASE, NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.configmap import ConfigMap
from grange.api.kinds.pod import condition
from grange.api.meta import Document, ObjectKey, ObjectMeta
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.reconcile.informer import InformerFactory
from grange.store.memory import MemoryStore


@pytest.fixture
async def store() -> AsyncGenerator[MemoryStore, None]:
    made = MemoryStore()
    yield made
    await made.close()


@pytest.fixture(params=["inprocess", pytest.param("http", marks=pytest.mark.e2e)])
async def client(
    request: pytest.FixtureRequest, store: MemoryStore, clock: Clock, rng: Stream, log: Logger
) -> AsyncGenerator[Client, None]:
    application = Application(store, Scheme(BUILT_IN), clock=clock, rng=rng, log=log)
    await application.bootstrap()
    async with AsyncExitStack() as stack:
        if request.param == "inprocess":
            door = await stack.enter_async_context(
                transport_factories.inprocess(application.handle)
            )
        else:
            door = await stack.enter_async_context(
                transport_factories.http(application.handle, clock, log)
            )
        yield Client(door, clock=clock)


def config(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


def pod(name: str) -> Document:
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"containers": [{"name": "main", "command": ["true"]}]},
    }


async def test_create_get_update_delete(client: Client) -> None:
    made = await client.create(CONFIGMAP, config("a", k="1"))
    assert made.metadata.uid
    assert (await client.get(CONFIGMAP, "a", "default")).data == {"k": "1"}
    document = await client.get_document(CONFIGMAP, "a", "default")
    document["data"]["k"] = "2"
    changed = await client.update(CONFIGMAP, document)
    assert changed.data == {"k": "2"}
    assert changed.metadata.resource_version != made.metadata.resource_version
    await client.delete(CONFIGMAP, "a", "default")
    with pytest.raises(status.NotFound) as caught:
        await client.get(CONFIGMAP, "a", "default")
    assert caught.value.details.name == "a"


async def test_refusals_are_raised_as_what_they_are(client: Client) -> None:
    made = await client.create(CONFIGMAP, config("a"))
    with pytest.raises(status.AlreadyExists):
        await client.create(CONFIGMAP, config("a"))
    await client.patch(CONFIGMAP, "a", "default", patch={"data": {"k": "1"}})
    stale = await client.get_document(CONFIGMAP, "a", "default")
    stale["metadata"]["resourceVersion"] = made.metadata.resource_version
    with pytest.raises(status.Conflict):
        await client.update(CONFIGMAP, stale)
    broken = pod("p")
    broken["spec"]["containers"][0]["command"] = "not a list"
    with pytest.raises(status.ApiError) as caught:
        await client.create(POD, broken)
    assert "spec.containers[0].command" in str(caught.value)


async def test_delete_as_read_spares_what_has_changed(client: Client) -> None:
    made = await client.create(CONFIGMAP, config("a"))
    changed = await client.patch(CONFIGMAP, "a", "default", patch={"data": {"k": "1"}})
    with pytest.raises(status.Conflict):
        await client.delete_as_read(CONFIGMAP, made)
    await client.delete_as_read(CONFIGMAP, changed)
    again = await client.create(CONFIGMAP, config("a"))
    with pytest.raises(status.Conflict):
        await client.delete_as_read(CONFIGMAP, changed)
    assert (await client.get(CONFIGMAP, "a", "default")).metadata.uid == again.metadata.uid


async def test_scale_is_read_and_written_like_an_object(client: Client) -> None:
    template = {"spec": pod("web")["spec"]}
    meta = {"name": "web", "namespace": "default"}
    spec = {"replicas": 2, "template": template}
    made = await client.create(REPLICATIONCONTROLLER, {"metadata": meta, "spec": spec})
    read = await client.get(REPLICATIONCONTROLLER, "web", "default", subresource="scale")
    assert (read.kind, read.spec.replicas, read.metadata.uid) == ("Scale", 2, made.metadata.uid)
    whole = await client.get_document(REPLICATIONCONTROLLER, "web", "default", subresource="scale")
    assert made.metadata.uid in whole["status"]["selector"]
    written = await client.patch(
        REPLICATIONCONTROLLER,
        "web",
        "default",
        patch={"spec": {"replicas": 5}},
        subresource="scale",
    )
    assert written.spec.replicas == 5
    with pytest.raises(status.Conflict):
        await client.update(REPLICATIONCONTROLLER, whole, subresource="scale")
    with pytest.raises(status.Invalid) as caught:
        await client.patch(
            REPLICATIONCONTROLLER,
            "web",
            "default",
            patch={"spec": {"replicas": -1}},
            subresource="scale",
        )
    assert [cause.field for cause in caught.value.causes] == ["spec.replicas"]
    after = await client.get(REPLICATIONCONTROLLER, "web", "default")
    assert (after.spec.replicas, after.metadata.generation) == (5, made.metadata.generation + 1)
    assert after.spec.template == made.spec.template
    with pytest.raises(status.NotFound):
        await client.get(NODE, "web", subresource="scale")


async def test_dry_run_changes_nothing(client: Client) -> None:
    made = await client.create(CONFIGMAP, config("a"), dry_run=True)
    assert made.metadata.name == "a"
    with pytest.raises(status.NotFound):
        await client.get(CONFIGMAP, "a", "default")


async def test_three_patch_types(client: Client) -> None:
    await client.create(POD, pod("p"))
    merged = await client.patch(
        POD, "p", "default", patch={"metadata": {"labels": {"app": None, "x": "y"}}}
    )
    assert merged.metadata.labels == {"x": "y"}
    operations = [{"op": "add", "path": "/metadata/labels/z", "value": "1"}]
    edited = await client.patch(POD, "p", "default", patch=operations, type="json")
    assert edited.metadata.labels == {"x": "y", "z": "1"}
    reference = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}
    change = {"metadata": {"ownerReferences": [reference]}}
    owned = await client.patch(POD, "p", "default", patch=change, type="strategic")
    assert [item.uid for item in owned.metadata.owner_references] == ["u"]


async def test_fences_hold(client: Client) -> None:
    """A write that is meant for one object must never reach another of its name."""
    made = await client.create(CONFIGMAP, config("a"))
    version = made.metadata.resource_version
    for fence in ({"uid": "another"}, {"resourceVersion": "1"}):
        with pytest.raises(status.Conflict):
            await client.patch(CONFIGMAP, "a", "default", patch={"metadata": fence})
    with pytest.raises(status.Conflict):
        await client.delete(CONFIGMAP, "a", "default", uid="another")
    with pytest.raises(status.Conflict):
        await client.delete(CONFIGMAP, "a", "default", resource_version="1")
    good = {"uid": made.metadata.uid, "resourceVersion": version}
    await client.patch(CONFIGMAP, "a", "default", patch={"metadata": good, "data": {"k": "1"}})
    await client.delete(CONFIGMAP, "a", "default", uid=made.metadata.uid)


async def test_status_and_binding_are_subresources(client: Client) -> None:
    await client.create(NODE, {"metadata": {"name": "n1"}})
    await client.create(POD, pod("p"))
    await client.post(
        POD,
        "p",
        "default",
        "binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": "p"},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        },
    )
    ready = await client.patch(
        POD, "p", "default", patch={"status": {"phase": "Running"}}, subresource="status"
    )
    assert (ready.spec.node_name, ready.status.phase) == ("n1", "Running")


async def test_each_binding_of_a_group_answers_for_itself(client: Client) -> None:
    uids = {}
    for name in ("a", "b", "c", "d", "going"):
        document = pod(name)
        if name == "going":
            document["metadata"]["finalizers"] = ["example.com/hold"]
        uids[name] = (await client.create(POD, document)).metadata.uid
    await client.delete(POD, "going", "default")
    await client.post(POD, "b", "default", "binding", {"target": {"name": "n9"}})
    before = (await client.list(POD)).resource_version
    outcomes = await client.bind(
        [
            Binding("default", "a", uids["a"], "n1"),
            Binding("default", "b", uids["b"], "n1"),
            Binding("default", "c", "another", "n1"),
            Binding("default", "absent", "u", "n1"),
            Binding("nowhere", "a", uids["a"], "n1"),
            Binding("default", "going", uids["going"], "n1"),
            Binding("default", "c", uids["c"], "NO NODE"),
            Binding("default", "d", uids["d"], "n2"),
            Binding("default", "d", uids["d"], "n3"),
        ]
    )
    shown = [each and (type(each), each.details.name) for each in outcomes]
    assert shown == [
        None,
        (status.Conflict, "b"),
        (status.Conflict, "c"),
        (status.NotFound, "absent"),
        (status.NotFound, "a"),
        (status.Conflict, "going"),
        (status.Invalid, "c"),
        None,
        (status.Conflict, "d"),
    ]
    pods = {item.metadata.name: item for item in (await client.list(POD)).items}
    nodes = {name: item.spec.node_name for name, item in pods.items()}
    assert nodes == {"a": "n1", "b": "n9", "c": "", "d": "n2", "going": ""}
    versions = [int(pods[name].metadata.resource_version) for name in ("a", "d")]
    assert versions == [int(before) + 1, int(before) + 2]
    reported = condition(pods["d"], "PodScheduled")
    assert reported is not None
    assert reported.status == "True"


async def test_one_binding_and_none(client: Client) -> None:
    made = await client.create(POD, pod("a"))
    assert await client.bind([]) == []
    assert await client.bind([Binding("default", "a", made.metadata.uid, "n1")]) == [None]
    (refused,) = await client.bind([Binding("default", "a", made.metadata.uid, "n2")])
    assert isinstance(refused, status.Conflict)


async def test_bindings_of_a_group_are_watched_in_order(
    client: Client,
) -> None:
    group = []
    for number in range(20):
        made = await client.create(POD, pod(f"p{number}"))
        group.append(Binding("default", f"p{number}", made.metadata.uid, f"n{number}"))
    version = (await client.list(POD)).resource_version
    assert await client.bind(group) == [None] * 20
    seen: list[tuple[str, str, str]] = []
    async with aclosing(client.watch(POD, resource_version=version)) as events:
        async for event in events:
            meta = event.object.metadata
            seen.append((meta.name, event.object.spec.node_name, meta.resource_version))
            if len(seen) == 20:
                break
    assert seen == [
        (each.name, each.node, str(int(version) + 1 + at)) for at, each in enumerate(group)
    ]


async def test_lists_select_and_page(client: Client) -> None:
    for number in range(5):
        await client.create(POD, pod(f"p{number}"))
    selected = await client.list(POD, "default", labels="app in (p1,p3)")
    assert [item.metadata.name for item in selected.items] == ["p1", "p3"]
    named = await client.list(POD, fields="metadata.name=p2")
    assert [item.metadata.name for item in named.items] == ["p2"]
    names: list[str] = []
    token = ""
    while True:
        page = await client.list(POD, "default", limit=2, cont=token)
        names += [item.metadata.name for item in page.items]
        token = page.next
        if not token:
            break
    assert names == [f"p{number}" for number in range(5)]


async def test_watch_shows_what_happened_after_its_version(client: Client) -> None:
    before = await client.list(CONFIGMAP, "default")
    await client.create(CONFIGMAP, config("a", k="1"))
    await client.patch(CONFIGMAP, "a", "default", patch={"data": {"k": "2"}})
    await client.delete(CONFIGMAP, "a", "default")
    seen = []
    watch = client.watch(CONFIGMAP, "default", resource_version=before.resource_version)
    async with aclosing(watch):
        async for event in watch:
            seen.append((event.type, event.object.data.get("k")))
            if event.type == "DELETED":
                break
    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


async def test_watch_ends_in_good_order_after_its_time(client: Client) -> None:
    before = await client.list(CONFIGMAP)
    watch = client.watch(CONFIGMAP, resource_version=before.resource_version, timeout_s=1)
    events = [event async for event in watch]
    assert {event.type for event in events} <= {"BOOKMARK"}


async def test_watch_of_a_compacted_version_is_expired(client: Client, store: MemoryStore) -> None:
    before = await client.list(CONFIGMAP)
    for name in "abc":
        await client.create(CONFIGMAP, config(name))
    await store.compact(store.revision)
    with pytest.raises(status.Expired):
        async for _ in client.watch(CONFIGMAP, resource_version=before.resource_version):
            pass


async def test_lease_view_is_whole_enough_to_update(client: Client) -> None:
    """Leases are renewed with plain updates: the view names all of their fields."""
    lease = await client.create(
        LEASE,
        {
            "metadata": {"name": "l", "namespace": "default"},
            "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15},
        },
    )
    again = await client.update(LEASE, lease)
    assert again.spec == lease.spec


async def test_informer_follows_the_server(
    client: Client, store: MemoryStore, clock: Clock, rng: Stream, log: Logger
) -> None:
    factory = InformerFactory(client, clock=clock, rng=rng, log=log)
    informer = factory.informer(POD, labels="app")
    gone: list[str] = []
    informer.add_handler(on_delete=lambda obj: gone.append(obj.metadata.name))
    await client.create(POD, pod("before"))
    async with Nursery() as nursery:
        nursery.start(factory.run())
        async with clock.timeout(5):
            await factory.wait_synced()
        await client.create(POD, pod("after"))
        await client.delete(POD, "before", "default")
        async with clock.timeout(5):
            while informer.store.get(ObjectKey("default", "after")) is None or not gone:
                await clock.sleep(0.01)
        nursery.cancel()
    assert [obj.metadata.name for obj in informer.store] == ["after"]
    assert gone == ["before"]
