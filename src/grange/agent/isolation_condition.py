"""The condition of a Node that shows what separates its pods; pure."""

from grange.api.pod_fields import ISOLATED

_BY_TIER = {
    "namespaces": (
        "True",
        "Namespaces",
        "containers have their own mounts, processes, IPC and host name; they share the machine's network "
        "on loopback, its kernel, and files of the agent's user outside the data directory",
    ),
    "landlock": (
        "True",
        "Landlock",
        "programs are kept from the data directory and from files of other pods; they see the machine's "
        "processes and share all else with the agent's user",
    ),
    "none": (
        "False",
        "NoIsolation",
        "programs can do what the agent's user can: read keys and tokens and files of other pods, and stop "
        "the agent; start it with --isolation namespaces to see what the kernel refuses",
    ),
}


def condition(isolation: str) -> tuple[str, str, str, str]:
    """Type, status, reason and message.

    Args:
        isolation: of the node, as its label ``grange.dev/isolation`` has it.
    """
    unknown = ("Unknown", "OtherIsolation", f"the runtime names its isolation {isolation}")
    return (ISOLATED, *_BY_TIER.get(isolation, unknown))
