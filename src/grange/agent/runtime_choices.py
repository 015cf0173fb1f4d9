"""What ``--isolation`` and ``--network`` may be. It imports nothing, because ``grange up --help`` needs it."""

NO_ISOLATION, LANDLOCK, NAMESPACES = "none", "landlock", "namespaces"
TIERS = (NAMESPACES, LANDLOCK, NO_ISOLATION)
"""What may isolate containers, the most effective first."""

SHARED, REPLICAS, ADDRESSES, NETNS = "shared", "replicas", "addresses", "netns"
"""What a program may get that listens on all addresses."""

AUTO = "auto"
"""The first that the kernel allows."""

ISOLATION = (NO_ISOLATION, LANDLOCK, NAMESPACES, AUTO)
NETWORKS = (AUTO, REPLICAS, ADDRESSES, NETNS, SHARED)
