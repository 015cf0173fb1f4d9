"""No request holds the event loop for long, whatever it sends: the worst document of each endpoint.

What is counted is the lines of Python that run on the loop between two points at which others are
served; two hundred thousand are about 40 ms. Documents are as large as they may be: those that are
prepared on the loop have nearly 512 values, or just less than ``LARGE_BYTES``, the others
``VALUES_MAX`` values or 3 MiB.
"""

import json
import sys
from collections.abc import Awaitable, Callable, Generator, Iterator
from types import FrameType
from typing import Any, TypeVar

import pytest
from tests.unit.apiserver.server import (
    CONFIGMAPS,
    PARTIAL,
    PODS,
    TABLE,
    Server,
    configmap,
    pod,
)

from grange.api.codec import VALUES_MAX
from grange.api.http import (
    ADMIN,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_MERGE_PATCH,
    YAML,
    Request,
    Response,
)
from grange.apiserver.registry import LARGE_BYTES
from grange.base.offload import Inline
from grange.base.rng import Stream

T = TypeVar("T")
LINES_MAX = 200_000
MOST = VALUES_MAX - 100
BODY = 3 << 20


class Aside(Inline):
    """Runs work whose lines are not counted, as a thread would."""

    async def run(self, work: Callable[[], T]) -> T:
        tracer = sys.gettrace()

        def unseen() -> T:
            sys.settrace(None)
            try:
                return work()
            finally:
                sys.settrace(tracer)

        return await super().run(unseen)


class Watchdog:
    """Awaits something and counts the lines of its longest stretch on the loop."""

    def __init__(self, awaited: Awaitable[Any]) -> None:
        self._awaited = awaited
        self.worst = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        lines = 0

        def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
            # Called for each of millions of lines: a closure is quicker than a method.
            nonlocal lines
            if event == "line":
                lines += 1
            return trace

        inner = self._awaited.__await__()
        before = sys.gettrace()
        step: Callable[[], Any] = lambda: inner.send(None)  # noqa: E731  replaced at each step
        while True:
            lines = 0
            sys.settrace(trace)
            try:
                wanted = step()
            except StopIteration as end:
                return end.value
            finally:
                sys.settrace(before)
                self.worst = max(self.worst, lines)
            step = yield from self._resumed(inner, wanted)

    def _resumed(
        self, inner: Generator[Any, Any, Any], wanted: Any
    ) -> Generator[Any, Any, Callable[[], Any]]:
        try:
            sent = yield wanted
        except BaseException as error:  # noqa: BLE001  it is for what is awaited
            thrown = error
            return lambda: inner.throw(thrown)
        return lambda: inner.send(sent)


@pytest.fixture
def server(server: Server) -> Server:
    server.application.registry.offload = Aside()
    return server


async def longest(server: Server, request: Request) -> tuple[int, Response]:
    """The lines of the longest stretch of a request and its stream, and the response."""
    watchdog = Watchdog(server.application.handle(request))
    response: Response = await watchdog
    worst = watchdog.worst
    if response.chunks is not None:
        while True:
            watchdog = Watchdog(anext(response.chunks, None))
            if await watchdog is None:
                break
            worst = max(worst, watchdog.worst)
    return worst, response


def items(count: int, form: str) -> str:
    """So many items of a form, which may number them."""
    return ",".join(form.replace("#", str(number)) for number in range(count))


