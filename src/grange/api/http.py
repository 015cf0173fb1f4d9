"""What crosses the one seam: a request and a response, whatever carries them.

The HTTP listener of the API server, the in-process transport and the HTTP transport of the client
all speak these two values, so the same handler serves sockets and memory alike.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from grange.base.message_socket import Upgrade

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""What to accept where only names, labels and annotations of a list are needed."""
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
YAML = "application/yaml"
WEBSOCKET = "websocket"
SUBPROTOCOL = "sec-websocket-protocol"


@dataclass(frozen=True, slots=True)
class User:
    """Who asks: a name and the groups it is in; the groups decide what is allowed."""

    name: str
    groups: tuple[str, ...] = ()


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))
ADMIN = User("grange:admin", ("system:masters", "system:authenticated"))
SERVER = User("system:apiserver", ("system:masters", "system:authenticated"))
"""The API server itself, for what it writes without a request."""


@dataclass(slots=True)
class Request:
    """One call on the API.

    Attributes:
        method: upper-case HTTP method.
        path: decoded path, e.g. ``/api/v1/namespaces/default/pods``.
        query: the last value of each parameter, decoded.
        headers: names in lower case; at least ``accept`` and ``content-type`` where they matter.
        body: the raw body; empty for none.
        user: who asks; a transport that is not authenticated leaves ``ANONYMOUS``.
        within_s: a write that its sender may make for so many seconds only: a transport sees to it
            that nothing of it leaves this machine later. None for no such bound.
        repeated: all values of the parameters that are given more than once.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: User = ANONYMOUS
    within_s: float | None = None
    repeated: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def values(self, name: str) -> Sequence[str]:
        """All values of a query parameter, in order."""
        if name in self.repeated:
            return self.repeated[name]
        return (self.query[name],) if name in self.query else ()

    @property
    def wants_websocket(self) -> bool:
        """Whether the answer is to be a connection for messages."""
        return self.headers.get("upgrade", "").strip().lower() == WEBSOCKET

    @property
    def subprotocols(self) -> Sequence[str]:
        """What the sender can speak over a WebSocket, best first."""
        words = self.headers.get(SUBPROTOCOL, "").split(",")
        return [word.strip() for word in words if word.strip()]


@dataclass(slots=True)
class Response:
    """The answer: a whole body, chunks that arrive over time (watch, log), or a WebSocket.

    Attributes:
        status: HTTP status code.
        body: the whole body where ``chunks`` is None.
        content_type: its media type.
        headers: further headers.
        chunks: an asynchronous generator of body pieces; the reader must ``aclose()`` it.
        upgrade: with status 101, serves the connection; its reader must await or cancel it. The
            header ``sec-websocket-protocol`` names the subprotocol.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: AsyncIterator[bytes] | None = None
    upgrade: Upgrade | None = None
