"""User data of pools whose machines join another cluster: a template with a few variables."""

import re
from collections.abc import Mapping

from grange.machines.providers.cloud_config import checked_size
from grange.machines.providers.provider import MisconfiguredError

VARIABLES: Mapping[str, str] = {
    "server": "URL of the API server",
    "endpoint": "host and port of the API server",
    "token": "bootstrap token, for one use and this node",
    "caHash": "hash of the public key of the server's authority, sha256:HEX",
    "machine": "name of the Machine, which its node must have",
    "pool": "name of the NodePool",
    "taints": "taints of the node, KEY=VALUE:EFFECT,…",
}
"""What a template can name, ``{{ grange.NAME }}``, and what it stands for."""

TOKEN_GROUPS = tuple(
    f"system:bootstrappers:{tool}:default-node-token" for tool in ("k3s", "kubeadm")
)
"""Groups that tokens for templates have, so that clusters of these tools accept machines with them."""

_PLACE = re.compile(r"\{\{\s*grange\.(\w*)\s*\}\}")


def fill_template(text: str, variables: Mapping[str, str]) -> str:
    """The text with its variables replaced; other braces stay as they are.

    Raises:
        MisconfiguredError: it names a variable that there is not, or the result is too long.
    """
    for found in _PLACE.finditer(text):
        if found[1] not in VARIABLES:
            known = ", ".join(f"grange.{name}" for name in VARIABLES)
            raise MisconfiguredError(
                f"spec.userData: no variable grange.{found[1]}; use one of {known}"
            )
    return checked_size(_PLACE.sub(lambda found: variables[found[1]], text))
