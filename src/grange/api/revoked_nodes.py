"""The nodes that are locked out: a ConfigMap with their names and the reasons.

Deleting a Node does not lock its machine out, which registers it again. The list outlives the Node,
and every node that is not on it may read it and none may write it: agents refuse connections of those that are.
"""

from collections.abc import Mapping
from typing import Any

NAMESPACE, NAME = "kube-system", "revoked-nodes"
"""Where the ConfigMap is."""


def refusal(listed: Mapping[str, Any], node: str) -> str:
    """Why a node may do nothing; empty if it is not revoked.

    Args:
        listed: the data of the ConfigMap.
        node: its name.
    """
    if node not in listed:
        return ""
    reason = f" ({listed[node]})" if listed[node] else ""
    return f"node {node} is revoked{reason}: ConfigMap {NAMESPACE}/{NAME} lists it"
