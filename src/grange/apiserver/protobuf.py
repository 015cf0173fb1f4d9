"""Bodies in Kubernetes' protobuf encoding, of the kinds that kubectl itself sends that way.

``kubectl create configmap|secret|namespace|service`` and ``kubectl drain`` go through typed Go
clients, which send protobuf and have no other try. What they send is read here into the same
documents that JSON gives; answers are JSON, which every such client accepts. Other kinds are
refused as before, with the advice to send a file.

The form: four magic bytes, then an ``Unknown`` message that names the type and holds the object.
Go leaves out nothing but unset pointers, so empty strings, zeros and false of plain fields are
dropped here as JSON drops them; fields marked ``?`` are pointers, and their zeros mean something.
"""

import base64
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from grange.api import timestamps
from grange.api.meta import Document
from grange.api.status import BadRequest, UnsupportedMediaType

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
_VARINT_MAX_BYTES = 10
_LIST, _MAP, _POINTER = "[]", "{}", "?"

# Field numbers to name and type, from the published .proto files of Kubernetes' API groups.
# [] is repeated, {} a map from strings, ? a pointer; capitals are messages.
_MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "ObjectMeta": {
        1: ("name", "string"),
        2: ("generateName", "string"),
        3: ("namespace", "string"),
        5: ("uid", "string"),
        6: ("resourceVersion", "string"),
        7: ("generation", "int"),
        8: ("creationTimestamp", "time"),
        9: ("deletionTimestamp", "time"),
        10: ("deletionGracePeriodSeconds", "int?"),
        11: ("labels", "{}string"),
        12: ("annotations", "{}string"),
        13: ("ownerReferences", "[]OwnerReference"),
        14: ("finalizers", "[]string"),
    },
    "OwnerReference": {
        1: ("kind", "string"),
        3: ("name", "string"),
        4: ("uid", "string"),
        5: ("apiVersion", "string"),
        6: ("controller", "bool?"),
        7: ("blockOwnerDeletion", "bool?"),
    },
    "ConfigMap": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{}string"),
        3: ("binaryData", "{}bytes"),
        4: ("immutable", "bool?"),
    },
    "Secret": {
        1: ("metadata", "ObjectMeta"),
        2: ("data", "{}bytes"),
        3: ("type", "string"),
        4: ("stringData", "{}string"),
        5: ("immutable", "bool?"),
    },
    "Namespace": {1: ("metadata", "ObjectMeta"), 2: ("spec", "NamespaceSpec")},
    "NamespaceSpec": {1: ("finalizers", "[]string")},
    "Service": {1: ("metadata", "ObjectMeta"), 2: ("spec", "ServiceSpec")},
    "ServiceSpec": {
        1: ("ports", "[]ServicePort"),
        2: ("selector", "{}string"),
        3: ("clusterIP", "string"),
        4: ("type", "string"),
        5: ("externalIPs", "[]string"),
        7: ("sessionAffinity", "string"),
        8: ("loadBalancerIP", "string"),
        9: ("loadBalancerSourceRanges", "[]string"),
        10: ("externalName", "string"),
        11: ("externalTrafficPolicy", "string"),
        12: ("healthCheckNodePort", "int"),
        13: ("publishNotReadyAddresses", "bool"),
        17: ("ipFamilyPolicy", "string?"),
        18: ("clusterIPs", "[]string"),
        19: ("ipFamilies", "[]string"),
        20: ("allocateLoadBalancerNodePorts", "bool?"),
        21: ("loadBalancerClass", "string?"),
        22: ("internalTrafficPolicy", "string?"),
    },
    "ServicePort": {
        1: ("name", "string"),
        2: ("protocol", "string"),
        3: ("port", "int"),
        4: ("targetPort", "int-or-string"),
        5: ("nodePort", "int"),
        6: ("appProtocol", "string?"),
    },
    "Eviction": {1: ("metadata", "ObjectMeta"), 2: ("deleteOptions", "DeleteOptions")},
    "DeleteOptions": {
        1: ("gracePeriodSeconds", "int?"),
        2: ("preconditions", "Preconditions"),
        3: ("orphanDependents", "bool?"),
        4: ("propagationPolicy", "string?"),
        5: ("dryRun", "[]string"),
    },
    "Preconditions": {1: ("uid", "string?"), 2: ("resourceVersion", "string?")},
    # What the others are wrapped in, and what maps and special types are made of.
    "Unknown": {1: ("typeMeta", "TypeMeta"), 2: ("raw", "raw")},
    "TypeMeta": {1: ("apiVersion", "string"), 2: ("kind", "string")},
    "Time": {1: ("seconds", "int"), 2: ("nanos", "int")},
    "IntOrString": {1: ("type", "int"), 2: ("int", "int"), 3: ("string", "string")},
}
_KINDS = frozenset({"ConfigMap", "Secret", "Namespace", "Service", "Eviction", "DeleteOptions"})


