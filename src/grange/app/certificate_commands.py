"""The commands of ``node_certificates`` and their results: one line of JSON each, in both directions."""

from datetime import datetime

import msgspec

from grange.api.certificate_requests import CertificateTemplate


class ReadRequest(msgspec.Struct, tag="read"):
    """Read a request."""

    request: bytes


class SignRequest(msgspec.Struct, tag="sign"):
    """Sign a request with the authority in a directory."""

    directory: str
    request: bytes
    template: CertificateTemplate
    now: datetime


class MakeRequest(msgspec.Struct, tag="make"):
    """Make a key, and a request for a certificate with this subject and these names."""

    common_name: str
    organization: str
    dns_names: tuple[str, ...] = ()


class MadeRequest(msgspec.Struct):
    """A private key and the request for it, both PEM."""

    key: bytes
    request: bytes


class SignedCertificate(msgspec.Struct):
    """A certificate, PEM."""

    certificate: bytes


CertificateCommand = ReadRequest | SignRequest | MakeRequest


class CertificateResult(msgspec.Struct, omit_defaults=True):
    """What a command led to.

    Attributes:
        value: the result; empty after a failure.
        error: why there is none.
        is_invalid: the request is none that can be read.
    """

    value: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    is_invalid: bool = False
