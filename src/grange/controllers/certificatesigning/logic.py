"""Which requests for certificates are approved, and what is signed for them.

A bootstrap token may ask for the client certificate of a node whose name is free, and a node for new
ones in its name. A serving certificate holds one name, in a domain of nodes: no node can
stand in for the API server.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api import bootstrap_tokens, names, timestamps
from grange.api.bootstrap_tokens import BootstrapToken
from grange.api.certificate_requests import CertificateTemplate, RequestFacts
from grange.api.kinds.certificatesigningrequest import (
    APPROVED,
    CLIENT_USAGE,
    DENIED,
    ENCIPHERMENT_USAGE,
    FAILED,
    NODE_CLIENT,
    NODE_SERVING,
    SERVING_USAGE,
    SIGNATURE_USAGE,
    CertificateSigningRequest,
    has_condition,
)
from grange.api.kinds.node import Node, is_ready
from grange.api.meta import Document
from grange.api.node_identity import NODE_PREFIX, NODES, serving_name

LIFE_MAX = timedelta(days=365)
_LIFE_MIN = timedelta(minutes=10)
_COMMON_USAGES = frozenset({SIGNATURE_USAGE, ENCIPHERMENT_USAGE})
_USAGES = {NODE_CLIENT: CLIENT_USAGE, NODE_SERVING: SERVING_USAGE}
_KEPT_DECIDED = timedelta(hours=1)  # as in Kubernetes
_KEPT_PENDING = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Approve:
    """The request is approved by rule."""

    message: str


@dataclass(frozen=True, slots=True)
class Deny:
    """The request is refused; the agent reports the message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Unsignable:
    """The signer cannot sign such a request, approved or not."""

    message: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The decision is up to an administrator."""


Decision = Approve | Deny | Unsignable | Leave


@dataclass(frozen=True, slots=True)
class JoinInputs:
    """What a decision looks at besides the request.

    Attributes:
        node: the node of the name that is asked for; None if there is none.
        token: of the requester; None if it is no bootstrap token, or has been deleted.
        reserved: names that no machine may join with.
        revoked: why the node may not join; empty if it may.
        now: wall time.
    """

    node: Node | None
    token: BootstrapToken | None
    reserved: Collection[str]
    revoked: str
    now: datetime


def is_open(request: CertificateSigningRequest) -> bool:
    """Whether something is to be done for a request."""
    if request.spec.signer_name not in _USAGES or request.status.certificate:
        return False
    return not has_condition(request, DENIED, FAILED)


def node_name(facts: RequestFacts) -> str:
    """The node that a request is for; empty if its subject names none."""
    if not facts.common_name.startswith(NODE_PREFIX):
        return ""
    return facts.common_name.removeprefix(NODE_PREFIX)


def token_id(request: CertificateSigningRequest) -> str:
    """The bootstrap token that made a request; empty if another user did."""
    user = request.spec.username
    if not user.startswith(bootstrap_tokens.USER_PREFIX):
        return ""
    if bootstrap_tokens.GROUP not in request.spec.groups:
        return ""
    return user.removeprefix(bootstrap_tokens.USER_PREFIX)


def fault(request: CertificateSigningRequest, facts: RequestFacts) -> str:
    """Why a request cannot be signed; empty if it can."""
    signer, node = request.spec.signer_name, node_name(facts)
    usages = set(request.spec.usages)
    if not node or names.check_dns_subdomain(node) is not None:
        return f"the common name must be {NODE_PREFIX} and the name of a node"
    if facts.organizations != (NODES,):
        return f"the organization must be {NODES}"
    if _USAGES[signer] not in usages or usages - _COMMON_USAGES - {_USAGES[signer]}:
        listed = ", ".join(sorted(_COMMON_USAGES))
        return f"spec.usages: must be {_USAGES[signer]} and of {listed}"
    wanted = (serving_name(node),) if signer == NODE_SERVING else ()
    if facts.dns_names != wanted or facts.has_more:
        allowed = f"only the alternative name {wanted[0]}" if wanted else "no alternative names"
        return f"a certificate of {signer} has {allowed}"
    return ""


def decide(request: CertificateSigningRequest, facts: RequestFacts, inputs: JoinInputs) -> Decision:
    """The decision on an open request that is neither approved nor denied."""
    if why := fault(request, facts):
        return Unsignable(why)
    if inputs.revoked:
        return Deny("NodeRevoked", f"{inputs.revoked}; join with another name, --node-name")
    if request.spec.username == facts.common_name and NODES in request.spec.groups:
        return Approve("a node may renew its certificates")
    if request.spec.signer_name == NODE_CLIENT and token_id(request):
        return _decide_join(request, node_name(facts), inputs)
    return Leave()


def _decide_join(request: CertificateSigningRequest, name: str, inputs: JoinInputs) -> Decision:
    token = inputs.token
    if token is None or not token.is_valid(inputs.now):
        return Deny("TokenExpired", "the token has ended; create one with grange token create")
    if token.node and token.node != name:
        message = f"the token is for the node {token.node}, not for {name}; create one for it"
        return Deny("TokenOfOtherNode", message)
    if token.once and token.used_by not in ("", request.metadata.name):
        message = "the token is for one use and was used; create one with grange token create"
        return Deny("TokenUsed", message)
    if name in inputs.reserved or (inputs.node is not None and is_ready(inputs.node)):
        message = f"the cluster has a live node {name}; choose another name with --node-name"
        return Deny("NodeNameTaken", message)
    return Approve("a machine may join with a bootstrap token")


def template(request: CertificateSigningRequest, facts: RequestFacts) -> CertificateTemplate:
    """What is signed for a request without fault."""
    asked = request.spec.expiration_seconds
    life = LIFE_MAX if asked is None else min(timedelta(seconds=asked), LIFE_MAX)
    return CertificateTemplate(
        common_name=facts.common_name,
        organization=NODES,
        dns_names=facts.dns_names,
        is_client=request.spec.signer_name == NODE_CLIENT,
        life=max(life, _LIFE_MIN),
    )


def condition(kind: str, reason: str, message: str, now: datetime) -> Document:
    """A condition of a request."""
    stamp = timestamps.rfc3339(now)
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastUpdateTime": stamp,
        "lastTransitionTime": stamp,
    }


def removal_time(request: CertificateSigningRequest) -> datetime | None:
    """When a request is old enough to be removed; None if its age is not known."""
    created = request.metadata.creation_timestamp
    if not created:
        return None
    decided = has_condition(request, APPROVED, DENIED, FAILED)
    try:
        return timestamps.parse(created) + (_KEPT_DECIDED if decided else _KEPT_PENDING)
    except timestamps.TimestampError:
        return None
