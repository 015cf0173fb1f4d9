"""Bootstrap tokens: with one, a machine without a certificate asks for its first one.

A token is ``ID.SECRET`` and is kept as a Secret of a type of Kubernetes. One that names a node can be used
for that node only; one that is for one use belongs to the first key that it was used with.
"""

import base64
import hmac
import re
from datetime import datetime
from typing import NamedTuple

from grange.api import names, timestamps
from grange.api.kinds.secret import Secret
from grange.api.meta import Document

NAMESPACE = "kube-system"
SECRET_TYPE = "bootstrap.kubernetes.io/token"  # noqa: S105  a type
SECRET_PREFIX = "bootstrap-token-"  # noqa: S105  a prefix of names
USER_PREFIX = "system:bootstrap:"
GROUP = "system:bootstrappers"
NODE_KEY = "node-name"
ONCE_KEY = "usage-once"
USED_BY = "grange.dev/used-by"
"""Annotation of the Secret of a token for one use: the request that used it."""

PUBLIC, CLUSTER_INFO = "kube-public", "cluster-info"
"""Namespace and name of the ConfigMap with the authority's certificate, which everyone may read."""

ID_LENGTH, SECRET_LENGTH = 6, 16
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_TOKEN = re.compile(rf"([a-z0-9]{{{ID_LENGTH}}})\.([a-z0-9]{{{SECRET_LENGTH}}})")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")
_USABLE = "usage-bootstrap-authentication"
_EXTRA_GROUPS_MAX = 16


class BootstrapToken(NamedTuple):
    """What a Secret states about a token.

    Attributes:
        id: the public half.
        secret: the other half.
        expires: when it ends; None for never.
        node: the only node that it is good for; empty for any.
        once: it is good for one key only.
        used_by: the request that used it; empty for none.
        groups: further groups of its user.
        description: for people.
    """

    id: str
    secret: str
    expires: datetime | None = None
    node: str = ""
    once: bool = False
    used_by: str = ""
    groups: tuple[str, ...] = ()
    description: str = ""

    @property
    def user_name(self) -> str:
        """The user that the token stands for."""
        return f"{USER_PREFIX}{self.id}"

    def is_valid(self, now: datetime) -> bool:
        """Whether it has not ended yet."""
        return self.expires is None or now < self.expires

    def matches(self, secret: str) -> bool:
        """Compare the secret half, in constant time."""
        return hmac.compare_digest(self.secret.encode(), secret.encode())


def parse(token: str) -> tuple[str, str] | None:
    """ID and secret of ``ID.SECRET``; None if it is none."""
    found = _TOKEN.fullmatch(token)
    return (found[1], found[2]) if found else None


def secret_name(token_id: str) -> str:
    """The name of the Secret of a token."""
    return f"{SECRET_PREFIX}{token_id}"


def read(secret: Secret) -> BootstrapToken | None:
    """The token of a Secret; None where it holds none that can be used."""
    name = secret.metadata.name
    if secret.type != SECRET_TYPE or secret.metadata.namespace != NAMESPACE:
        return None
    data = {key: _text(value) for key, value in secret.data.items()}
    pair = parse(f"{data.get('token-id')}.{data.get('token-secret')}")
    if pair is None or name != secret_name(pair[0]) or data.get(_USABLE) != "true":
        return None
    expires: datetime | None = None
    if "expiration" in data:
        try:
            expires = timestamps.parse(data["expiration"])
        except timestamps.TimestampError:
            return None
    groups = tuple(filter(None, data.get("auth-extra-groups", "").split(",")))
    if len(groups) > _EXTRA_GROUPS_MAX or not all(map(_EXTRA_GROUP.fullmatch, groups)):
        return None
    node = data.get(NODE_KEY, "")
    if node and names.check_dns_subdomain(node):
        return None
    return BootstrapToken(
        *pair,
        expires=expires,
        node=node,
        once=data.get(ONCE_KEY) == "true",
        used_by=secret.metadata.annotations.get(USED_BY, ""),
        groups=groups,
        description=data.get("description", ""),
    )


def document(token: BootstrapToken) -> Document:
    """The Secret of a token."""
    data = {
        "token-id": token.id,
        "token-secret": token.secret,
        _USABLE: "true",
        "usage-bootstrap-signing": "false",
        "auth-extra-groups": ",".join(token.groups),
        "description": token.description,
        NODE_KEY: token.node,
        ONCE_KEY: "true" if token.once else "",
        "expiration": timestamps.rfc3339(token.expires) if token.expires else "",
    }
    return {
        "metadata": {"name": secret_name(token.id), "namespace": NAMESPACE},
        "type": SECRET_TYPE,
        "stringData": {key: value for key, value in data.items() if value},
    }


def _text(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except ValueError:
        return ""