def fitting(form: str) -> str:
    """As many items as fit into a body that is prepared on the loop."""
    values = 1 + sum(form.count(sign) for sign in ",[{")
    return items(min((LARGE_BYTES - 500) // (len(form) + 5), 500 // values), form)


def many(form: str) -> str:
    """Nearly as many items as a document may have."""
    return items(MOST // (1 + sum(form.count(sign) for sign in ",[{")), form)


def bodies() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, media type and body."""
    meta = '"metadata":{"name":"x"}'
    for amount in (fitting, many):
        for field, form in (
            ("data", '"k#":""'),
            ("data", '"k#":1'),
            ("binaryData", '"k#":"!"'),
            ("dat", "[]"),
        ):
            opening, closing = "[]" if form == "[]" else "{}"
            data = f'"{field}":{opening}{amount(form)}{closing}'
            yield "POST", CONFIGMAPS, JSON, f"{{{meta},{data}}}"
            yield "PUT", f"{CONFIGMAPS}/large", JSON, f"{{{data}}}"
            yield "PATCH", f"{CONFIGMAPS}/large", MERGE_PATCH, f"{{{data}}}"
        yield "POST", CONFIGMAPS, JSON, f"{{{meta},{amount(chr(34) + 'dat#' + chr(34) + ':1')}}}"
        for form in (
            '{"name":"c#","command":["a"],"env":[{"name":"A"}]}',
            '{"name":"c","ports":[{"containerPort":0}]}',
            "{}",
        ):
            yield "POST", PODS, JSON, f'{{{meta},"spec":{{"containers":[{amount(form)}]}}}}'
        labels = f'"metadata":{{"name":"x","labels":{{{amount(chr(34) + "k#" + chr(34) + ":" + chr(34) * 2)}}}}}'
        yield "POST", CONFIGMAPS, JSON, f"{{{labels}}}"
        for form in ('{"uid":"#","$patch":"delete"}', '{"uid":"#","name":"b"}'):
            owners = f'{{"metadata":{{"ownerReferences":[{amount(form)}]}}}}'
            yield "PATCH", f"{CONFIGMAPS}/owned", STRATEGIC_MERGE_PATCH, owners
        yield "POST", CONFIGMAPS, YAML, f"{{{meta},data: {{{amount('k#: v')}}}}}"
        yield "DELETE", f"{CONFIGMAPS}/large", JSON, f'{{"dryRun":["All"],"x":[{amount("[]")}]}}'
        yield "POST", f"{PODS}/p/eviction", JSON, f'{{"x":[{amount("[]")}]}}'
        yield "POST", f"{PODS}/p/binding", JSON, f'{{"x":[{amount("[]")}]}}'
        yield "POST", "/api/v1/bindings", JSON, f'{{"items":[{amount("{}")}]}}'
        yield (
            "POST",
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            JSON,
            f'{{"x":[{amount("[]")}]}}',
        )
    yield "POST", CONFIGMAPS, JSON, "[" * BODY
    yield "POST", CONFIGMAPS, JSON, f'{{{meta},"data":{{"k":"{"," * (BODY - 100)}"}}}}'
    yield "POST", CONFIGMAPS, JSON, f'{{"{"k" * (BODY - 100)}":1}}'
    yield "POST", CONFIGMAPS, YAML, "- a\n" * (BODY // 4)
    aliases = "a: &a [" + "x," * 90 + "x]\nb: &b [" + "*a," * 90 + "x]\nc: [" + "*b," * 9 + "x]"
    yield "POST", CONFIGMAPS, YAML, aliases
    front = {"op": "add", "path": "/l/0", "value": 1}
    lists = [{"op": "add", "path": "/l", "value": [0] * 50_000}]
    yield "PATCH", f"{CONFIGMAPS}/large", JSON_PATCH, json.dumps([*lists, *[front] * 9_000])
    copies = [{"op": "copy", "from": "/data", "path": f"/d{number}"} for number in range(400)]
    yield "PATCH", f"{CONFIGMAPS}/large", JSON_PATCH, json.dumps(copies)
    nested = [{"op": "add", "path": "/a", "value": [0]}]
    nested += [{"op": "copy", "from": "/a", "path": "/a/-"}] * 60
    yield "PATCH", f"{CONFIGMAPS}/p", JSON_PATCH, json.dumps(nested)
    yield "PATCH", f"{CONFIGMAPS}/large", MERGE_PATCH, '{"data":{"a":"b"}}'
    yield "DELETE", f"{CONFIGMAPS}/large", JSON, ""


async def test_no_body_holds_the_loop(server: Server) -> None:
    large = configmap("large") | {"data": {f"k{number}": "" for number in range(60_000)}}
    owner = {"apiVersion": "v1", "kind": "A", "name": "a"}
    owned = configmap("owned")
    owned["metadata"]["ownerReferences"] = [{**owner, "uid": str(n)} for n in range(8_000)]
    await server.made(CONFIGMAPS, large)
    await server.made(CONFIGMAPS, owned)
    await server.made(CONFIGMAPS, configmap("p"))
    await server.made(PODS, pod("p"))
    codes = set()
    for method, path, media, body in bodies():
        text = body.encode()
        assert len(text) <= BODY
        headers = {"accept": JSON, "content-type": media}
        worst, response = await longest(server, Request(method, path, {}, headers, text, ADMIN))
        assert worst <= LINES_MAX, (method, path, media, body[:60], len(body))
        assert response.status < 500, response.body[:500]
        assert len(response.body) < 65_536 or response.status < 300
        codes.add(response.status)
        if response.status == 201 and method == "POST" and path in {CONFIGMAPS, PODS}:
            await server.delete(f"{path}/x", gracePeriodSeconds="0")
    assert {200, 201, 400, 413, 422} <= codes


@pytest.mark.parametrize("accept", [JSON, TABLE, PARTIAL])
async def test_no_list_or_watch_holds_the_loop(server: Server, accept: str) -> None:
    for number in range(600):
        await server.made(CONFIGMAPS, configmap(f"c{number}"))
    selector = ",".join(f"!k{number}" for number in range(250))
    values = f"a notin ({','.join(f'b{number}' for number in range(2_500))})"
    fields = ",".join(["metadata.name!=x"] * 250)
    headers = {"accept": accept}
    for query in (
        {},
        {"labelSelector": selector},
        {"labelSelector": values},
        {"fieldSelector": fields},
        {"labelSelector": "a=b"},
    ):
        for watch in ({}, {"watch": "1", "timeoutSeconds": "1"}):
            asked = Request("GET", "/api/v1/configmaps", {**query, **watch}, headers, b"", ADMIN)
            worst, response = await longest(server, asked)
            assert worst <= LINES_MAX, (query, watch)
            assert response.status == 200


@pytest.mark.parametrize(
    "text", ["a" * 16_000, " " * 16_000, "a," * 8_000, "a=b," * 4_000, "=" * 99]
)
async def test_no_selector_holds_the_loop(server: Server, text: str) -> None:
    for name in ("labelSelector", "fieldSelector", "continue", "resourceVersion", "limit"):
        worst, response = await longest(
            server, Request("GET", CONFIGMAPS, {name: text}, {}, b"", ADMIN)
        )
        assert worst <= LINES_MAX
        assert response.status in {200, 400}


async def test_unread_changes_are_reported_in_pieces(server: Server, rng: Stream) -> None:
    watcher = await server.watch(CONFIGMAPS, accept=TABLE)
    for number in range(2_000):
        await server.made(CONFIGMAPS, configmap(f"c{number}"))
    watchdog = Watchdog(anext(watcher.stream))
    assert await watchdog
    assert watchdog.worst <= LINES_MAX
    assert len(await watcher.some(1_500)) == 1_500
    await watcher.close()
