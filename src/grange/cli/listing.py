"""Lists of objects in full, for verbs that print more of them than a table holds."""

from grange.api import codec
from grange.api.http import Request
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.cli import session


async def listed(
    opened: session.ApiSession, kind: AnyKind, *, selector: str = "", fields: str = ""
) -> list[Document]:
    """The objects of a kind in the session's namespace, in full."""
    query = {"labelSelector": selector, "fieldSelector": fields}
    request = Request(
        "GET",
        kind.path(opened.namespace),
        query={key: value for key, value in query.items() if value},
        headers={"accept": "application/json"},
    )
    body = codec.decode_document((await opened.fetch(request)).body)
    items: list[Document] = body.get("items") or []
    return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]
