"""A watcher that follows the events must end up with exactly what a list would show."""

import asyncio
import json

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.apiserver.server import (
    CONFIGMAPS,
    NODES,
    PARTIAL,
    PODS,
    TABLE,
    Server,
    configmap,
    pod,
)

from grange.api.meta import Document
from grange.apiserver.watch import BOOKMARK_EVERY_S, WatchStream
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.pytest_plugin import EPOCH
from grange.store.memory import MemoryStore


def labelled(name: str, tier: str) -> Document:
    asked = configmap(name)
    asked["metadata"]["labels"] = {"tier": tier}
    return asked


# --- where it begins ---------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}, {"resourceVersion": ""}])
async def test_watch_without_a_revision_begins_with_the_state(
    server: Server, query: dict[str, str]
) -> None:
    await server.made(CONFIGMAPS, configmap("a"))
    await server.made(CONFIGMAPS, configmap("b"))
    watcher = await server.watch(CONFIGMAPS, **query)
    assert await watcher.some(2) == [("ADDED", "a"), ("ADDED", "b")]
    await server.made(CONFIGMAPS, configmap("c"))
    assert await watcher.some(1) == [("ADDED", "c")]
    await watcher.close()


async def test_watch_after_a_revision_gives_each_change_once(
    server: Server,
) -> None:
    await server.made(CONFIGMAPS, configmap("a"))
    since = str(server.store.revision)
    await server.patch(f"{CONFIGMAPS}/a", {"data": {"x": "y"}})
    await server.made(CONFIGMAPS, configmap("b"))
    await server.delete(f"{CONFIGMAPS}/a")
    watcher = await server.watch(CONFIGMAPS, resourceVersion=since)
    assert await watcher.some(3) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    await watcher.close()


async def test_watch_sees_only_its_collection(server: Server) -> None:
    watcher = await server.watch(CONFIGMAPS, resourceVersion=str(server.store.revision))
    await server.made(PODS, pod())
    await server.made("/api/v1/namespaces/kube-system/configmaps", configmap("elsewhere"))
    await server.made(CONFIGMAPS, configmap("here"))
    assert await watcher.some(1) == [("ADDED", "here")]
    await watcher.close()


async def test_watch_of_one_object_is_not_confused_by_longer_names(server: Server) -> None:
    watcher = await server.watch(f"{CONFIGMAPS}/a", resourceVersion=str(server.store.revision))
    await server.made(CONFIGMAPS, configmap("ab"))
    await server.made(CONFIGMAPS, configmap("a"))
    assert await watcher.some(1) == [("ADDED", "a")]
    await watcher.close()


async def test_watch_of_one_cluster_scoped_object_by_its_name(server: Server) -> None:
    watcher = await server.watch(
        NODES, resourceVersion=str(server.store.revision), fieldSelector="metadata.name=n"
    )
    await server.made(NODES, {"metadata": {"name": "n1"}})
    await server.made(NODES, {"metadata": {"name": "n"}})
    assert await watcher.some(1) == [("ADDED", "n")]
    await watcher.close()


async def test_requested_initial_events_end_with_annotated_bookmark(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap("a"))
    watcher = await server.watch(
        CONFIGMAPS,
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        resourceVersion="1",
        allowWatchBookmarks="true",
    )
    assert (await watcher.next())["type"] == "ADDED"
    bookmark = await watcher.next()
    assert bookmark["type"] == "BOOKMARK"
    meta = bookmark["object"]["metadata"]
    assert meta["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert meta["resourceVersion"] == str(server.store.revision)
    await watcher.close()


@pytest.mark.parametrize(
    "query",
    [
        {"resourceVersion": "newest"},
        {"timeoutSeconds": "-1"},
        {"timeoutSeconds": "9" * 400},
        {"fieldSelector": "spec.x=y"},
    ],
)
async def test_query_that_makes_no_sense_is_refused(server: Server, query: dict[str, str]) -> None:
    assert (await server.get(CONFIGMAPS, watch="1", **query)).code == 400


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"sendInitialEvents": "true"}, "sendInitialEvents requires setting resourceVersionMatch"),
        ({"sendInitialEvents": "false"}, "requires setting resourceVersionMatch to NotOlderThan"),
        (
            {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"},
            "is forbidden for watch unless sendInitialEvents is provided",
        ),
        (
            {"sendInitialEvents": "true", "resourceVersionMatch": "Exact"},
            'Unsupported value: "Exact": supported values: "NotOlderThan"',
        ),
    ],
)
async def test_parameters_that_do_not_go_together_are_invalid(
    server: Server, query: dict[str, str], message: str
) -> None:
    answer = await server.get(CONFIGMAPS, watch="1", **query)
    assert (answer.code, answer.reason) == (422, "Invalid")
    assert answer.body["details"]["kind"] == "ListOptions"
    assert "resourceVersionMatch" in answer.fields
    assert message in answer.message


