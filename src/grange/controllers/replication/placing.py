"""Where the pods of a controller may be, by the templates that they are made from.

While a rollout is under way there are two: pods of the old side are made anew from the last template
that was completed, which may ask for other nodes than the one that is tried. After a rollback the
template that failed says nothing any more.
"""

from collections.abc import Sequence

from grange.api.kinds.replicationcontroller import ReplicationController
from grange.controllers.replication.scheduling import Look, Scheduler
from grange.controllers.shared import pod_identity

Places = tuple[Sequence[str], Sequence[str] | None]
"""Names of nodes for new pods, and for those of earlier templates; None for the same."""


async def asked(scheduler: Scheduler, controller: ReplicationController) -> Places:
    """The eligible nodes of a controller, for a pass.

    Args:
        scheduler: knows the nodes.
        controller: with what is written down of its rollout.

    Raises:
        SelectorError, msgspec.ValidationError: a template cannot be read.
        GrangeError: nothing is known of the nodes.
    """
    present, stable = pod_identity.sources(controller)
    places = await scheduler.eligible_nodes(present)
    return places, None if stable is None else await scheduler.eligible_nodes(stable)


def seen(look: Look, controller: ReplicationController) -> Places:
    """The same by one look, for many controllers.

    Args:
        look: what there is.
        controller: with what is written down of its rollout.

    Raises:
        SelectorError, msgspec.ValidationError: a template cannot be read.
    """
    present, stable = pod_identity.sources(controller)
    return look(present), None if stable is None else look(stable)
