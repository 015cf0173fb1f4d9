"""Large documents are computed off the event loop, and written as if nothing else had happened."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from tests.unit.apiserver.server import CONFIGMAPS, PODS, Server, configmap, pod

from grange.api.http import JSON_PATCH, YAML
from grange.api.meta import Document
from grange.apiserver.registry import LARGE_BYTES
from grange.base.offload import Inline

T = TypeVar("T")
LARGE = {f"k{number}": "v" * 100 for number in range(400)}


class Meddling(Inline):
    """Does something else before work is done."""

    def __init__(self, meddle: Callable[[], Awaitable[object]], times: int = 1) -> None:
        super().__init__()
        self.runs = 0
        self._meddle = meddle
        self._times = times

    async def run(self, work: Callable[[], T]) -> T:
        self.runs += 1
        result = await super().run(work)
        if self._times:
            self._times -= 1
            await self._meddle()
        return result


@pytest.fixture
async def large(server: Server) -> Document:
    return await server.made(CONFIGMAPS, configmap("large", **LARGE))


def meddle(server: Server, times: int = 1) -> Meddling:
    count = 0

    async def label() -> None:
        nonlocal count
        count += 1
        registry = server.application.registry
        offload, registry.offload = registry.offload, Inline()
        labels = {"metadata": {"labels": {"count": str(count)}}}
        assert (await server.patch(f"{CONFIGMAPS}/large", labels)).code == 200
        registry.offload = offload

    server.application.registry.offload = made = Meddling(label, times)
    return made


async def test_small_writes_stay_on_the_loop(server: Server) -> None:
    offload = server.application.registry.offload = Meddling(lambda: server.get(PODS), 99)
    await server.made(PODS, pod("p"))
    assert (await server.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})).code == 200
    assert offload.runs == 0
    await server.made(CONFIGMAPS, configmap("large", **LARGE))
    assert offload.runs == 2  # to read it, and to check it


async def test_change_is_computed_again_where_the_object_changed(
    server: Server, large: Document
) -> None:
    offload = meddle(server)
    patch = {"data": {"k0": "changed"}, "metadata": {"labels": {"mine": "yes"}}}
    written = await server.patch(f"{CONFIGMAPS}/large", patch)
    assert written.code == 200
    assert written.body["metadata"]["labels"] == {"count": "1", "mine": "yes"}
    assert written.body["data"] == {**LARGE, "k0": "changed"}
    assert offload.runs == 2


async def test_replacement_is_the_same_each_time(server: Server, large: Document) -> None:
    meddle(server, 3)
    document = configmap("large", **{**LARGE, "k1": "new"})
    document["data"]["gone"] = None
    written = await server.update(f"{CONFIGMAPS}/large", document)
    assert written.code == 200, written.text
    assert written.body["data"] == {**LARGE, "k1": "new"}
    assert "labels" not in written.body["metadata"]


async def test_stale_version_is_a_conflict(server: Server, large: Document) -> None:
    meddle(server)
    large["data"]["k1"] = "new"
    assert (await server.update(f"{CONFIGMAPS}/large", large)).code == 409


async def test_object_that_changes_each_time_is_a_conflict(server: Server, large: Document) -> None:
    offload = meddle(server, 99)
    answer = await server.patch(f"{CONFIGMAPS}/large", {"data": {"k0": "changed"}})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert offload.runs == 5


async def test_object_that_is_deleted_meanwhile_is_not_found(
    server: Server, large: Document
) -> None:
    async def delete() -> Any:
        return await server.delete(f"{CONFIGMAPS}/large")

    server.application.registry.offload = Meddling(delete)
    assert (await server.patch(f"{CONFIGMAPS}/large", {"data": {"k0": "x"}})).code == 404


async def test_name_that_is_taken_meanwhile_already_exists(server: Server) -> None:
    async def create() -> Any:
        return await server.create(CONFIGMAPS, configmap("large"))

    server.application.registry.offload = Meddling(create)
    answer = await server.create(CONFIGMAPS, configmap("large", **LARGE))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")


@pytest.mark.parametrize("media", [YAML, JSON_PATCH])
async def test_small_bodies_of_large_effect_are_large(server: Server, media: str) -> None:
    await server.made(CONFIGMAPS, configmap("small", a="b"))
    offload = server.application.registry.offload = Meddling(lambda: server.get(PODS), 0)
    if media == YAML:
        answer = await server.ask("POST", CONFIGMAPS, b"metadata: {name: y}", media=YAML)
        assert answer.code == 201
    else:
        copy = [{"op": "copy", "from": "/data/a", "path": "/data/b"}]
        answer = await server.patch(f"{CONFIGMAPS}/small", copy, JSON_PATCH)
        assert answer.body["data"] == {"a": "b", "b": "b"}
    assert offload.runs >= 1


@pytest.mark.parametrize(
    "path",
    [
        f"{PODS}/p/eviction",
        f"{PODS}/p/binding",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    ],
)
async def test_requests_about_objects_are_small(server: Server, path: str) -> None:
    await server.made(PODS, pod("p"))
    body = {"metadata": {"annotations": {"a": "x" * LARGE_BYTES}}}
    assert (await server.create(path, body)).code == 413
    assert (await server.delete(f"{PODS}/p", body)).code == 413
    many = {"items": [{"metadata": {"name": "x" * 2_000}}] * 600}
    assert (await server.create("/api/v1/bindings", many)).code == 413
