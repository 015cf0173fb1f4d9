"""Writes about test sessions: creation that may be repeated, and cancellation."""

from grange.api import http
from grange.api.codec import decode_document, encode
from grange.api.http import Request
from grange.api.kinds import TESTSESSION
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import AlreadyExists
from grange.base.backoff import Exponential
from grange.cli.session import ApiSession
from grange.cli.testruns.run_plan import RUN_LABEL
from grange.cli.watched_object import TRANSIENT

CANCEL_COLLECT = "Collect"
CANCEL_NOW = "Now"
RETRIES = 2
"""How often a write is repeated that the server did not answer."""

_PAUSE = Exponential(initial_s=0.5, cap_s=5.0)


async def create(opened: ApiSession, document: Document) -> Document:
    """Create a session; the session as it is stored.

    A creation without an answer is repeated. The session that the first one left is then recognized
    by the label of the run.

    Raises:
        ApiError: it was refused, there is another one of the name, or the server does not answer.
    """
    meta = document["metadata"]
    namespace = opened.within(TESTSESSION, str(meta.get("namespace") or ""))
    request = Request(
        "POST",
        TESTSESSION.path(namespace),
        headers={"content-type": http.JSON},
        body=encode(document),
    )
    for attempt in range(RETRIES + 1):
        try:
            return _typed((await opened.fetch(request)).body)
        except AlreadyExists:
            found = await opened.document(TESTSESSION, str(meta["name"]), namespace)
            own = (meta.get("labels") or {}).get(RUN_LABEL)
            if attempt and own and (found["metadata"].get("labels") or {}).get(RUN_LABEL) == own:
                return {"kind": TESTSESSION.kind, **found}
            raise
        except TRANSIENT:
            if attempt == RETRIES:
                raise
            await opened.env.clock.sleep(_PAUSE.delay(attempt + 1))
    raise AssertionError("unreachable: the last attempt returns or raises")


async def create_unless_there(opened: ApiSession, kind: AnyKind, document: Document) -> str:
    """Create an object of any kind unless there is one of its name; a line for people."""
    meta = document.setdefault("metadata", {})
    namespace = opened.within(kind, str(meta.get("namespace") or ""))
    label = f"{kind.singular}/{meta.get('name', '')}"
    request = Request(
        "POST", kind.path(namespace), headers={"content-type": http.JSON}, body=encode(document)
    )
    try:
        await opened.fetch(request)
    except AlreadyExists:
        return f"{label} exists; left as it is"
    return f"{label} created"


async def cancel(opened: ApiSession, session: Document, how: str) -> Document:
    """Cancel the session that was read, and no other one of its name; the session as it is now.

    Args:
        opened: the connection.
        session: as it was read.
        how: ``CANCEL_COLLECT`` or ``CANCEL_NOW``.

    Raises:
        ApiError: for instance ``NotFound``.
    """
    return await _patch(opened, session, {"spec": {"cancel": how}})


async def annotate(opened: ApiSession, session: Document, key: str, value: str) -> None:
    """Set an annotation of the session that was read, and of no other one of its name.

    Raises:
        ApiError: for instance ``Forbidden``.
    """
    await _patch(opened, session, {"metadata": {"annotations": {key: value}}})


async def _patch(opened: ApiSession, session: Document, change: Document) -> Document:
    """Merge a change into the session that was read; repeated where the server does not answer."""
    meta = session["metadata"]
    metadata = {**change.get("metadata", {}), "uid": meta["uid"]}
    request = Request(
        "PATCH",
        TESTSESSION.path(meta.get("namespace") or "default", meta["name"]),
        headers={"content-type": http.MERGE_PATCH},
        body=encode({**change, "metadata": metadata}),
    )
    for attempt in range(RETRIES):
        try:
            return _typed((await opened.fetch(request)).body)
        except TRANSIENT:
            await opened.env.clock.sleep(_PAUSE.delay(attempt + 1))
    return _typed((await opened.fetch(request)).body)


def _typed(body: bytes) -> Document:
    return {"kind": TESTSESSION.kind, **decode_document(body)}
