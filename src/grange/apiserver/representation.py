"""Objects and lists in the form that the caller wants: whole, as a Table, or metadata only.

Whole objects are the stored bytes; nothing is decoded for them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from grange.api import codec, tables
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import BadRequest
from grange.apiserver import stored
from grange.apiserver.negotiation import Form, object_form

_INCLUDES: dict[str, tables.Include] = {
    "None": "None",
    "Metadata": "Metadata",
    "Object": "Object",
}


class _Envelope(msgspec.Struct):
    metadata: msgspec.Raw


_envelopes = msgspec.json.Decoder(_Envelope)


class View(msgspec.Struct, frozen=True, gc=False):
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


def negotiate(info: AnyKind, headers: Mapping[str, str], query: Mapping[str, str]) -> View:
    """The view that a request asks for.

    Raises:
        NotAcceptable: no form that the caller takes can be served.
        BadRequest: ``includeObject`` is not known.
    """
    form = object_form(headers.get("accept", ""))
    if form is not Form.TABLE:
        return View(info, form)
    asked = query.get("includeObject") or "Metadata"
    include = _INCLUDES.get(asked)
    if include is None:
        raise BadRequest(f'includeObject must be one of {", ".join(_INCLUDES)}, not "{asked}"')
    return View(info, form, include)


def one(view: View, body: bytes, *, now: datetime, work: stored.Work) -> bytes:
    """One object."""
    if view.form is Form.OBJECT:
        return body
    if view.form is Form.PARTIAL:
        return _partial(body)
    document = stored.decode(body, work)
    version = str(document["metadata"].get("resourceVersion", ""))
    return _table(view, [document], {"resourceVersion": version}, now)


def many(
    view: View, bodies: Sequence[bytes], list_meta: Document, *, now: datetime, work: stored.Work
) -> bytes:
    """A list."""
    if view.form is Form.TABLE:
        return _table(view, [stored.decode(body, work) for body in bodies], list_meta, now)
    info = view.info
    kind, api_version = f"{info.kind}List", info.api_version
    if view.form is Form.PARTIAL:
        kind, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        bodies = [_partial(body) for body in bodies]
    head = codec.encode({"kind": kind, "apiVersion": api_version, "metadata": list_meta})
    return b'%b,"items":[%b]}\n' % (head[:-1], b",".join(bodies))


def _partial(body: bytes) -> bytes:
    metadata = bytes(_envelopes.decode(body).metadata)
    return (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":%b}' % metadata
    )


def _table(view: View, documents: list[Document], list_meta: Document, now: datetime) -> bytes:
    return codec.encode(
        tables.table(
            view.info,
            documents,
            now=now.timestamp(),
            list_meta=list_meta,
            include=view.include,
        )
    )
