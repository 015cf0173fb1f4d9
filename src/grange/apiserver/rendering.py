"""What people read: indented JSON, and YAML; made of a whole JSON answer when all else is done."""

from collections.abc import Mapping
from typing import Any

import msgspec

from grange.api import codec
from grange.api.http import JSON, YAML, Request, Response
from grange.apiserver.negotiation import wants_yaml
from grange.apiserver.request_info import is_true

BLOCK_YAML_MAX_BYTES = 32 * 1024
"""Writing YAML in block style takes about two microseconds a byte, and holds the event loop."""

INDENTED_MAX_BYTES = 8 * 1024 * 1024
"""Above that, even indenting holds the event loop for long; the answer stays compact."""

_INDENT = 2
_PEOPLES_AGENTS = ("curl", "Wget", "Mozilla/5.0")  # as in Kubernetes


def render(request: Request, response: Response) -> None:
    """Put an answer into the form that the request asks for; streams stay as they are."""
    if response.content_type != JSON or not response.body or response.chunks is not None:
        return
    accept = request.headers.get("accept") or ""
    if "yaml" in accept and wants_yaml(accept):
        response.body, response.content_type = _yaml(response.body), YAML
    elif _is_pretty(request.query, request.headers):
        response.body = _indented(response.body)


def _indented(body: bytes) -> bytes:
    return body if len(body) > INDENTED_MAX_BYTES else msgspec.json.format(body, indent=_INDENT)


def _is_pretty(query: Mapping[str, str], headers: Mapping[str, str]) -> bool:
    asked = query.get("pretty")
    if asked is not None:
        return is_true(asked)
    agent = headers.get("user-agent")
    return agent is not None and agent.startswith(_PEOPLES_AGENTS)


def _yaml(body: bytes) -> bytes:
    if len(body) > BLOCK_YAML_MAX_BYTES:
        return _indented(body)  # JSON is YAML, too
    import yaml  # takes as long to import as a fifth of the room

    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(codec.decode_trusted(body), Dumper=dumper, allow_unicode=True)
    return text.encode()
