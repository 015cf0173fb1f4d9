"""The answer for an error."""

import json

import msgspec

from grange.api import codec
from grange.api.http import Response
from grange.api.status import ApiError, APIStatus, Cause, Details
from grange.api.validation.causes import CAUSES_MAX

_ERROR_MAX_BYTES = 64 * 1024
_TEXT_MAX_CHARS, _MESSAGE_MAX_CHARS = 256, 4096


def failure(error: ApiError) -> Response:
    """The answer for an error."""
    headers = {}
    if error.details.retry_after_seconds:
        headers["Retry-After"] = str(error.details.retry_after_seconds)
    if error.code == 401:
        headers["WWW-Authenticate"] = "Bearer"
    status = error.status()
    try:
        body = codec.encode_any(status.document())
    except UnicodeEncodeError:  # it repeats bytes of the caller that are no text
        status = msgspec.json.decode(_printable(status), type=APIStatus)
        body = codec.encode_any(status.document())
    if len(body) > _ERROR_MAX_BYTES:  # it repeats what the caller sent
        body = codec.encode_any(_shortened(status).document())
    return Response(error.code, body, headers=headers)


def _printable(status: APIStatus) -> bytes:
    text = json.dumps(msgspec.to_builtins(status), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _shortened(status: APIStatus) -> APIStatus:
    details = status.details or Details()
    causes = [
        Cause(cause.reason, cause.message[:_TEXT_MAX_CHARS], cause.field[:_TEXT_MAX_CHARS])
        for cause in details.causes[:CAUSES_MAX]
    ]
    short = msgspec.structs.replace(
        details,
        name=details.name[:_TEXT_MAX_CHARS],
        kind=details.kind[:_TEXT_MAX_CHARS],
        group=details.group[:_TEXT_MAX_CHARS],
        causes=causes,
    )
    message = f"{status.message[:_MESSAGE_MAX_CHARS]}…"
    return msgspec.structs.replace(status, message=message, details=short)
