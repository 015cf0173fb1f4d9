"""A scripted collection behind the wire seam, and a network that misbehaves from a seed.

``Collection`` keeps objects, a revision and a history, and answers list and watch. What a real
server does rarely (compact, be restored from a backup, go silent) is a method. ``Faults`` wraps
its handler and spoils what passes.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from grange.api.http import Request, Response
from grange.api.kinds.pod import Pod
from grange.api.meta import Document, ObjectKey
from grange.api.status import ApiError, Cause, Expired, InternalError, ServiceUnavailable, Timeout
from grange.base.clock import Clock
from grange.base.rng import Stream
from grange.client.errors import StreamBroken

Handler = Callable[[Request], Awaitable[Response]]


def failed(error: ApiError) -> Response:
    return Response(error.code, msgspec.json.encode(error.status().document()))


class Collection:
    """One namespace-spanning collection of pods."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, Document] = {}
        self.history: list[tuple[int, str, Document]] = []
        self.revision = 10
        self.compacted = 0
        self.lists = 0
        self.watches = 0
        self.open = 0
        self.numeric = True
        self.spec: Document = {}  # of what is put from now on
        self._uids = 0
        self._changed = asyncio.Event()
        self._ended = 0

    # --- what happens ---

    def put(self, name: str, **labels: str) -> Document:
        """Create or change a pod."""
        key = ObjectKey("ns", name)
        old = self.objects.get(key)
        self.revision += 1
        if old is None:
            self._uids += 1
        uid = f"uid-{self._uids}" if old is None else old["metadata"]["uid"]
        document = self._document(key, uid, labels)
        self.objects[key] = document
        self._record("ADDED" if old is None else "MODIFIED", document)
        return document

    def delete(self, name: str) -> None:
        """Delete a pod, if it is there."""
        old = self.objects.pop(ObjectKey("ns", name), None)
        if old is not None:
            self.revision += 1
            meta = {**old["metadata"], "resourceVersion": self.version()}
            self._record("DELETED", {**old, "metadata": meta})

    def bookmark(self) -> None:
        """Report to watchers how far they are."""
        document = {"kind": "Pod", "metadata": {"resourceVersion": self.version()}, "status": {}}
        self._record("BOOKMARK", document)

    def compact(self) -> None:
        """Forget the history."""
        self.compacted = self.revision

    def end_watches(self) -> None:
        """End all open watches without an error."""
        self._ended += 1
        self._wake()

    def snapshot(self) -> tuple[int, dict[ObjectKey, Document]]:
        """A backup."""
        return self.revision, dict(self.objects)

    def restore(self, backup: tuple[int, dict[ObjectKey, Document]]) -> None:
        """Go back to a backup; watches break."""
        self.revision, objects = backup
        self.objects = dict(objects)
        self.history.clear()
        self.compacted = self.revision
        self.end_watches()

    def version(self) -> str:
        return str(self.revision) if self.numeric else f"v-{self.revision}"

    def state(self) -> dict[ObjectKey, tuple[str, str]]:
        """What there is: UID and version of each object."""
        return {
            key: (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"])
            for key, obj in self.objects.items()
        }

    # --- how it is asked ---

    async def handle(self, request: Request) -> Response:
        if request.query.get("watch") == "true":
            return self._watch(request)
        self.lists += 1
        items = [self.objects[key] for key in sorted(self.objects)]
        limit = int(request.query.get("limit", "0"))
        # Later pages show the newest state with its version, as servers may after a compaction.
        meta: Document = {"resourceVersion": self.version()}
        if token := request.query.get("continue"):
            at, last = token.split("/")
            if int(at) <= self.compacted and int(at) != self.revision:
                return failed(Expired("the pages before are gone"))
            items = [item for item in items if item["metadata"]["name"] > last]
        if limit and len(items) > limit:
            meta["remainingItemCount"] = len(items) - limit
            items = items[:limit]
            meta["continue"] = f"{self.revision}/{items[-1]['metadata']['name']}"
        return Response(200, json.dumps({"metadata": meta, "items": items}).encode())

    def _watch(self, request: Request) -> Response:
        self.watches += 1
        after = int(request.query["resourceVersion"].removeprefix("v-"))
        if after < self.compacted:
            return failed(Expired("too old"))
        if after > self.revision:
            cause = Cause("ResourceVersionTooLarge", "not there yet")
            return failed(Timeout("too large", causes=[cause]))
        return Response(200, chunks=self._stream(after))

    async def _stream(self, after: int) -> AsyncGenerator[bytes, None]:
        self.open += 1
        ended = self._ended
        try:
            position = 0
            while self._ended == ended:
                lines = b""
                while position < len(self.history):
                    revision, kind, document = self.history[position]
                    position += 1
                    if revision > after or (kind == "BOOKMARK" and revision == after):
                        lines += json.dumps({"type": kind, "object": document}).encode() + b"\n"
                if lines:
                    yield lines
                    continue
                changed = self._changed
                await changed.wait()
        finally:
            self.open -= 1

    def _document(self, key: ObjectKey, uid: str, labels: dict[str, str]) -> Document:
        meta = {
            "namespace": key.namespace,
            "name": key.name,
            "uid": uid,
            "resourceVersion": self.version(),
            "labels": labels,
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": self.spec}

    def _record(self, kind: str, document: Document) -> None:
        self.history.append((self.revision, kind, document))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@dataclass(slots=True)
class Faults:
    """Spoils a handler's answers; every probability is per request or per line."""

    handler: Handler
    rng: Stream
    clock: Clock
    error: float = 0.0
    slow: float = 0.0
    cut: float = 0.0
    duplicate: float = 0.0
    late: float = 0.0
    expire: float = 0.0

    def calm(self) -> None:
        """No more faults."""
        self.error = self.slow = self.cut = self.duplicate = self.late = self.expire = 0.0

    def become(self, other: "Faults") -> None:
        """As many faults as the other."""
        self.error, self.slow, self.cut = other.error, other.slow, other.cut
        self.duplicate, self.late, self.expire = other.duplicate, other.late, other.expire

    def _strikes(self, probability: float) -> bool:
        return probability > 0.0 and self.rng.uniform(0.0, 1.0) < probability

    async def handle(self, request: Request) -> Response:
        if self._strikes(self.slow):
            await self.clock.sleep(self.rng.uniform(0.0, 20.0))
        if self._strikes(self.error):
            kinds: list[ApiError] = [ServiceUnavailable("no"), InternalError("no"), Timeout("no")]
            error = self.rng.choice(kinds)
            if self._strikes(0.5):
                raise ServiceUnavailable("refused")
            return failed(error)
        response = await self.handler(request)
        if response.chunks is None:
            return response
        return replace(response, chunks=self._spoil(response.chunks))

    async def _spoil(self, chunks: Any) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in chunks:
                out: list[bytes] = []
                again: list[bytes] = []  # duplicates come after their originals
                swapped = False
                for line in chunk.splitlines(keepends=True):
                    out.append(line)
                    if self._strikes(self.duplicate):
                        self.rng.choice([out, again]).append(line)
                    if self._strikes(self.late) and len(out) > 1:
                        out[-1], out[-2] = out[-2], out[-1]
                        swapped = True
                out += again
                joined = b"".join(out)
                while joined:
                    size = self.rng.integer(1, len(joined))
                    piece, joined = joined[:size], joined[size:]
                    if self._strikes(self.slow):
                        await self.clock.sleep(self.rng.uniform(0.0, 5.0))
                    # Cut between two swapped lines, the later is lost and no reader can notice.
                    if self._strikes(self.cut) and not swapped:
                        if self._strikes(0.5):
                            raise StreamBroken("reset by peer")
                        return
                    yield piece
                if self._strikes(self.expire):
                    status = msgspec.json.encode(Expired("behind").status().document())
                    yield b'{"type":"ERROR","object":' + status + b"}\n"
                    return
        finally:
            await chunks.aclose()


def pods_seen(objects: list[Pod]) -> dict[ObjectKey, tuple[str, str]]:
    """What a store holds, in the form of ``Collection.state``."""
    return {obj.key: (obj.metadata.uid, obj.metadata.resource_version) for obj in objects}
