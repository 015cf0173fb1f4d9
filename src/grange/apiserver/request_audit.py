"""Who asked for what: one event of ``audit.k8s.io/v1`` for each request, at the level ``Metadata``.

An event has neither bodies, nor the query of the URL, nor credentials: commands and values that may be
secrets are in the first two.
"""

from collections.abc import Callable
from datetime import timedelta

import msgspec

from grange.api import timestamps
from grange.api.http import JSON, Request, Response, User
from grange.api.meta import Document
from grange.api.scheme import Scheme
from grange.api.status import ApiError
from grange.apiserver.request_info import Target, parse
from grange.base.clock import Clock
from grange.base.rng import Stream

CLIENT_GONE = 499
"""The code of a request whose client went away before the answer; what it asked for may be done."""

_PATH_MAX_CHARS = 1024
_TEXT_MAX_CHARS = 256
_GROUPS_MAX = 100
_LATENCY = "apiserver.latency.k8s.io/total"


class _Meta(msgspec.Struct):
    name: str = ""


class _Created(msgspec.Struct):
    metadata: _Meta


class RequestAudit:
    """Writes an event for each request that is answered.

    Args:
        write: takes one line without its end; must not block.
        scheme: the kinds that are served.
        clock: time.
        rng: makes the identifiers of events.
    """

    def __init__(
        self, write: Callable[[bytes], None], scheme: Scheme, clock: Clock, rng: Stream
    ) -> None:
        self._write = write
        self._scheme = scheme
        self._clock = clock
        self._rng = rng

    def record(self, request: Request, peer: str, response: Response, elapsed_s: float) -> None:
        """Write the event of a request.

        Args:
            request: with its sender as the user.
            peer: address that it came from.
            response: the answer, or its beginning where it is a stream.
            elapsed_s: seconds from the request to the answer.
        """
        now = self._clock.now()
        target = self._target(request)
        is_stream = response.chunks is not None or response.upgrade is not None
        event: Document = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": self._rng.uid(),
            "stage": "ResponseStarted" if is_stream else "ResponseComplete",
            "requestURI": request.path[:_PATH_MAX_CHARS],
            "verb": request.method.lower() if target is None else target.verb,
            "user": _user(request.user),
            "sourceIPs": [peer],
            "userAgent": request.headers.get("user-agent", "")[:_TEXT_MAX_CHARS],
            "responseStatus": {"metadata": {}, "code": response.status},
            "requestReceivedTimestamp": timestamps.rfc3339_micro(
                now - timedelta(seconds=elapsed_s)
            ),
            "stageTimestamp": timestamps.rfc3339_micro(now),
            "annotations": {_LATENCY: f"{1000 * elapsed_s:.3f}ms"},
        }
        impersonated = _impersonated(request)
        if impersonated is not None:
            event["impersonatedUser"] = impersonated
        if target is not None:
            event["objectRef"] = _reference(target, response)
        self._write(msgspec.json.encode(event))

    def _target(self, request: Request) -> Target | None:
        try:
            return parse(request, self._scheme)
        except ApiError:
            return None


def _user(user: User) -> Document:
    return {"username": user.name, "groups": list(user.groups)}


def _impersonated(request: Request) -> Document | None:
    """Whom the request asks to be served as, whether it is allowed or not."""
    # The mapping of the listener repeats a name, which a plain one does not.
    found = [(name.lower(), value[:_TEXT_MAX_CHARS]) for name, value in request.headers.items()]
    names = [value for name, value in found if name == "impersonate-user"]
    groups = [value for name, value in found if name == "impersonate-group"][:_GROUPS_MAX]
    if not names and not groups:
        return None
    return {"username": names[0] if names else "", "groups": groups}


def _reference(target: Target, response: Response) -> Document:
    name = target.name
    if target.verb == "create" and not target.subresource:
        name = name or _created_name(response)
    parts = {
        "resource": target.info.plural,
        "namespace": target.namespace,
        "name": name,
        "apiGroup": target.info.group,
        "apiVersion": target.info.version,
        "subresource": target.subresource,
    }
    return {key: value for key, value in parts.items() if value}


def _created_name(response: Response) -> str:
    """The name of the object that a create made; the server may have chosen it."""
    if response.status >= 300 or response.content_type != JSON:
        return ""
    try:
        return msgspec.json.decode(response.body, type=_Created).metadata.name
    except msgspec.MsgspecError:
        return ""
