"""Objects and lists in the form that the caller wants: whole, as a Table, or metadata only.

Whole objects are the stored bytes; nothing is decoded for them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec

from grange.api import codec, tables
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest
from grange.apiserver import storage
from grange.apiserver.negotiation import Form, object_form
from grange.base.clock import Clock

_ROWS_AT_ONCE = 100  # some milliseconds of work
_PARTIALS_AT_ONCE = 1_000
_NO_ROWS = b"]}"

_INCLUDES: dict[str, tables.Include] = {
    "None": "None",
    "Metadata": "Metadata",
    "Object": "Object",
}


class _Envelope(msgspec.Struct):
    metadata: msgspec.Raw


_envelopes = msgspec.json.Decoder(_Envelope)


Skip = Callable[[int, Exception], object]


class Representation(msgspec.Struct, frozen=True, gc=False):
    """How the caller wants to see a kind.

    Attributes:
        info: the kind.
        form: the form of objects.
        include: what a Table row carries of its object: None, Metadata or Object.
    """

    info: AnyKind
    form: Form
    include: tables.Include = "Metadata"

    @property
    def identity(self) -> tuple[Form, tables.Include]:
        """Equal for views that give equal bytes of the same object of one kind."""
        return self.form, self.include


def negotiate(
    info: AnyKind, headers: Mapping[str, str], query: Mapping[str, str]
) -> Representation:
    """The view that a request asks for.

    Raises:
        NotAcceptable: no form that the caller takes can be served.
        BadRequest: ``includeObject`` is not known.
    """
    form = object_form(headers.get("accept", ""))
    if form is not Form.TABLE:
        return Representation(info, form)
    asked = query.get("includeObject") or "Metadata"
    include = _INCLUDES.get(asked)
    if include is None:
        raise BadRequest(f'includeObject must be one of {", ".join(_INCLUDES)}, not "{asked}"')
    return Representation(info, form, include)


def one(view: Representation, body: bytes, *, now: datetime, work: storage.Work) -> bytes:
    """One object."""
    if view.form is Form.OBJECT:
        return body
    if view.form is Form.PARTIAL:
        return _partial(body)
    document = storage.decode(body, work)
    version = str(document["metadata"].get("resourceVersion", ""))
    return _table(view, [document], {"resourceVersion": version}, now)


async def many(
    view: Representation,
    bodies: Sequence[bytes],
    list_meta: Document,
    *,
    clock: Clock,
    work: storage.Work,
    skip: Skip = lambda index, error: None,
) -> bytes:
    """A list; others are served while a long one is made.

    Args:
        view: how to show them.
        bodies: the objects.
        list_meta: metadata of the list.
        clock: lets others run.
        work: counts decodes.
        skip: called with the index and the error of an object that cannot be shown and is left out.
    """
    if view.form is Form.TABLE:
        return await _long_table(view, bodies, list_meta, clock, work, skip)
    info = view.info
    kind, api_version = f"{info.kind}List", info.api_version
    if view.form is Form.PARTIAL:
        kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        shown: list[bytes] = []
        for at in range(0, len(bodies), _PARTIALS_AT_ONCE):
            if at:
                await clock.sleep(0)
            for index, body in enumerate(bodies[at : at + _PARTIALS_AT_ONCE], at):
                try:
                    shown.append(_partial(body))
                except msgspec.MsgspecError as error:
                    skip(index, error)
        bodies = shown
    head = codec.encode({"kind": kind, "apiVersion": api_version, "metadata": list_meta})
    return b'%b,"items":[%b]}\n' % (head[:-1], b",".join(bodies))


def _partial(body: bytes) -> bytes:
    metadata = bytes(_envelopes.decode(body).metadata)
    return (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%b}' % metadata
    )


async def _long_table(
    view: Representation,
    bodies: Sequence[bytes],
    list_meta: Document,
    clock: Clock,
    work: storage.Work,
    skip: Skip,
) -> bytes:
    """A table that is made piece by piece: each has a few rows, the first one the columns, too."""
    now = clock.now()
    whole = _table(view, [], list_meta, now)
    pieces = []
    for at in range(0, len(bodies), _ROWS_AT_ONCE):
        if at:
            await clock.sleep(0)
        rows = _rows(view, bodies[at : at + _ROWS_AT_ONCE], now, work, partial(_at, skip, at))
        if rows:
            pieces.append(codec.encode_any(rows)[1:-1])
    return b"%b%b]}" % (whole.removesuffix(_NO_ROWS), b",".join(pieces)) if pieces else whole


def _rows(
    view: Representation, bodies: Sequence[bytes], now: datetime, work: storage.Work, skip: Skip
) -> list[Document]:
    """Rows of a table without those of objects that cannot be shown."""
    try:
        documents = [storage.decode(body, work) for body in bodies]
        return tables.rows(view.info, documents, now=now.timestamp(), include=view.include)
    except Exception as error:  # noqa: BLE001  cells trust the shape that the schema promises
        if len(bodies) == 1:
            skip(0, error)
            return []
    made: list[Document] = []
    for index in range(len(bodies)):  # one of them is at fault: which?
        made += _rows(view, bodies[index : index + 1], now, work, partial(_at, skip, index))
    return made


def _at(skip: Skip, start: int, index: int, error: Exception) -> object:
    """Call with an index that counts from another start."""
    return skip(start + index, error)


def _table(
    view: Representation, documents: list[Document], list_meta: Document, now: datetime
) -> bytes:
    return codec.encode(
        tables.table(
            view.info,
            documents,
            now=now.timestamp(),
            list_meta=list_meta,
            include=view.include,
        )
    )
