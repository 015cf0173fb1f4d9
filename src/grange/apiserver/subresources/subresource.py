"""What a subresource is to the server."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from grange.api.http import Response
from grange.apiserver.request_context import Call

Handler = Callable[[Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Subresource:
    """One subresource.

    Attributes:
        name: the last part of its path.
        verbs: what serves it, by verb.
        kind: of the bodies, for discovery; empty for the parent's.
        group, version: of that kind.
    """

    name: str
    verbs: Mapping[str, Handler]
    kind: str = ""
    group: str = ""
    version: str = "v1"
