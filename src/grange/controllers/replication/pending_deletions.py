"""Deletions of pods, from before they are sent until their outcome is certain.

A request that has left the machine cannot be called back: a proxy or a kernel may deliver it long
after its sender has lost the controller, or has changed its plan. Each deletion is therefore recorded
in the controller's status, by compare-and-set, before it is sent, and names the version of the pod
that is recorded. Before a pass takes anything else away it makes every deletion that it finds recorded
fail, by a write on the pod, unless the pod has changed or is gone already. So no deletion takes effect
that the minimum has not been counted with, however late it arrives (ADR 10).
"""

from collections.abc import Collection
from contextlib import suppress

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import PendingDeletion
from grange.api.status import Conflict, NotFound
from grange.client.client import Client
from grange.controllers.replication.plan import Plan
from grange.reconcile.control import slow_start

KEPT_ANNOTATION = "grange.dev/deletion-revoked-at"
"""Pod annotation: the version of the pod that a revoked deletion named."""


def of(plan: Plan) -> tuple[PendingDeletion, ...]:
    """The deletions of a plan."""
    metas = [item.pod.metadata for item in plan.delete]
    return tuple(PendingDeletion(meta.name, meta.uid, meta.resource_version) for meta in metas)


def uncertain(plan: Plan, doubtful: Collection[str]) -> tuple[PendingDeletion, ...]:
    """Those deletions of a plan whose outcome is not certain.

    Args:
        plan: which was carried out.
        doubtful: uids of the pods for which no answer came.
    """
    return tuple(item for item in of(plan) if item.uid in doubtful)


async def revoke(client: Client, controller: ReplicationController) -> dict[str, Pod]:
    """Make every recorded deletion fail that has not taken effect.

    Afterwards each of the pods is gone, on its way out, or has another version than the one that
    its deletion names.

    Returns:
        The pods that were changed for that, by uid, as they are now.

    Raises:
        ApiError: not all of them are certain; nothing else may be taken away, try again.
    """
    changed: dict[str, Pod] = {}

    async def change(item: PendingDeletion) -> None:
        # The value is new at each version, so this is never a write that changes nothing.
        note = {KEPT_ANNOTATION: item.resource_version}
        fence = {"uid": item.uid, "resourceVersion": item.resource_version}
        with suppress(NotFound, Conflict):  # gone, or another version already
            changed[item.uid] = await client.patch(
                POD,
                item.pod,
                controller.metadata.namespace,
                patch={"metadata": {**fence, "annotations": note}},
            )

    error = await slow_start(controller.status.pending_deletions, change)
    if error is not None:
        raise error
    return changed
