"""An API server on the memory store, and the words that tests use to talk to it."""

import json
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network
from typing import Any

from grange.api.http import ADMIN, JSON, MERGE_PATCH, Request, Response, User
from grange.api.kinds import BUILT_IN
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.apiserver.application import Application
from grange.apiserver.explain import Explainer
from grange.apiserver.metrics_api import MetricsSource
from grange.apiserver.pod_logs import LogSource
from grange.apiserver.pod_streams import PodStreams
from grange.apiserver.service_allocation import DEFAULT_NETWORK
from grange.apiserver.storage import Work
from grange.apiserver.unreadable import UnreadableObjects
from grange.apiserver.watch import WatchStream
from grange.base import metrics
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.supervision import SkippedObjects
from grange.store.interface import Store
from grange.store.memory import MemoryStore

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"
NAMESPACES = "/api/v1/namespaces"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"


def pod(name: str = "web", **spec: Any) -> Document:
    """The smallest pod, with more of the spec."""
    container = {"name": "main", "command": ["/bin/app"]}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def configmap(name: str = "settings", **data: str) -> Document:
    """A ConfigMap."""
    return {"metadata": {"name": name}, "data": data}


def nothing_unreadable(log: Logger) -> UnreadableObjects:
    """For parts that are tested without a server, on a store that can be read."""
    return UnreadableObjects(SkippedObjects("api server", log=log, registry=metrics.registry()))


class Answer:
    """A response with its body read."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.code = response.status
        self.headers = response.headers

    @property
    def body(self) -> Document:
        decoded: Document = json.loads(self.response.body)
        return decoded

    @property
    def text(self) -> str:
        return self.response.body.decode()

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    @property
    def fields(self) -> list[str]:
        return [cause["field"] for cause in self.body.get("details", {}).get("causes", [])]

    @property
    def version(self) -> str:
        return str(self.body["metadata"]["resourceVersion"])

    @property
    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.body["items"]]


class Watcher:
    """A watch that is read event by event."""

    def __init__(self, stream: WatchStream) -> None:
        self.stream = stream
        self._pending: list[Document] = []

    async def next(self) -> Document:
        while not self._pending:
            chunk = await anext(self.stream)
            self._pending = [json.loads(line) for line in chunk.splitlines()]
        return self._pending.pop(0)

    async def some(self, count: int) -> list[tuple[str, str]]:
        events = [await self.next() for _ in range(count)]
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]

    async def rest(self) -> list[Document]:
        events = list(self._pending)
        async for chunk in self.stream:
            events += [json.loads(line) for line in chunk.splitlines()]
        return events

    async def close(self) -> None:
        await self.stream.aclose()


class Server:
    """The application and its store."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        store: Store | None = None,
        logs: LogSource | None = None,
        streams: PodStreams | None = None,
        usage: MetricsSource | None = None,
        explainer: Explainer | None = None,
        service_network: IPv4Network = DEFAULT_NETWORK,
        ca_pem: str = "",
    ) -> None:
        self.store = store or MemoryStore()
        self._restart: Callable[[], Server] = lambda: Server(
            clock=clock, rng=rng, log=log, store=self.store
        )
        self.application = Application(
            self.store,
            Scheme(BUILT_IN),
            clock=clock,
            rng=rng,
            log=log,
            logs=logs,
            streams=streams,
            usage=usage,
            explainer=explainer,
            service_network=service_network,
            ca_pem=ca_pem,
        )

    def restarted(self) -> "Server":
        """A new server on the same store, which it has not read yet."""
        return self._restart()

    @property
    def work(self) -> Work:
        return self.application.registry.work

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = JSON,
        media: str = JSON,
        user: User = ADMIN,
    ) -> Answer:
        raw = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        headers = {"accept": accept, "content-type": media}
        request = Request(method, path, query or {}, headers, raw, user)
        return Answer(await self.application.handle(request))

    async def get(self, path: str, accept: str = JSON, **query: str) -> Answer:
        return await self.ask("GET", path, query=query, accept=accept)

    async def create(self, path: str, body: object, **query: str) -> Answer:
        return await self.ask("POST", path, body, query=query)

    async def made(self, path: str, body: object) -> Document:
        """Create what must be accepted."""
        answer = await self.create(path, body)
        assert answer.code == 201, answer.text
        return answer.body

    async def update(self, path: str, body: object, **query: str) -> Answer:
        return await self.ask("PUT", path, body, query=query)

    async def patch(
        self, path: str, body: object, media: str = MERGE_PATCH, **query: str
    ) -> Answer:
        return await self.ask("PATCH", path, body, query=query, media=media)

    async def delete(self, path: str, body: object = None, **query: str) -> Answer:
        return await self.ask("DELETE", path, body, query=query)

    async def bind(self, name: str, node: str = "node-1") -> Answer:
        return await self.create(f"{PODS}/{name}/binding", {"target": {"name": node}})

    async def watch(self, path: str, accept: str = JSON, **query: str) -> Watcher:
        answer = await self.ask("GET", path, query={"watch": "1", **query}, accept=accept)
        stream = answer.response.chunks
        assert isinstance(stream, WatchStream), answer.text
        return Watcher(stream)
