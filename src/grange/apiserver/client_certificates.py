"""Client certificates as credentials: TLS has verified them, this module reads whom they name.

The authority signs for nodes and for the API server itself; any other subject is no user, so that no
certificate makes an administrator.
"""

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple

from grange.api.http import User
from grange.api.node_identity import API_SERVER, API_SERVERS, NODE_PREFIX, NODES

_AUTHENTICATED = "system:authenticated"


class PeerIdentity(NamedTuple):
    """Whom a verified certificate names.

    Attributes:
        user: the user.
        until: when the certificate ends, in seconds since the epoch.
    """

    user: User
    until: float


def identify(certificate: Mapping[str, Any] | None) -> PeerIdentity | None:
    """The identity of a peer.

    Args:
        certificate: as ``ssl`` gives a certificate that it has verified; None or empty for none.
    """
    if not certificate:
        return None
    subject = [pair for part in certificate.get("subject") or () for pair in part]
    names = [value for field, value in subject if field == "commonName"]
    groups = [value for field, value in subject if field == "organizationName"]
    if len(names) != 1 or len(groups) != 1 or len(subject) != 2:
        return None
    name, group = str(names[0]), str(groups[0])
    is_node = group == NODES and name.startswith(NODE_PREFIX) and name != NODE_PREFIX
    if not is_node and (name, group) != (API_SERVER, API_SERVERS):
        return None
    user = User(name, (group, _AUTHENTICATED))
    return PeerIdentity(user, ssl.cert_time_to_seconds(str(certificate["notAfter"])))


def node_of(user: User) -> str:
    """The name of the node that the user is; empty for all others."""
    if NODES not in user.groups or not user.name.startswith(NODE_PREFIX):
        return ""
    return user.name.removeprefix(NODE_PREFIX)
