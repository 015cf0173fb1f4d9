"""What cannot be read in the store is left out of lists, watches and the start, and logged once."""

import json

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, NODES, PODS, Server, configmap, pod

from grange.api.http import JSON
from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.sim.pytest_plugin import Records

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
BAD = {
    "text": b"no json",
    "half": b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bad"},"spec":{"a"',
    "list": b"[]",
    "nameless": b'{"apiVersion":"v1","kind":"Pod","metadata":{}}',
    "bytes": b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"bad"},"spec":"\xff"}',
    "metadata": b'{"apiVersion":"v1","kind":"Pod","metadata":[]}',
}
SHAPES: dict[str, Document] = {
    "spec": {"metadata": {"name": "bad", "namespace": "default"}, "spec": [1]},
    "status": {"metadata": {"name": "bad", "namespace": "default"}, "status": 3},
    "labels": {"metadata": {"name": "bad", "namespace": "default", "labels": [1]}},
}
KEY = "/core/pods/default/bad"


async def value(server: Server, body: bytes, key: str = KEY) -> None:
    await server.store.put(key, lambda _: body)


async def restarted(server: Server, clock: Clock, rng: Stream, log: Logger) -> Server:
    made = Server(clock=clock, rng=rng, log=log, store=server.store)
    await made.application.bootstrap()
    return made


def skipped(records: Records) -> list[str]:
    return [str(facts["key"]) for name, facts in records if name == "object skipped"]


async def count(server: Server) -> str:
    text = (await server.ask("GET", "/metrics")).text
    start = 'grange_skipped_objects_total{loop="api server"} '
    return next(line.removeprefix(start) for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize("case", BAD)
async def test_bytes_that_are_no_object_are_left_out(
    server: Server, case: str, clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    await server.made(PODS, pod("a"))
    labelled = pod("z")
    labelled["metadata"]["labels"] = {"x": "y"}
    await server.made(PODS, labelled)
    await value(server, BAD[case])
    there = await restarted(server, clock, rng, log)
    for _ in range(2):
        for accept in (JSON, PARTIAL):
            listed = await there.get(PODS, accept=accept)
            assert [item["metadata"]["name"] for item in listed.body["items"]] == ["a", "z"]
        assert (await there.get(PODS, labelSelector="x=y")).names == ["z"]
        assert (await there.get(PODS, fieldSelector="status.phase=Pending")).names == ["a", "z"]
        rows = (await there.get(PODS, accept=TABLE)).body["rows"]
        assert [row["cells"][0] for row in rows] == ["a", "z"]
    assert skipped(records) == [KEY]
    assert await count(there) == "1.0"


@pytest.mark.parametrize("case", BAD)
async def test_pages_of_a_list_pass_over_what_cannot_be_read(
    server: Server, case: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    for name in ("a", "z"):
        await server.made(PODS, pod(name))
    await value(server, BAD[case])
    there = await restarted(server, clock, rng, log)
    names, query = [], {"limit": "1"}
    while True:
        page = await there.get(PODS, **query)
        names += page.names
        if not (token := page.body["metadata"].get("continue")):
            break
        query["continue"] = token
    assert names == ["a", "z"]


@pytest.mark.parametrize("accept", [JSON, TABLE, PARTIAL])
@pytest.mark.parametrize("case", BAD)
async def test_watches_pass_over_what_cannot_be_read(
    server: Server, case: str, accept: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    await server.made(PODS, pod("a"))
    await value(server, BAD[case])
    there = await restarted(server, clock, rng, log)
    watch = await there.watch(PODS, accept=accept)
    assert (await watch.next())["type"] == "ADDED"
    path = f"{PODS}/bad"
    ignore = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
    assert (await there.delete(path, ignore)).code == 200
    await there.made(PODS, pod("bad"))
    seen = await watch.next()
    assert seen["type"] == "ADDED"
    assert b"bad" in json.dumps(seen).encode()
    await watch.close()


async def test_object_that_cannot_be_read_is_removed_on_request(
    server: Server, clock: Clock, rng: Stream, log: Logger
) -> None:
    await value(server, BAD["text"])
    there = await restarted(server, clock, rng, log)
    path = f"{PODS}/bad"
    for answer in (
        await there.get(path),
        await there.patch(path, {"metadata": {"labels": {"a": "b"}}}),
        await there.update(path, pod("bad")),
        await there.delete(path),
    ):
        assert (answer.code, answer.reason) == (500, "InternalError")
        assert 'pods "bad" cannot be read from the store' in answer.message
    assert (await there.create(PODS, pod("bad"))).code == 409
    ignore: Document = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
    assert (await there.delete(path, {**ignore, "dryRun": ["All"]})).code == 200
    assert (await there.get(path)).code == 500
    assert (await there.delete(path, ignore)).code == 200
    assert (await there.get(path)).code == 404
    assert (await there.create(PODS, pod("bad"))).code == 201


@pytest.mark.parametrize("case", SHAPES)
async def test_object_of_the_wrong_shape_fails_no_list(
    server: Server, case: str, clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    await server.made(PODS, pod("a"))
    body = json.dumps({"apiVersion": "v1", "kind": "Pod", **SHAPES[case]}).encode()
    await value(server, body)
    there = await restarted(server, clock, rng, log)
    for _ in range(2):
        assert "a" in (await there.get(PODS)).names
        assert "a" in (await there.get(PODS, labelSelector="!x")).names
        assert "a" in (await there.get(PODS, fieldSelector="status.phase=Pending")).names
        rows = (await there.get(PODS, accept=TABLE)).body["rows"]
        assert "a" in [row["cells"][0] for row in rows]
    for accept in (JSON, TABLE):
        for selector in ("", "!x"):
            watch = await there.watch(PODS, accept=accept, labelSelector=selector)
            assert (await watch.next())["type"] == "ADDED"
            await watch.close()
    assert set(skipped(records)) == {KEY}
    assert len(skipped(records)) <= 1
    assert (await there.get(f"{PODS}/bad")).body["kind"] == "Pod"


@pytest.mark.parametrize(
    "key",
    [
        "/core/services/default/bad",
        "/core/nodes/bad",
        "/core/namespaces/bad",
        "/core/configmaps/default/bad",
        "/policy/poddisruptionbudgets/default/bad",
        "/scheduling.k8s.io/priorityclasses/bad",
        "/core/serviceaccounts/default/bad",
        "/core/events/default/bad",
    ],
)
async def test_server_starts_and_serves_beside_any_bad_row(
    server: Server, key: str, clock: Clock, rng: Stream, log: Logger, records: Records
) -> None:
    await value(server, BAD["text"], key)
    there = await restarted(server, clock, rng, log)
    assert key in skipped(records)
    await there.made(PODS, pod("web"))
    await there.made(CONFIGMAPS, configmap("x"))
    assert (await there.create(f"{PODS}/web/eviction", {})).code == 201
    assert (await there.get(NODES)).code == 200
