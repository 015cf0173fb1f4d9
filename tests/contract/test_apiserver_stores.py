"""The API server keeps its promises on every store, also when many write at once."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, PODS, Answer, Server, configmap, pod

from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.store.interface import Store
from grange.store.memory import MemoryStore
from grange.store.sqlite import SQLiteStore
from grange.store.store_settings import Lanes

CALLERS = 25


@pytest.fixture(params=["memory", "sqlite"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, rng: Stream, log: Logger
) -> AsyncGenerator[Server, None]:
    store: Store = MemoryStore()
    if request.param == "sqlite":
        store = await SQLiteStore.open(tmp_path / "data", log=log, lanes=Lanes.inline())
    made = Server(clock=clock, rng=rng, log=log, store=store)
    await made.application.bootstrap()
    yield made
    await store.close()


class Calls:
    """Answers of calls that ran at once."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    async def patch(self, server: Server, path: str, body: object) -> None:
        self.answers.append(await server.patch(path, body))

    async def create(self, server: Server, path: str, body: object) -> None:
        self.answers.append(await server.create(path, body))

    async def delete(self, server: Server, path: str) -> None:
        self.answers.append(await server.delete(path))

    @property
    def codes(self) -> list[int]:
        return sorted(answer.code for answer in self.answers)


async def test_one_of_many_creators_of_a_name_wins(server: Server) -> None:
    calls = Calls()
    async with Nursery() as nursery:
        for number in range(CALLERS):
            nursery.start(calls.create(server, CONFIGMAPS, configmap(number=str(number))))
    assert calls.codes == [201] + [409] * (CALLERS - 1)
    winner = next(answer for answer in calls.answers if answer.code == 201)
    assert (await server.get(f"{CONFIGMAPS}/settings")).body == winner.body


async def test_no_patch_of_many_is_lost(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap())
    calls = Calls()
    async with Nursery() as nursery:
        for number in range(CALLERS):
            patch = {"data": {f"key-{number}": "x"}}
            nursery.start(calls.patch(server, f"{CONFIGMAPS}/settings", patch))
    assert calls.codes == [200] * CALLERS
    kept = (await server.get(f"{CONFIGMAPS}/settings")).body["data"]
    assert sorted(kept) == sorted(f"key-{number}" for number in range(CALLERS))


async def test_one_of_many_fenced_patches_wins(server: Server) -> None:
    made = await server.made(CONFIGMAPS, configmap())
    fence = {"resourceVersion": made["metadata"]["resourceVersion"]}
    calls = Calls()
    async with Nursery() as nursery:
        for number in range(CALLERS):
            patch = {"metadata": fence, "data": {"winner": str(number)}}
            nursery.start(calls.patch(server, f"{CONFIGMAPS}/settings", patch))
    assert calls.codes == [200] + [409] * (CALLERS - 1)


async def test_one_of_many_bindings_wins(server: Server) -> None:
    await server.made(PODS, pod())
    calls = Calls()
    async with Nursery() as nursery:
        for number in range(CALLERS):
            body = {"target": {"name": f"node-{number}"}}
            nursery.start(calls.create(server, f"{PODS}/web/binding", body))
    assert calls.codes == [201] + [409] * (CALLERS - 1)


async def test_one_of_many_deleters_removes(server: Server) -> None:
    await server.made(CONFIGMAPS, configmap())
    calls = Calls()
    async with Nursery() as nursery:
        for _ in range(CALLERS):
            nursery.start(calls.delete(server, f"{CONFIGMAPS}/settings"))
    assert calls.codes == [200] + [404] * (CALLERS - 1)


async def test_nothing_slips_into_a_namespace_that_is_going(server: Server) -> None:
    """Creates that were answered after the deletion began would never be cleaned up."""
    await server.made("/api/v1/namespaces", {"metadata": {"name": "team"}})
    inside = "/api/v1/namespaces/team/configmaps"
    calls = Calls()
    async with Nursery() as nursery:
        for number in range(CALLERS):
            nursery.start(calls.create(server, inside, configmap(f"c-{number}")))
            if number == CALLERS // 2:
                nursery.start(Calls().delete(server, "/api/v1/namespaces/team"))
    going = (await server.get("/api/v1/namespaces/team")).body
    deleted_at = int(going["metadata"]["resourceVersion"])
    made = [int(answer.version) for answer in calls.answers if answer.code == 201]
    assert max(made) < deleted_at
    assert set(calls.codes) == {201, 403}


async def test_resumed_watch_misses_and_repeats_nothing(server: Server) -> None:
    begin = server.store.revision
    for step in range(12):
        name = f"c-{step % 3}"
        path = f"{CONFIGMAPS}/{name}"
        if (await server.create(CONFIGMAPS, configmap(name))).code == 409:
            await server.patch(path, {"data": {"step": str(step)}})
        if step % 5 == 4:
            await server.delete(path)
    whole = await (
        await server.watch(CONFIGMAPS, resourceVersion=str(begin), timeoutSeconds="1")
    ).rest()
    revisions = [int(event["object"]["metadata"]["resourceVersion"]) for event in whole]
    assert revisions == list(range(begin + 1, server.store.revision + 1))
    for seen, revision in enumerate(revisions, start=1):
        watcher = await server.watch(CONFIGMAPS, resourceVersion=str(revision), timeoutSeconds="1")
        assert await watcher.rest() == whole[seen:]


async def test_answer_is_what_is_stored_and_what_watchers_get(server: Server) -> None:
    watcher = await server.watch(PODS, resourceVersion=str(server.store.revision))
    answer = await server.create(PODS, pod())
    event = await watcher.next()
    entry = server.store.get("/core/pods/default/web")
    assert entry is not None
    assert answer.response.body == entry.value
    assert event["object"] == json.loads(entry.value)
    await watcher.close()
