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


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


def between(server: Server, *steps: Callable[[], Awaitable[Any]], after: int = 1) -> Meddling:
    """Take steps, one each time, after work off the loop; the first ``after`` are not followed."""
    registry, left = server.application.registry, [*steps]

    async def step() -> None:
        nonlocal after
        if after:
            after -= 1
        elif left:
            offload, registry.offload = registry.offload, Inline()
            answer = await left.pop(0)()
            assert answer.code // 100 == 2, answer.text
            registry.offload = offload

    registry.offload = made = Meddling(step, 99)
    return made


def large_pod() -> Document:
    document = pod("large")
    document["metadata"] = {**document["metadata"], "annotations": {"large": "x" * 40_000}}
    return document


def priority_class(name: str, value: int, **more: Any) -> Document:
    return {"metadata": {"name": name}, "value": value, **more}


async def test_create_is_refused_where_its_namespace_goes_meanwhile(server: Server) -> None:
    await server.made("/api/v1/namespaces", {"metadata": {"name": "team"}})
    path = CONFIGMAPS.replace("/default/", "/team/")
    between(server, lambda: server.delete("/api/v1/namespaces/team"))
    answer = await server.create(path, configmap("large", **LARGE))
    assert answer.code in {403, 404}, answer.text
    assert (await server.get(f"{path}/large")).code == 404


async def test_create_takes_the_default_class_of_the_write(server: Server) -> None:
    first = priority_class("first", 5, globalDefault=True)
    offload = between(server, lambda: server.create(CLASSES, first))
    made = await server.made(PODS, large_pod())
    assert (made["spec"]["priorityClassName"], made["spec"]["priority"]) == ("first", 5)
    assert offload.runs == 3  # to read it, and to check it twice


async def test_create_is_refused_where_its_class_goes_meanwhile(server: Server) -> None:
    await server.made(CLASSES, priority_class("own", 5))
    document = large_pod()
    document["spec"]["priorityClassName"] = "own"
    between(server, lambda: server.delete(f"{CLASSES}/own"))
    answer = await server.create(PODS, document)
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "no PriorityClass with name own" in answer.message


async def test_create_that_is_never_admitted_alike_is_a_conflict(server: Server) -> None:
    def replaced(number: int) -> Callable[[], Awaitable[Any]]:
        async def replace() -> Any:
            if number:
                await server.delete(f"{CLASSES}/c{number - 1}")
            return await server.create(
                CLASSES, priority_class(f"c{number}", number, globalDefault=True)
            )

        return replace

    between(server, *(replaced(number) for number in range(9)))
    answer = await server.create(PODS, large_pod())
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert "changed while it was checked; please try again" in answer.message


async def test_update_is_admitted_again_before_the_write(server: Server) -> None:
    await server.made(CLASSES, priority_class("one", 1, description="x" * 40_000))
    other = priority_class("other", 2, globalDefault=True)
    between(server, lambda: server.create(CLASSES, other), after=0)
    answer = await server.patch(f"{CLASSES}/one", {"globalDefault": True})
    assert (answer.code, answer.reason) == (403, "Forbidden")
    assert "other is the default already" in answer.message


async def test_large_create_with_a_generated_name_is_written_once(server: Server) -> None:
    document = configmap("x", **LARGE)
    document["metadata"] = {"generateName": "large-"}
    made = await server.made(CONFIGMAPS, document)
    assert made["metadata"]["name"].startswith("large-")
    assert (await server.get(f"{CONFIGMAPS}/{made['metadata']['name']}")).body == made
