"""CertificateSigningRequest: asks the authority of the cluster for a certificate."""

import msgspec

from grange.api.fields import lookup, readers
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.content import decode_base64

NODE_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
"""Signer of the certificates with which nodes call the API."""

NODE_SERVING = "kubernetes.io/kubelet-serving"
"""Signer of the certificates with which nodes are called."""

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
CLIENT_USAGE, SERVING_USAGE = "client auth", "server auth"
SIGNATURE_USAGE, ENCIPHERMENT_USAGE = "digital signature", "key encipherment"
_USAGES = (
    "signing",
    SIGNATURE_USAGE,
    "content commitment",
    ENCIPHERMENT_USAGE,
    "key agreement",
    "data encipherment",
    "cert sign",
    "crl sign",
    "encipher only",
    "decipher only",
    "any",
    SERVING_USAGE,
    CLIENT_USAGE,
    "code signing",
    "email protection",
    "s/mime",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "timestamping",
    "ocsp signing",
    "microsoft sgc",
    "netscape sgc",
)
REQUEST_MAX_BYTES = 16 * 1024
_SECONDS_MIN = 600
_BEGIN = b"-----BEGIN CERTIFICATE REQUEST-----"
_DECISIONS = (APPROVED, DENIED)


class CertificateSigningRequestSpec(View, frozen=True):
    """What is asked for; ``username`` and ``groups`` are set by the server."""

    request: str = ""
    signer_name: str = ""
    usages: tuple[str, ...] = ()
    username: str = ""
    groups: tuple[str, ...] = ()
    expiration_seconds: int | None = None


class CertificateSigningRequestStatus(View, frozen=True):
    """Decision and certificate; both are base64 or empty."""

    conditions: tuple[Condition, ...] = ()
    certificate: str = ""


class CertificateSigningRequest(Resource, frozen=True):
    """A certificate that a client asks a signer for."""

    spec: CertificateSigningRequestSpec = msgspec.field(
        default_factory=CertificateSigningRequestSpec
    )
    status: CertificateSigningRequestStatus = msgspec.field(
        default_factory=CertificateSigningRequestStatus
    )


def has_condition(request: CertificateSigningRequest, *types: str) -> bool:
    """Whether a condition of one of these types is True."""
    found = request.status.conditions
    return any(item.type in types and item.status == "True" for item in found)


def _decisions(document: Document | None) -> set[str]:
    listed = lookup(document or {}, "status.conditions") or ()
    return {item.get("type", "") for item in listed if item.get("type") in _DECISIONS}


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    if old is None:
        _validate_spec(spec, faults)
    elif spec != (old.get("spec") or {}):
        faults.forbidden("spec", "may not be changed; create another request")
    before, now = _decisions(old), _decisions(document)
    at = "status.conditions"
    for missing in sorted(before - now):
        faults.forbidden(at, f"the condition {missing} may not be removed")
    if len(now) > 1:
        faults.forbidden(at, "Approved and Denied conditions are mutually exclusive")
    for index, item in enumerate(lookup(document, at) or ()):
        if item.get("type") in (*_DECISIONS, FAILED) and item.get("status") != "True":
            faults.not_supported(f"{at}[{index}].status", item.get("status"), ("True",))
    return faults.causes


def _validate_spec(spec: Document, faults: Faults) -> None:
    request = decode_base64(spec.get("request") or "")
    at = "spec.request"
    if not request:
        faults.required(at, "a PEM encoded PKCS#10 request, in base64")
    elif len(request) > REQUEST_MAX_BYTES:
        faults.too_long(at, f"may not be more than {REQUEST_MAX_BYTES} bytes")
    elif not request.lstrip().startswith(_BEGIN):
        faults.invalid(at, "", "must be a PEM block of type CERTIFICATE REQUEST")
    signer = spec.get("signerName") or ""
    domain, slash, path = signer.partition("/")
    if not (slash and path and "." in domain):
        faults.invalid("spec.signerName", signer, "must be a domain, a slash and a path")
    usages = spec.get("usages") or ()
    if not usages:
        faults.required("spec.usages")
    for index, usage in enumerate(usages):
        if usage not in _USAGES:
            faults.not_supported(f"spec.usages[{index}]", usage, _USAGES)
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SECONDS_MIN:
        faults.invalid("spec.expirationSeconds", seconds, f"may not be less than {_SECONDS_MIN}")


def _state(document: Document, now: float) -> cells.Cell:
    found = {item.get("type") for item in lookup(document, "status.conditions") or ()}
    words = [word for word in (APPROVED, DENIED, FAILED) if word in found] or ["Pending"]
    return ",".join((*words, *(("Issued",) if lookup(document, "status.certificate") else ())))


CERTIFICATESIGNINGREQUEST = KindInfo(
    group="certificates.k8s.io",
    version="v1",
    kind="CertificateSigningRequest",
    plural="certificatesigningrequests",
    view=CertificateSigningRequest,
    schema="io.k8s.api.certificates.v1.CertificateSigningRequest",
    namespaced=False,
    short_names=("csr",),
    subresources=("approval",),
    columns=(
        Column("Age", cells.age, description="Since it was created."),
        Column("SignerName", cells.text("spec.signerName"), description="Who is to sign it."),
        Column("Requestor", cells.text("spec.username"), description="Who asked for it."),
        Column(
            "RequestedDuration",
            cells.text("spec.expirationSeconds"),
            description="For how many seconds the certificate is to be valid.",
        ),
        Column("Condition", _state, description="Whether it was approved, and signed."),
    ),
    fields=readers("spec.signerName"),
    validate=_validate,
)