async def test_watch_of_one_object_by_its_path(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap("a"))
    watcher = await server.watch(f"{CONFIGMAPS}/b", timeoutSeconds="5")
    await server.made(CONFIGMAPS, configmap("b"))
    assert await watcher.some(1) == [("ADDED", "b")]
    assert await watcher.rest() == []


async def test_watch_is_not_served_as_yaml(server: Server) -> None:
    assert (await server.get(CONFIGMAPS, accept="application/yaml", watch="1")).code == 406


async def test_bookmark_comes_before_the_end(server: Server) -> None:
    """The client goes on from it, however long nothing happened that it was shown."""
    query = {"resourceVersion": str(server.store.revision), "timeoutSeconds": "5"}
    with_bookmarks = await server.watch(CONFIGMAPS, allowWatchBookmarks="true", **query)
    without = await server.watch(CONFIGMAPS, **query)
    await server.made(NODES, {"metadata": {"name": "n"}})
    (bookmark,) = await with_bookmarks.rest()
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "ConfigMap")
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(server.store.revision)
    assert await without.rest() == []


async def test_revision_that_is_no_longer_kept_is_expired(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap("a"))
    await server.made(CONFIGMAPS, configmap("b"))
    await server.store.compact(server.store.revision)
    answer = await server.get(CONFIGMAPS, watch="1", resourceVersion="1")
    assert (answer.code, answer.reason) == (410, "Expired")


async def test_revision_of_the_future_is_expired(server: Server) -> None:
    """A server restored from an older copy must send its clients back to the list."""
    answer = await server.get(CONFIGMAPS, watch="1", resourceVersion="999")
    assert (answer.code, answer.reason) == (410, "Expired")


async def test_initial_events_of_the_future_ask_to_come_back(server: Server) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    answer = await server.get(CONFIGMAPS, watch="1", resourceVersion="999", **query)
    assert (answer.code, answer.reason) == (504, "Timeout")


# --- selection ---------------------------------------------------------------------------------


async def test_selection_changes_are_additions_and_deletions(
    server: Server,
) -> None:
    await server.made(CONFIGMAPS, labelled("a", "x"))
    since = str(server.store.revision)
    watcher = await server.watch(CONFIGMAPS, resourceVersion=since, labelSelector="tier=y")
    path = f"{CONFIGMAPS}/a"
    await server.patch(path, {"metadata": {"labels": {"tier": "y"}}})
    await server.patch(path, {"data": {"k": "v"}})
    await server.patch(path, {"metadata": {"labels": {"tier": "x"}}, "data": {"k": "later"}})
    left = server.store.revision
    await server.delete(path)
    await server.made(CONFIGMAPS, labelled("b", "y"))
    assert await watcher.some(2) == [("ADDED", "a"), ("MODIFIED", "a")]
    event = await watcher.next()
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["resourceVersion"] == str(left)
    assert event["object"]["metadata"]["labels"] == {"tier": "y"}
    assert event["object"]["data"] == {"k": "v"}
    assert await watcher.some(1) == [("ADDED", "b")]
    await watcher.close()


async def test_agent_sees_a_pod_arrive_on_its_node(server: Server) -> None:
    await server.made(PODS, pod())
    watcher = await server.watch(
        "/api/v1/pods",
        resourceVersion=str(server.store.revision),
        fieldSelector="spec.nodeName=node-1",
    )
    await server.bind("web", "node-1")
    assert await watcher.some(1) == [("ADDED", "web")]
    await watcher.close()


async def test_initial_state_is_selected_too(server: Server) -> None:
    await server.made(CONFIGMAPS, labelled("a", "x"))
    await server.made(CONFIGMAPS, labelled("b", "y"))
    watcher = await server.watch(CONFIGMAPS, labelSelector="tier=y")
    assert await watcher.some(1) == [("ADDED", "b")]
    await watcher.close()


