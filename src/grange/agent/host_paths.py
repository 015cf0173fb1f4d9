"""Which paths of the machine pods may have as volumes."""

import os
from collections.abc import Iterable, Sequence

from grange.agent.container_runtime import VolumePlan
from grange.agent.errors import NotCreatableError


def check(plans: Iterable[VolumePlan], allowed: Sequence[str]) -> None:
    """Check that every ``hostPath`` lies in an allowed directory, wherever links lead.

    Args:
        plans: the volumes of a pod.
        allowed: absolute paths; empty for no restriction.

    Raises:
        NotCreatableError: one does not.
    """
    if not allowed:
        return
    places = [os.path.realpath(place) for place in allowed]
    for plan in plans:
        if not plan.host_path:
            continue
        path = os.path.realpath(plan.host_path)
        if not any(os.path.commonpath((path, place)) == place for place in places):
            raise NotCreatableError(
                f'volume "{plan.name}": hostPath {plan.host_path} is not allowed on this node; use a '
                f"path below {', '.join(allowed)}, or start the node with --allow-host-path",
                lasting=True,
            )
