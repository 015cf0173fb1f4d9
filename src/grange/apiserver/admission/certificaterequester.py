"""A request for a certificate records who made it: signers decide by that."""

from typing import NamedTuple

from grange.api.kinds import CERTIFICATESIGNINGREQUEST
from grange.api.meta import Document
from grange.apiserver.admission import Attributes


class _Requester(NamedTuple):
    """The user that a new request names."""

    name: str
    groups: tuple[str, ...]

    def apply(self, spec: Document) -> None:
        """Replace what the request states about its author."""
        for field in ("uid", "extra"):
            spec.pop(field, None)
        spec["username"] = self.name
        spec["groups"] = list(self.groups)


class CertificateRequester:
    """The rule."""

    def admit(self, attempt: Attributes) -> _Requester | None:
        """Have a new request name its author."""
        if attempt.verb != "create" or attempt.info is not CERTIFICATESIGNINGREQUEST:
            return None
        document, user = attempt.document, attempt.user
        if document is None or not isinstance(document.get("spec"), dict):
            return None
        return _Requester(user.name, user.groups)
