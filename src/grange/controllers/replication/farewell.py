"""What keeps a controller that is being deleted until its records are written.

Changes that are announced in its outbox would be lost with it: what was done would never be told. So
a finalizer is put on it before the first announcement; who owns it when it is deleted writes what is
left to tell, and takes the finalizer away. Nothing else waits for that: its pods stay or go as the
deletion asked.
"""

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.client.client import Client
from grange.controllers.replication import status

FINALIZER = "grange.dev/replication-audit"
"""Keeps a controller that has announced changes until their records are written."""


def is_held(controller: ReplicationController) -> bool:
    """Whether it waits for its records when it is deleted."""
    return FINALIZER in controller.metadata.finalizers


async def hold(client: Client, controller: ReplicationController) -> ReplicationController:
    """Have it wait, from now on.

    Returns:
        The controller as it is then.

    Raises:
        ApiError: it changed meanwhile, or is not there any more.
    """
    return await _write(client, controller, [*controller.metadata.finalizers, FINALIZER])


async def let_go(client: Client, controller: ReplicationController) -> ReplicationController:
    """Everything is recorded: it may go.

    Returns:
        The controller as it is then; others may keep it still.

    Raises:
        ApiError: it changed meanwhile, or is not there any more.
    """
    held = controller.metadata.finalizers
    return await _write(client, controller, [name for name in held if name != FINALIZER])


async def _write(
    client: Client, seen: ReplicationController, finalizers: list[str]
) -> ReplicationController:
    fence = status.fence_of(seen)
    patch: Document = {"metadata": {**fence["metadata"], "finalizers": finalizers}}
    meta = seen.metadata
    return await client.patch(REPLICATIONCONTROLLER, meta.name, meta.namespace, patch=patch)
