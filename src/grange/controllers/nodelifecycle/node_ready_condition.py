"""``Ready=Unknown`` on nodes that fall silent; a node that reports again sets the condition itself."""

import datetime as dt

from grange.api import conditions, timestamps
from grange.api.kinds.node import Node
from grange.api.meta import Document, preconditions


def is_unknown(node: Node) -> bool:
    """Whether the node's Ready condition is Unknown."""
    ready = conditions.find(node.status.conditions, "Ready")
    return ready is not None and ready.status == "Unknown"


def unknown(node: Node, now: dt.datetime) -> Document:
    """The strategic patch of the status that sets ``Ready=Unknown``, fenced by the version of the node."""
    ready = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "The node's agent has stopped renewing its lease.",
        "lastTransitionTime": timestamps.rfc3339(now),
    }
    return {"metadata": preconditions(node.metadata), "status": {"conditions": [ready]}}
