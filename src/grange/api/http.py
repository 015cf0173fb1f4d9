"""What crosses the one seam: a request and a response, whatever carries them.

The HTTP listener of the API server, the in-process transport and the HTTP transport of the client
all speak these two values, so the same handler serves sockets and memory alike.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
YAML = "application/yaml"


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
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    user: User = ANONYMOUS
    within_s: float | None = None


@dataclass(slots=True)
class Response:
    """The answer: either a whole body, or chunks that arrive over time (watch, log).

    Attributes:
        status: HTTP status code.
        body: the whole body where ``chunks`` is None.
        content_type: its media type.
        headers: further headers.
        chunks: an asynchronous generator of body pieces; the reader must ``aclose()`` it.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: AsyncIterator[bytes] | None = None
