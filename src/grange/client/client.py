"""The client: typed verbs over a transport.

Every deciding part of Grange talks to the API through this class and nothing else. Objects come
back as typed views; documents go out whole or as patches.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar
from urllib.parse import urlencode

import msgspec

from grange.api import wire
from grange.api.meta import Document, Resource
from grange.api.scheme import KindInfo
from grange.api.status import ApiError, InternalError, Status, from_status
from grange.api.wire import Request, Response
from grange.client.transport import Transport

R = TypeVar("R", bound=Resource)

PatchType = Literal["merge", "json", "strategic"]
_PATCH_MEDIA: dict[str, str] = {
    "merge": wire.MERGE_PATCH,
    "json": wire.JSON_PATCH,
    "strategic": wire.STRATEGIC_MERGE_PATCH,
}
