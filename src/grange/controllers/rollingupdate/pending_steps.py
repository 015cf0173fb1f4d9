"""Steps of a rollout between two controllers, from when they are decided until they are carried out.

The counts of the controllers are stored in the rollout's status before replicas move. If a reconcile finds other
counts, a move may still be in flight, held by a proxy or a kernel. So both controllers get a new version first:
each write of a move names the version of the controller that it changes (ADR 10).
"""

from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.rollingupdate import Counts, RollingUpdate
from grange.api.meta import preconditions
from grange.client.client import Client
from grange.controllers.rollingupdate.finalizer import Pair

REVOKED_ANNOTATION = "grange.dev/step-revoked-at"
"""Annotation of a controller: its version when a step of a rollout was revoked."""


def counts(pair: Pair) -> Counts:
    """The replicas of the controllers."""
    old, new = (0 if one is None else one.spec.replicas for one in (pair.old, pair.new))
    return Counts(old, new)


def is_pending(update: RollingUpdate, pair: Pair) -> bool:
    """Whether the controllers differ from the last decision."""
    stored = update.status.replicas
    return stored is not None and pair.new is not None and stored != counts(pair)


async def revoke(client: Client, pair: Pair) -> Pair:
    """Make every move fail that was sent before.

    Returns:
        The controllers as they are now.

    Raises:
        Conflict: a controller has changed since it was read; try again.
        ApiError: it is not certain; try again before anything is decided.
    """
    found = []
    for one in (pair.old, pair.new):
        if one is not None:
            meta = one.metadata
            fence = preconditions(meta)
            note = {REVOKED_ANNOTATION: meta.resource_version}
            change = {"metadata": {**fence, "annotations": note}}
            one = await client.patch(  # noqa: PLW2901  the same controller, newer
                REPLICATIONCONTROLLER, meta.name, meta.namespace, patch=change
            )
        found.append(one)
    return Pair(*found)