def follow(known: dict[str, Document], event: Document) -> None:
    name = event["object"]["metadata"]["name"]
    match event["type"]:
        case "ADDED":
            assert name not in known
            known[name] = event["object"]
        case "MODIFIED":
            assert name in known
            known[name] = event["object"]
        case "DELETED":
            assert known.pop(name, None) is not None


steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "label", "delete", "look"]),
        st.sampled_from("ab"),
        st.sampled_from("xy"),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps, st.sampled_from(["", "tier=x", "tier!=x", "!tier"]))
async def test_following_a_watch_gives_what_a_list_shows(
    actions: list[tuple[str, str, str]], selector: str
) -> None:
    """For every history and selector; each event is consistent with the one before it."""
    server = Server(clock=LoopClock(EPOCH), rng=Stream(1), log=Logger("test"))
    await server.application.bootstrap()
    watcher = await server.watch(CONFIGMAPS, labelSelector=selector, timeoutSeconds="5")
    for action, name, tier in actions:
        path = f"{CONFIGMAPS}/{name}"
        if action == "create":
            await server.create(CONFIGMAPS, labelled(name, tier))
        elif action == "label":
            await server.patch(path, {"metadata": {"labels": {"tier": tier}}, "data": {"n": tier}})
        elif action == "delete":
            await server.delete(path)
    listed = await server.get(CONFIGMAPS, labelSelector=selector)
    known: dict[str, Document] = {}
    for event in await watcher.rest():
        follow(known, event)
    assert sorted(known) == listed.names
    assert [known[name] for name in sorted(known)] == listed.body["items"]
    await watcher.close()


# --- forms -------------------------------------------------------------------------------------


async def test_table_watch_sends_tables(server: Server) -> None:
    await server.made(PODS, pod("a"))
    watcher = await server.watch(PODS, accept=TABLE, allowWatchBookmarks="1")
    await server.made(PODS, pod("b"))
    for name in "ab":
        event = await watcher.next()
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
        assert event["object"]["rows"][0]["cells"][0] == name
    bookmark = await watcher.next()
    assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Table")
    await watcher.close()


async def test_metadata_watch_sends_metadata(server: Server) -> None:
    await server.made(PODS, pod("a"))
    watcher = await server.watch(PODS, accept=PARTIAL, allowWatchBookmarks="1")
    event = await watcher.next()
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}
    assert (await watcher.next())["object"]["kind"] == "PartialObjectMetadata"
    await watcher.close()


# --- sharing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("watchers", [1, 2, 20])
async def test_event_is_encoded_once_however_many_watch(server: Server, watchers: int) -> None:
    since = str(server.store.revision)
    streams = [await server.watch(PODS, resourceVersion=since) for _ in range(watchers)]
    await server.made(PODS, pod())
    before = server.work.event_encodes
    chunks = [await anext(watcher.stream) for watcher in streams]
    assert server.work.event_encodes - before == 1
    assert len(set(chunks)) == 1
    for watcher in streams:
        await watcher.close()


async def test_selectors_of_many_watchers_read_an_event_once(server: Server) -> None:
    since = str(server.store.revision)
    streams = [
        await server.watch(PODS, resourceVersion=since, fieldSelector=f"spec.nodeName=n-{index}")
        for index in range(10)
    ]
    await server.made(PODS, pod())
    await server.bind("web", "n-9")
    before = server.work.evaluations
    assert await streams[9].some(1) == [("ADDED", "web")]
    async with Nursery() as nursery:
        for watcher in streams[:9]:
            nursery.start(watcher.next())
        await asyncio.sleep(1)
        nursery.cancel()
    assert server.work.evaluations - before == 3  # the pod made; the pod before and after binding
    for watcher in streams:
        await watcher.close()


# --- how it goes on and ends -------------------------------------------------------------------


