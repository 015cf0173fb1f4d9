"""Writes about test sessions: creation that may be repeated, and cancellation."""

from grange.api import http
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.cli.session import ApiSession

CANCEL_COLLECT = "Collect"
CANCEL_NOW = "Now"


async def cancel(opened: ApiSession, session: Document, how: str) -> Document:
    """Cancel the session that was read, and no other one of its name; the session as it is now.

    Args:
        opened: the connection.
        session: as it was read.
        how: ``CANCEL_COLLECT`` or ``CANCEL_NOW``.

    Raises:
        ApiError: for instance ``NotFound``.
    """
    meta = session["metadata"]
    change = {"metadata": {"uid": meta["uid"]}, "spec": {"cancel": how}}
    answer = await opened.fetch(
        Request(
            "PATCH",
            TESTSESSION.path(meta.get("namespace") or "default", meta["name"]),
            headers={"content-type": http.MERGE_PATCH},
            body=encode(change),
        )
    )
    return {"kind": TESTSESSION.kind, **decode_document(answer.body)}
