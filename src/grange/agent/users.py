"""The user that a container runs as, from its security context; pure.

An agent that is root runs programs as any user. Another one runs them as itself only, and a container
that asks for another user is not created, rather than run with other rights than it asks for.
"""

from collections.abc import Callable
from typing import NamedTuple

from grange.agent.errors import NotCreatableError
from grange.api.kinds.pod import Container, Pod


class RunAsUser(NamedTuple):
    """A user and a group of the machine, by number."""

    uid: int
    gid: int


def asked(pod: Pod, container: Container, field: str) -> int | bool | None:
    """A field of the container's security context, or of the pod's where that has none."""
    for context in (container.security_context, pod.spec.security_context):
        found: int | bool | None = (context or {}).get(field)
        if found is not None:
            return found
    return None


def asks_for_users(pod: Pod) -> bool:
    """Whether any container names a user or a group."""
    everyone = (*pod.spec.init_containers, *pod.spec.containers)
    return any(
        asked(pod, item, field) is not None
        for item in everyone
        for field in ("runAsUser", "runAsGroup")
    )


def user_of(
    pod: Pod, container: Container, own: RunAsUser, group_of: Callable[[int], int]
) -> RunAsUser | None:
    """The user that the container runs as; None for the agent's own user.

    Args:
        pod: whose security context holds where the container has none.
        container: what runs.
        own: the agent's.
        group_of: the primary group of a user of the machine.

    Raises:
        NotCreatableError: it asks for what this agent cannot give, or for what it forbids itself.
    """
    where = f'container "{container.name}"'
    uid, gid = asked(pod, container, "runAsUser"), asked(pod, container, "runAsGroup")
    wanted = own.uid if uid is None else int(uid)
    if asked(pod, container, "runAsNonRoot") and wanted == 0:
        raise NotCreatableError(
            f"{where}: runAsNonRoot is set and it would run as root; set runAsUser to another user"
        )
    group = int(gid) if gid is not None else own.gid if wanted == own.uid else group_of(wanted)
    if (wanted, group) == own:
        return None
    if own.uid != 0:
        field = f"runAsUser {wanted}" if wanted != own.uid else f"runAsGroup {group}"
        raise NotCreatableError(
            f"{where}: {field} cannot be given: programs run as the agent's own user {own.uid} "
            f"and group {own.gid} here; leave the field out, or run the agent as root"
        )
    return RunAsUser(wanted, group)
