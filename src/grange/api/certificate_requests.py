"""What a PKCS#10 request asks for, what is signed for it, and who signs."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from grange.base.errors import GrangeError


class InvalidRequest(GrangeError):
    """A request holds no PKCS#10 request with a valid signature; the message has the reason."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """What a PKCS#10 request asks for.

    Attributes:
        common_name: of the subject; empty for none.
        organizations: of the subject.
        dns_names: alternative names.
        has_more: it asks for other alternative names, subject fields or extensions.
    """

    common_name: str
    organizations: tuple[str, ...] = ()
    dns_names: tuple[str, ...] = ()
    has_more: bool = False


@dataclass(frozen=True, slots=True)
class CertificateTemplate:
    """What a certificate states besides the key.

    Attributes:
        common_name: of the subject.
        organization: of the subject.
        dns_names: alternative names.
        is_client: for clients, else for servers.
        life: how long it is valid.
    """

    common_name: str
    organization: str
    dns_names: tuple[str, ...]
    is_client: bool
    life: timedelta


class CertificateSigner(Protocol):
    """Reads requests, and signs with the key of the authority."""

    def start(self) -> None:
        """A request is about to come: load what it needs. Idempotent.

        Raises:
            GrangeError: it cannot be loaded.
        """

    async def read(self, request: bytes) -> RequestFacts:
        """What a PEM request asks for.

        Raises:
            InvalidRequest: it is none, or its signature is not that of its key.
        """

    async def sign(self, request: bytes, template: CertificateTemplate, now: datetime) -> bytes:
        """A PEM certificate of the template for the key of a request."""
