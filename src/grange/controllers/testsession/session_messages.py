"""What requests and answers of the session service have in common."""

from typing import Any

import msgspec
from aiohttp import web

from grange.api.meta import Document
from grange.controllers.testsession.coordination import CoordinationError


def integer(request: web.Request, name: str, default: int) -> int:
    """A number among the parameters of a request.

    Raises:
        CoordinationError: it is no number.
    """
    text = request.query.get(name, str(default))
    if not text.isdecimal() or len(text) > 12:
        raise CoordinationError(f"{name}: {text[:40]!r} is no number; give one")
    return int(text)


def answer(body: Document | dict[str, Any], status: int = 200) -> web.Response:
    """An answer in JSON."""
    return web.Response(
        body=msgspec.json.encode(body), status=status, content_type="application/json"
    )


def refusal(status: int, message: str) -> web.Response:
    """An answer to what is refused, after which the connection is closed."""
    response = web.Response(text=f"{message}\n", status=status)
    response.force_close()  # what is left of an upload is not read
    return response