async def test_bookmarks_show_an_idle_watcher_how_far_it_is(server: Server, clock: Clock) -> None:
    watcher = await server.watch(
        CONFIGMAPS, resourceVersion=str(server.store.revision), allowWatchBookmarks="true"
    )
    await server.made(PODS, pod())
    started = clock.monotonic()
    event = await watcher.next()
    assert clock.monotonic() - started == pytest.approx(BOOKMARK_EVERY_S)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "ConfigMap"
    assert event["object"]["metadata"]["resourceVersion"] == str(server.store.revision)
    await server.made(CONFIGMAPS, configmap("a"))
    assert await watcher.some(1) == [("ADDED", "a")]
    await watcher.close()


async def test_bookmarks_come_only_when_asked_for(server: Server) -> None:
    watcher = await server.watch(
        CONFIGMAPS, resourceVersion=str(server.store.revision), timeoutSeconds="300"
    )
    assert await watcher.rest() == []


async def test_watch_ends_when_its_time_is_up(server: Server, clock: Clock) -> None:
    watcher = await server.watch(CONFIGMAPS, timeoutSeconds="7")
    started = clock.monotonic()
    assert await watcher.rest() == []
    assert clock.monotonic() - started == pytest.approx(7)
    assert len(server.application.watches) == 0


async def test_watch_without_a_time_ends_within_an_hour(server: Server, clock: Clock) -> None:
    watcher = await server.watch(CONFIGMAPS)
    started = clock.monotonic()
    await watcher.rest()
    assert 1800 <= clock.monotonic() - started <= 3600


async def test_watcher_that_falls_behind_is_asked_to_list_again(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    store = MemoryStore(buffer_events=3)
    server = Server(clock=clock, rng=rng, log=log, store=store)
    await server.application.bootstrap()
    watcher = await server.watch(CONFIGMAPS, resourceVersion=str(store.revision))
    for index in range(5):
        await server.made(CONFIGMAPS, configmap(f"c-{index}"))
    events = await watcher.rest()
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


async def test_ending_all_streams_ends_them_in_good_order(server: Server) -> None:
    watcher = await server.watch(CONFIGMAPS)
    await server.made(CONFIGMAPS, configmap("a"))
    assert await watcher.some(1) == [("ADDED", "a")]
    server.application.end_streams()
    assert await watcher.rest() == []
    later = await server.watch(CONFIGMAPS)
    assert [event["type"] for event in await later.rest()] == ["ADDED"]


@pytest.mark.parametrize("unread", [0, 1])
async def test_slow_reader_gets_no_bookmark_beyond_its_end(
    server: Server, clock: Clock, unread: int
) -> None:
    """A bookmark that was due since before the end would let it resume past what it never saw."""
    watcher = await server.watch(CONFIGMAPS, allowWatchBookmarks="true")
    await server.made(CONFIGMAPS, configmap("a"))
    assert await watcher.some(1) == [("ADDED", "a")]
    received = server.store.revision
    for index in range(unread):
        await server.made(CONFIGMAPS, configmap(f"b-{index}"))
    server.application.end_streams()
    await server.made(CONFIGMAPS, configmap("c"))
    await clock.sleep(BOOKMARK_EVERY_S)
    reported = [event["object"]["metadata"]["resourceVersion"] for event in await watcher.rest()]
    assert all(int(version) <= received for version in reported)


async def test_closed_store_ends_watches(server: Server) -> None:
    watcher = await server.watch(CONFIGMAPS)
    await server.store.close()
    assert await watcher.rest() == []
    answer = await server.get(CONFIGMAPS, watch="1")
    assert (answer.code, answer.reason) == (503, "ServiceUnavailable")


async def test_stream_that_is_closed_unread_leaves_nothing_behind(server: Server) -> None:
    watcher = await server.watch(CONFIGMAPS)
    assert len(server.application.watches) == 1
    await watcher.close()
    await watcher.close()
    assert len(server.application.watches) == 0


async def test_cancelled_reader_loses_nothing_if_it_reads_on(server: Server) -> None:
    watcher = await server.watch(CONFIGMAPS, resourceVersion=str(server.store.revision))
    stream: WatchStream = watcher.stream
    async with Nursery() as nursery:
        nursery.start(anext_of(stream))
        await asyncio.sleep(1)
        nursery.cancel()
    # A generator that was cancelled has ended: the reader sees the end, never a gap.
    await server.made(CONFIGMAPS, configmap("a"))
    assert [json.loads(chunk) async for chunk in stream] == []
    assert len(server.application.watches) == 0


async def anext_of(stream: WatchStream) -> None:
    await anext(stream)
