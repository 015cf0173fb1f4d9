"""The server's warnings: each is printed once, and none about a feature that every node has."""

import re
from collections.abc import Awaitable, Callable

from grange.api import codec, pod_fields
from grange.api.http import METADATA_LIST, Request, Response
from grange.api.kinds import NODE
from grange.api.pod_fields import Feature
from grange.api.status import ApiError
from grange.cli import terminal

_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class ServerWarnings:
    """The warnings of one session.

    Args:
        fetch: sends a request; raises ``ApiError``.
    """

    def __init__(self, fetch: Callable[[Request], Awaitable[Response]]) -> None:
        self._fetch = fetch
        self._known: set[str] = set()
        self._everywhere: dict[Feature, bool] = {}

    async def show(self, response: Response) -> None:
        """Print the warnings of a response on standard error."""
        found = (text for name, text in response.headers.items() if name.lower() == "warning")
        for text in _WARNING.findall(next(found, "")):
            if text in self._known:
                continue
            self._known.add(text)
            plain = _ESCAPED.sub(r"\1", text)
            feature = pod_fields.needed_feature(plain)
            if feature is None or not await self._is_everywhere(feature):
                terminal.echo(f"Warning: {plain}", err=True)

    async def _is_everywhere(self, feature: Feature) -> bool:
        if feature not in self._everywhere:
            key, value = feature.value
            try:
                lacking = await self._any(f"{key}!={value}")
                self._everywhere[feature] = not lacking and await self._any(feature.selector)
            except ApiError:  # nodes may not be listed: the warning may be right
                self._everywhere[feature] = False
        return self._everywhere[feature]

    async def _any(self, selector: str) -> bool:
        """Whether a node has these labels."""
        query = {"labelSelector": selector, "limit": "1"}
        request = Request("GET", NODE.path(), query=query, headers={"accept": METADATA_LIST})
        return bool(codec.decode_document((await self._fetch(request)).body).get("items"))