def is_protobuf(media_type: str) -> bool:
    """Whether a content type is Kubernetes' protobuf."""
    return media_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def decode(body: bytes) -> Document:
    """The document of a body.

    Raises:
        UnsupportedMediaType: it is of a kind that is read only as JSON or YAML.
        BadRequest: the body is damaged.
    """
    if not body.startswith(_MAGIC):
        raise BadRequest("the body is not Kubernetes' protobuf: it lacks the magic bytes")
    outer = _message("Unknown", body[len(_MAGIC) :])
    meta = outer.get("typeMeta") or {}
    kind = meta.get("kind") or ""
    if kind not in _KINDS:
        raise UnsupportedMediaType(
            f'the server reads {kind or "such objects"} as JSON and YAML, not as "{MEDIA_TYPE}"; '
            "write the object to a file and use `kubectl apply -f FILE`, which sends JSON"
        )
    return {**meta, **_message(kind, outer.get("raw") or b"")}


def _message(name: str, body: bytes) -> Document:
    # Recursion is bounded by the table: no message contains itself.
    fields = _MESSAGES[name]
    document: Document = {}
    for number, wire, value in _records(body):
        if number not in fields:
            continue
        field, kind = fields[number]
        if kind.startswith(_MAP):
            key, item = _entry(_bytes(value, wire), kind.removeprefix(_MAP))
            document.setdefault(field, {})[key] = item
        elif kind.startswith(_LIST):
            document.setdefault(field, []).append(_value(kind.removeprefix(_LIST), wire, value))
        else:
            item = _value(kind.removesuffix(_POINTER), wire, value)
            if kind.endswith(_POINTER) or item not in (None, "", 0, False):
                document[field] = item
    return document


def _entry(body: bytes, kind: str) -> tuple[str, Any]:
    key: Any = ""
    item: Any = ""
    for number, wire, value in _records(body):
        if number == 1:
            key = _value("string", wire, value)
        elif number == 2:
            item = _value(kind, wire, value)
    return key, item


def _value(kind: str, wire: int, value: int | bytes) -> Any:
    match kind:
        case "int" | "bool":
            if not isinstance(value, int):
                raise _damaged("a number was expected")
            return bool(value) if kind == "bool" else value
        case "string":
            try:
                return _bytes(value, wire).decode()
            except UnicodeDecodeError:
                raise _damaged("a text is not UTF-8") from None
        case "bytes":
            return base64.b64encode(_bytes(value, wire)).decode()
        case "raw":
            return _bytes(value, wire)
        case "time":
            return _time(_bytes(value, wire))
        case "int-or-string":
            either = _message("IntOrString", _bytes(value, wire))
            return either.get("string", "") if either.get("type") else either.get("int", 0)
    return _message(kind, _bytes(value, wire))


def _time(body: bytes) -> str | None:
    seconds = _message("Time", body).get("seconds", 0)
    if seconds <= 0:
        return None  # Go's zero time, long before the epoch
    try:
        return timestamps.rfc3339(_EPOCH + timedelta(seconds=seconds))
    except OverflowError:
        raise _damaged("a time is out of range") from None


def _bytes(value: int | bytes, wire: int) -> bytes:
    if wire != _BYTES or not isinstance(value, bytes):
        raise _damaged("a text or message was expected")
    return value


def _records(body: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """Field number, wire type and value of each record; numbers are signed, fixed ones are bytes."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(body, at)
            yield number, wire, value - (1 << 64) if value >> 63 else value
            continue
        if wire == _BYTES:
            size, at = _varint(body, at)
        elif wire in _WIDTHS:
            size = _WIDTHS[wire]
        else:
            raise _damaged(f"wire type {wire} is not known")
        if at + size > len(body):
            raise _damaged("it ends too early")
        yield number, wire, body[at : at + size]
        at += size


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for index, byte in enumerate(body[at : at + _VARINT_MAX_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + index + 1
    raise _damaged("it ends in the middle of a number")


def _damaged(why: str) -> BadRequest:
    return BadRequest(f"cannot read the body as protobuf: {why}")
