"""Errors as the API speaks them: one class per reason, raised by the server and the client alike.

::

    GrangeError
    └── ApiError                    code  reason                  the caller's reaction
        ├── BadRequest              400   BadRequest              fix the request
        ├── Unauthorized            401   Unauthorized            get a credential
        ├── Forbidden               403   Forbidden               ask for the right, or stop
        ├── NotFound                404   NotFound                gone is often what was wanted
        ├── MethodNotAllowed        405   MethodNotAllowed        use another verb
        ├── NotAcceptable           406   NotAcceptable           ask for another format
        ├── AlreadyExists           409   AlreadyExists           read what is there
        ├── Conflict                409   Conflict                read again, then write again
        ├── Gone / Expired          410   Gone, Expired           list again
        ├── TooLarge                413   RequestEntityTooLarge   send less
        ├── UnsupportedMediaType    415   UnsupportedMediaType    send another format
        ├── Invalid                 422   Invalid                 fix the named fields
        ├── TooManyRequests         429   TooManyRequests         wait ``retry_after_s``
        ├── InternalError           500   InternalError           a bug; retry with backoff
        ├── ServiceUnavailable      503   ServiceUnavailable      retry with backoff
        ├── Timeout                 504   Timeout                 the outcome is unknown
        └── InsufficientStorage     507   InsufficientStorage     free space; nothing was written

Codes and reasons are those of the Kubernetes API conventions (metav1.Status).
"""

import json
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from grange.base.errors import GrangeError

_VALUE_MAX = 200  # characters of a value in a message
_encoder = json.JSONEncoder(ensure_ascii=False, default=str)


class Cause(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fault in one field.

    Attributes:
        reason: FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, …
        message: what is wrong and what would be right.
        field: path of the field, e.g. ``spec.containers[0].name``.
    """

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What the status is about."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[Cause] = msgspec.field(default_factory=list)
    retry_after_seconds: int = 0


class APIStatus(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The body of every answer that is not an object; the fields are in Kubernetes' order."""

    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    status: str = "Failure"
    message: str = ""
    reason: str = ""
    details: Details | None = None
    code: int = 0

    def document(self) -> dict[str, object]:
        """The status as a full document, with kind and apiVersion."""
        body: dict[str, object] = {"kind": "Status", "apiVersion": "v1"}
        body |= {"metadata": self.metadata, "status": self.status}
        body.update(msgspec.to_builtins(self))
        return body


class ApiError(GrangeError):
    """An answer that is not success.

    Args:
        message: what happened, naming the thing, and what to do.
        kind, name, group: the object it is about, where there is one.
        causes: the faulty fields.
        retry_after_s: how long to wait before asking again; zero for not given.
    """

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        kind: str = "",
        name: str = "",
        group: str = "",
        causes: Sequence[Cause] = (),
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = Details(
            name=name,
            group=group,
            kind=kind,
            causes=list(causes),
            retry_after_seconds=retry_after_s,
        )

    @property
    def causes(self) -> list[Cause]:
        """The faulty fields."""
        return self.details.causes

    def status(self) -> APIStatus:
        """The error as it goes over the wire."""
        return APIStatus(
            code=self.code, reason=self.reason, message=self.message, details=self.details
        )


class BadRequest(ApiError):
    """The request cannot be understood."""

    code = 400
    reason = "BadRequest"


class Unauthorized(ApiError):
    """No credential, or one that is not known."""

    code = 401
    reason = "Unauthorized"


class Forbidden(ApiError):
    """Known, but not allowed."""

    code = 403
    reason = "Forbidden"


class NotFound(ApiError):
    """No such object or path."""

    code = 404
    reason = "NotFound"


class MethodNotAllowed(ApiError):
    """The path exists, the verb does not."""

    code = 405
    reason = "MethodNotAllowed"


class NotAcceptable(ApiError):
    """None of the formats asked for can be served."""

    code = 406
    reason = "NotAcceptable"


class AlreadyExists(ApiError):
    """The name is taken."""

    code = 409
    reason = "AlreadyExists"


class Conflict(ApiError):
    """The object changed since it was read, or a precondition does not hold."""

    code = 409
    reason = "Conflict"


class Gone(ApiError):
    """The revision is no longer kept."""

    code = 410
    reason = "Gone"


class Expired(Gone):
    """The revision is no longer kept; list again and watch from there."""

    reason = "Expired"


class TooLarge(ApiError):
    """The body is larger than the server takes."""

    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The body's format is not one the server reads."""

    code = 415
    reason = "UnsupportedMediaType"


class Invalid(ApiError):
    """The object breaks a rule of its kind; ``causes`` name the fields."""

    code = 422
    reason = "Invalid"


class TooManyRequests(ApiError):
    """Later, please."""

    code = 429
    reason = "TooManyRequests"


class InternalError(ApiError):
    """A bug in the server."""


class ServiceUnavailable(ApiError):
    """The server, or what it needs, is away."""

    code = 503
    reason = "ServiceUnavailable"


class Timeout(ApiError):
    """No answer in time; whether the write happened is not known."""

    code = 504
    reason = "Timeout"


class InsufficientStorage(ApiError):
    """The disk is full or not writable; nothing was acknowledged."""

    code = 507
    reason = "InsufficientStorage"


_LEAVES: tuple[type[ApiError], ...] = (
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Gone,
    Expired,
    TooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
    InsufficientStorage,
)
BY_REASON: dict[str, type[ApiError]] = {leaf.reason: leaf for leaf in _LEAVES}
_BY_CODE: dict[int, type[ApiError]] = {leaf.code: leaf for leaf in reversed(_LEAVES)}


def from_status(code: int, body: bytes) -> ApiError:
    """The error that a response with this code and body stands for.

    The reason decides; an unknown reason falls back on the code, and a body that is no ``Status``
    (e.g. a proxy's page) on the code and the text.
    """
    try:
        status = msgspec.json.decode(body, type=APIStatus)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        status = APIStatus(code=code, message=body[:200].decode("utf-8", "replace"))
    return error_of(code, status)


def error_of(code: int, status: APIStatus) -> ApiError:
    """The error that a status with this code stands for; an unknown reason falls back on the code."""
    kind = BY_REASON.get(status.reason) or _BY_CODE.get(code) or InternalError
    details = status.details or Details()
    return kind(
        status.message or f"the server answered {code}",
        kind=details.kind,
        name=details.name,
        group=details.group,
        causes=details.causes,
        retry_after_s=details.retry_after_seconds,
    )


def is_namespace_terminating(error: ApiError) -> bool:
    """Whether the namespace is on its way out: pods are not wanted in it any more."""
    return isinstance(error, Forbidden) and any(
        cause.reason == "NamespaceTerminating" for cause in error.causes
    )


def shown(value: object) -> str:
    """A value as it is put into a message: JSON, cut short; costs no more than is shown."""
    text = ""
    for piece in _encoder.iterencode(value[:_VALUE_MAX] if isinstance(value, str) else value):
        text += piece
        if len(text) > _VALUE_MAX:
            break
    cut = len(text) > _VALUE_MAX or (isinstance(value, str) and len(value) > _VALUE_MAX)
    return f"{text[:_VALUE_MAX]}…" if cut else text
