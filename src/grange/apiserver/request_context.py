"""One request on its way through the handlers, and the answers they give."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

import msgspec

from grange.api import codec, schema
from grange.api.http import JSON, Request, Response
from grange.api.kinds import POD
from grange.api.meta import Document
from grange.api.scheme import AnyKind
from grange.api.status import APIStatus, BadRequest, Cause, Details, TooLarge
from grange.apiserver import protobuf, representation
from grange.apiserver.account_tokens import AccountTokens
from grange.apiserver.conformance import duplicate_cause
from grange.apiserver.explain import Explainer
from grange.apiserver.metrics import ServerMetrics
from grange.apiserver.negotiation import Form
from grange.apiserver.pod_logs import LogSource
from grange.apiserver.pod_spec_cache import SentPod
from grange.apiserver.pod_streams import PodStreams
from grange.apiserver.registry import (
    LARGE_BYTES,
    Place,
    Registry,
    Written,
    is_large,
)
from grange.apiserver.request_info import Target
from grange.apiserver.watch import Watches
from grange.apiserver.write_options import (
    IGNORE,
    STRICT,
    WriteOptions,
    field_validation,
    write_options,
)
from grange.base.clock import Clock

T = TypeVar("T")

# As in Kubernetes; clients refuse header fields above 8 KiB.
_WARNING_MAX_CHARS, _WARNINGS_MAX_CHARS = 256, 4096


@dataclass(slots=True)
class Call:
    """A resource request with what handlers need to serve it.

    Attributes:
        request: as it came.
        target: what it is about.
        registry: reads and writes.
        watches: streams of changes.
        logs: the output of pods; None when no agent is connected.
        streams: connections into pods; None when no agent is connected.
        metrics: counts the parts of a request that have their own responses.
        explainer: explains why pods wait; None when no scheduler runs here.
        accounts: makes the tokens of service accounts.
        warnings: about the body of a request that is no stored object; the answer carries them.
    """

    request: Request
    target: Target
    registry: Registry
    watches: Watches
    logs: LogSource | None
    streams: PodStreams | None
    metrics: ServerMetrics
    explainer: Explainer | None
    accounts: AccountTokens
    warnings: list[str] = field(default_factory=list)
    _large: bool | None = None

    @property
    def clock(self) -> Clock:
        """The server's clock."""
        return self.registry.clock

    @property
    def place(self) -> Place:
        """Where the object is."""
        return Place(self.target.info, self.target.namespace, self.target.name)

    @property
    def is_large(self) -> bool:
        """Whether reading the body may take longer than the event loop should be held for."""
        if self._large is None:
            request = self.request
            media = request.headers.get("content-type") or JSON
            # A few aliases make a small YAML text stand for a large document.
            self._large = is_large(request.body) or codec.is_yaml(media)
        return self._large

    async def prepare(self, work: Callable[[], T]) -> T:
        """The result of reading the body, off the event loop where the body is large."""
        return await self.registry.offload.run(work) if self.is_large else work()

    def small_document(self) -> Document:
        """The body of a request that refers to an object and is none.

        Raises:
            BadRequest: it is no JSON or YAML object; the message gives the position.
            UnsupportedMediaType: its format is not read here, or not for this kind.
            TooLarge: it has more than ``LARGE_BYTES``.
        """
        return read_small_document(self.request)

    def request_object(self, definition: str) -> Document:
        """The body of a request that is an object itself, e.g. an Eviction (``read_request_object``).

        Raises:
            BadRequest, UnsupportedMediaType, TooLarge: as there.
        """
        document, warnings = read_request_object(self.request, definition)
        self.warnings += warnings
        return document

    def check_duplicates(self, kind: str, decoded: object) -> None:
        """Treat duplicate fields of a JSON body as ``fieldValidation`` has it; look for none with ``Ignore``.

        Args:
            kind: of the body, for the message.
            decoded: what the body was decoded to, with all its fields.

        Raises:
            BadRequest: there are some, and validation is ``Strict``.
        """
        if field_validation(self.request.query) != IGNORE:
            paths = codec.duplicate_fields(self.request.body, decoded)
            causes = [duplicate_cause(path) for path in paths]
            self.warnings += _field_warnings(self.request, kind, causes)

    def document(self) -> Document:
        """The body.

        Raises:
            BadRequest: it is no JSON or YAML object; the message gives the position.
            UnsupportedMediaType: its format is not read here, or not for this kind.
        """
        self.registry.work.decodes += 1
        return read_document(self.request.body, self.request.headers)

    def sent_pod(self) -> SentPod | None:
        """The parts of the body of a new pod; None if the cache of specs does not apply to it."""
        if self.target.info is not POD or self.is_large:
            return None
        if not codec.is_json(self.request.headers.get("content-type") or JSON):
            return None
        sent = self.registry.pod_specs.split(self.request.body)
        if sent is not None and sent.accepted is not None:
            self.registry.work.decodes += 1
        return sent

    def write_options(self, given: object, body: bytes | None = None) -> WriteOptions:
        """The options of a create, update or patch.

        Args:
            given: what the body was decoded to, not changed since.
            body: what it was decoded from, where that is not the body of the request.

        Raises:
            BadRequest: a parameter has a value that is not known.
        """
        asked = write_options(self.request.query, self.request.user)
        if self.is_large:
            asked = replace(asked, large=True)
        media = self.request.headers.get("content-type") or JSON
        if asked.field_validation == IGNORE or not codec.is_json(media):
            return asked
        duplicates = codec.duplicate_fields(self.request.body if body is None else body, given)
        return replace(asked, duplicates=duplicates) if duplicates else asked

    def answer(
        self,
        body: bytes,
        *,
        code: int = 200,
        warnings: Sequence[str] = (),
        info: AnyKind | None = None,
    ) -> Response:
        """An object, of the target's kind by default, in the form that the caller wants."""
        request = self.request
        view = representation.negotiate(info or self.target.info, request.headers, request.query)
        if view.form is not Form.OBJECT:
            body = representation.one(view, body, now=self.clock.now(), work=self.registry.work)
        return Response(code, body, headers=warning_headers(warnings))

    def written(self, outcome: Written, *, code: int = 200) -> Response:
        """The outcome of a write."""
        return self.answer(outcome.value, code=code, warnings=outcome.warnings)


