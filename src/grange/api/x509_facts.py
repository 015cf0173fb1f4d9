"""A few facts of an X.509 certificate: its key and its times, without a library for certificates.

Only the outline of the DER encoding is read. Nothing is verified here: TLS does that.
"""

import base64
import binascii
import hashlib
import re
from datetime import UTC, datetime
from typing import NamedTuple

from grange.base.errors import GrangeError

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_SIZE_MAX = 64 * 1024
_UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x17, 0x18, 0xA0
_COMMON_NAME = bytes((0x55, 0x04, 0x03))  # 2.5.4.3
_FORMATS = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}
_PIN_PREFIX = "sha256:"


class CertificateUnreadable(GrangeError):
    """The text holds no X.509 certificate; the message has the reason."""


class CertificateFacts(NamedTuple):
    """What a certificate states.

    Attributes:
        pin: ``sha256:`` and the digest of its public key, as ``--ca-hash`` takes it.
        not_before: when it begins.
        not_after: when it ends.
        common_name: of the subject; empty for none.
    """

    pin: str
    not_before: datetime
    not_after: datetime
    common_name: str = ""


class _Element(NamedTuple):
    """One element: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def read(pem: bytes) -> CertificateFacts:
    """The facts of the first certificate in a text.

    Raises:
        CertificateUnreadable: there is none, or it is damaged.
    """
    found = _PEM.search(pem) if len(pem) <= _SIZE_MAX else None
    if found is None:
        raise CertificateUnreadable("there is no PEM block of type CERTIFICATE")
    try:
        (certificate,) = _elements(base64.b64decode(found[1]))
        parts = _elements(_elements(certificate.content)[0].content)
        if parts[0].tag == _VERSION:
            parts = parts[1:]
        _, _, _, validity, subject, key = parts[:6]
        begin, end = (_time(item) for item in _elements(validity.content))
        name = _common_name(subject)
    except (ValueError, IndexError, binascii.Error) as error:
        raise CertificateUnreadable(f"the certificate is damaged: {error}") from error
    digest = hashlib.sha256(key.whole).hexdigest()
    return CertificateFacts(f"{_PIN_PREFIX}{digest}", begin, end, name)


def is_pin(text: str) -> bool:
    """Whether a text has the form of a pin."""
    return re.fullmatch(rf"{_PIN_PREFIX}[0-9a-f]{{64}}", text) is not None


def _elements(data: bytes) -> list[_Element]:
    found = []
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size & 0x80:
            octets = size & 0x7F
            if not 1 <= octets <= 4 or at + octets > len(data):
                raise ValueError("an element has no valid length")
            size = int.from_bytes(data[at : at + octets])
            at += octets
        if at + size > len(data):
            raise ValueError("an element is cut off")
        found.append(_Element(tag, data[at : at + size], data[start : at + size]))
        at += size
    return found


def _common_name(subject: _Element) -> str:
    for part in _elements(subject.content):
        for pair in _elements(part.content):
            kind, value = _elements(pair.content)
            if kind.content == _COMMON_NAME:
                return value.content.decode("utf-8", "replace")
    return ""


def _time(element: _Element) -> datetime:
    if element.tag not in _FORMATS:
        raise ValueError("a time is expected")
    text = element.content.decode("ascii")
    return datetime.strptime(text, _FORMATS[element.tag]).replace(tzinfo=UTC)
