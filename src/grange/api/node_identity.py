"""How nodes and the API server are named in certificates."""

NODE_PREFIX, NODES = "system:node:", "system:nodes"
"""Prefix of a node's user name, and the group of all nodes."""

API_SERVER, API_SERVERS = "system:apiserver", "system:apiservers"
"""User and group of the API server, as it calls the agents."""

SERVING_DOMAIN = "nodes.cluster.local"


def serving_name(node: str) -> str:
    """The name in the serving certificate of a node's agent; no API server is called so."""
    return f"{node}.{SERVING_DOMAIN}"