def read_small_document(request: Request) -> Document:
    """The object in the body of a request that refers to an object and is none.

    Raises:
        BadRequest: it cannot be read; the message gives the position.
        UnsupportedMediaType: its format is not read here, or not for this kind.
        TooLarge: it has more than ``LARGE_BYTES``.
    """
    if len(request.body) > LARGE_BYTES:
        raise TooLarge(
            f"the body has {len(request.body)} bytes; requests to {request.path} may have "
            f"{LARGE_BYTES}"
        )
    return read_document(request.body, request.headers)


def read_request_object(request: Request, definition: str) -> tuple[Document, Sequence[str]]:
    """The body of a request that is an object itself and is not stored.

    Unknown and duplicate fields follow ``fieldValidation`` as those of stored objects do. Wrong types
    and missing fields are left to the caller.

    Args:
        request: as it came.
        definition: the schema of the body, e.g. ``io.k8s.api.policy.v1.Eviction``.

    Returns:
        The body without unknown fields, and what the answer warns about.

    Raises:
        BadRequest: it cannot be read, or has unknown or duplicate fields under ``Strict``.
        UnsupportedMediaType: its format is not read here, or not for this kind.
        TooLarge: it has more than ``LARGE_BYTES``.
    """
    document = read_small_document(request)
    duplicates: Sequence[str] = ()
    if codec.is_json(request.headers.get("content-type") or JSON):
        duplicates = codec.duplicate_fields(request.body, document)
    found = schema.check_definition(document, definition)
    causes = [cause for cause in found if schema.is_unknown_field(cause)]
    if causes:
        schema.drop_unknown_of(document, definition)
    causes += [duplicate_cause(path) for path in duplicates]
    return document, _field_warnings(request, definition.rpartition(".")[2], causes)


def _field_warnings(request: Request, kind: str, causes: Sequence[Cause]) -> Sequence[str]:
    """What to warn of unknown and duplicate fields, as ``fieldValidation`` has it.

    Raises:
        BadRequest: there are some, and validation is ``Strict``.
    """
    validation = field_validation(request.query)
    warnings = [cause.message for cause in causes]
    if warnings and validation == STRICT:
        raise BadRequest(
            f"{kind} cannot be handled: strict decoding error: {', '.join(warnings)}", causes=causes
        )
    return () if validation == IGNORE else warnings


def read_document(body: bytes, headers: Mapping[str, str]) -> Document:
    """The object in a body, in the format of the content type.

    Raises:
        BadRequest: it cannot be read; the message gives the position.
        UnsupportedMediaType: its format is not read here, or not for this kind.
    """
    media = headers.get("content-type") or JSON
    if protobuf.is_protobuf(media):
        return protobuf.decode(body)
    return codec.decode_document(body, media)


def warning_headers(warnings: Sequence[str]) -> Mapping[str, str]:
    """The ``Warning`` header of RFC 7234 that clients show; code 299 is Kubernetes'."""
    if not warnings:
        return {}
    shown, size = [], 0
    for text in warnings:
        size += min(len(text), _WARNING_MAX_CHARS)
        if size > _WARNINGS_MAX_CHARS:
            break
        shown.append(_warning(text[:_WARNING_MAX_CHARS]))
    return {"Warning": ", ".join(shown)}


@lru_cache(maxsize=256)
def _warning(text: str) -> str:
    # Field names come from the caller: nothing of them may end the header.
    plain = "".join(char if " " <= char <= "~" else "?" for char in text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'


def add_warnings(response: Response, warnings: Sequence[str]) -> None:
    """Warn in an answer, which may warn about other things already."""
    if warnings:
        added = warning_headers(warnings)["Warning"]
        before = response.headers.get("Warning")
        joined = f"{before}, {added}" if before else added
        response.headers = {**response.headers, "Warning": joined}


class _Identity(msgspec.Struct):
    uid: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


_identified = msgspec.json.Decoder(_Identified)


def success(place: Place, body: bytes, *, code: int = 200) -> Response:
    """The ``Status`` of a successful operation on the object with these bytes."""
    uid = _identified.decode(body).metadata.uid
    details = Details(name=place.name, group=place.info.group, kind=place.info.plural, uid=uid)
    status = APIStatus(code=code, status="Success", details=details)
    document = status.document()
    if code == 200:  # only 201 has its code in the body
        del document["code"]
    return Response(code, codec.encode_any(document))
