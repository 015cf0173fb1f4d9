"""An API server that has sessions, pods, nodes and logs, and streams that break when they should."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from grange.api.http import Request, Response
from grange.api.status import ApiError, BadRequest, NotFound, ServiceUnavailable
from grange.client.errors import StreamBroken

Document = dict[str, Any]


@dataclass
class LogApi:
    """What the requests of a collector are answered from.

    Attributes:
        sessions, pods, nodes: documents by name.
        logs: stored lines by ``pod/container``; those after a ``None`` come when that is replaced.
        breaks: how many of the next streams break after their first line.
        fail: every request is refused.
    """

    sessions: dict[str, Document] = field(default_factory=dict)
    pods: dict[str, Document] = field(default_factory=dict)
    nodes: dict[str, Document] = field(default_factory=dict)
    logs: dict[str, list[bytes]] = field(default_factory=dict)
    breaks: int = 0
    fail: bool = False
    streams: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def write(self, name: str, *lines: str) -> None:
        """A container writes lines; each has a later time."""
        stored = self.logs.setdefault(name, [])
        for line in lines:
            stamp = f"2026-01-01T00:00:{len(stored) // 10:02}.{len(stored) % 10}Z"
            stored.append(f"{stamp} {line}\n".encode())
        self.change()

    def change(self) -> None:
        """Wake what follows."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self, pod: str, code: int = 0) -> None:
        """All containers of a pod end."""
        for item in self.pods[pod]["status"]["containerStatuses"]:
            item["state"] = {"terminated": {"exitCode": code}}
        self.pods[pod]["status"]["phase"] = "Failed" if code else "Succeeded"
        self.change()

    async def handle(self, request: Request) -> Response:
        """Answer."""
        try:
            return self._answer(request)
        except ApiError as error:
            return Response(error.code, msgspec.json.encode(error.status().document()))

    def _answer(self, request: Request) -> Response:
        if self.fail:
            raise ServiceUnavailable("the server is away")
        parts = request.path.strip("/").split("/")
        if parts[-1] == "log":
            return self._log(parts[-2], request)
        if parts[-1] == "testsessions":
            return self._items(self.sessions)
        if parts[-1] == "pods":
            return self._items(self.pods)
        kinds = {"nodes": self.nodes, "testsessions": self.sessions}
        known = kinds.get(parts[-2], self.pods)
        if parts[-1] not in known:
            raise NotFound(f"no {parts[-1]}")
        return Response(200, msgspec.json.encode(known[parts[-1]]))

    def _items(self, known: dict[str, Document]) -> Response:
        body = {"metadata": {"resourceVersion": "1"}, "items": [*known.values()]}
        return Response(200, msgspec.json.encode(body))

    def _log(self, pod: str, request: Request) -> Response:
        container = request.query["container"]
        if pod not in self.pods:
            raise NotFound(f"no pod {pod}")
        if f"{pod}/{container}" not in self.logs:
            raise BadRequest("the container has not started")
        assert request.query["timestamps"] == "true"
        if request.query.get("follow") != "true":
            last = int(request.query["tailLines"])
            return Response(200, b"".join(self.logs[f"{pod}/{container}"][-last:]))
        return Response(200, chunks=self._lines(pod, container, request.query.get("sinceTime", "")))

    async def _lines(self, pod: str, container: str, since: str) -> AsyncGenerator[bytes, None]:
        self.streams += 1
        at = 0
        while True:
            lines = self.logs[f"{pod}/{container}"]
            while at < len(lines):
                line = lines[at]
                at += 1
                if line.decode()[:19] < since[:19]:
                    continue
                if self.breaks:
                    self.breaks -= 1
                    yield line[:-2]
                    raise StreamBroken("cut")
                yield line
            if pod not in self.pods or "terminated" in str(self.pods[pod]["status"]):
                return
            await self.changed.wait()
