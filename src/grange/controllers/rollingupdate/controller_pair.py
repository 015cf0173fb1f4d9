"""The two controllers of a rollout: how they are read, and how replicas move between them.

The counts of the controllers are stored in the rollout's status before replicas move. If a reconcile finds other
counts, a move may still be in flight, held by a proxy or a kernel. So both controllers get a new version first:
each write of a move names the version of the controller that it changes (ADR 10).
"""

from dataclasses import dataclass

from grange.api import names
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import Counts, RollingUpdate
from grange.api.replication import after_transfer
from grange.api.status import Conflict, NotFound
from grange.client.client import Client
from grange.client.replica_operations import OperationRefused
from grange.client.transfers import complete_transfer, transfer_replicas

REVOKED_ANNOTATION = "grange.dev/step-revoked-at"
"""Annotation of a controller: its version when a step of a rollout was revoked."""


@dataclass(frozen=True, slots=True)
class ControllerPair:
    """The two controllers as they were read; None for one that does not exist."""

    old: ReplicationController | None
    new: ReplicationController | None

    def is_pending(self, update: RollingUpdate) -> bool:
        """Whether the replicas differ from the last decision."""
        stored = update.status.replicas
        counts = (0 if one is None else one.spec.replicas for one in (self.old, self.new))
        return stored is not None and self.new is not None and stored != Counts(*counts)

    def shrinks(self, wanted: Counts) -> bool:
        """Whether a controller gets fewer replicas."""
        counts = ((self.old, wanted.old), (self.new, wanted.new))
        return any(one is not None and count < one.spec.replicas for one, count in counts)


async def read(client: Client, update: RollingUpdate, *, completed: bool = False) -> ControllerPair:
    """The controllers that a rollout began with; later ones of the same names are ignored.

    If asked to, a transfer of replicas that is under way is completed first.
    """
    namespace, status = update.metadata.namespace, update.status
    found: list[ReplicationController | None] = []
    for name, uid in ((update.spec.old, status.old_uid), (update.spec.new, status.new_uid)):
        if name and completed:
            await complete_transfer(client, namespace, name)
        try:
            one = await client.get(REPLICATIONCONTROLLER, name, namespace) if name else None
        except NotFound:
            one = None
        found.append(one if one is not None and uid in {"", one.metadata.uid} else None)
    return ControllerPair(*found)


async def revoke(client: Client, pair: ControllerPair) -> ControllerPair:
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
            change = {"annotations": {REVOKED_ANNOTATION: one.metadata.resource_version}}
            one = await client.patch_as_read(  # noqa: PLW2901  the same controller, newer
                REPLICATIONCONTROLLER, one, {"metadata": change}
            )
        found.append(one)
    return ControllerPair(*found)


async def move(client: Client, update: RollingUpdate, pair: ControllerPair, wanted: Counts) -> None:
    """Bring the controllers to the counts of a decision, at the versions that were read.

    Raises:
        Conflict: a controller was scaled; count again.
    """
    old, new = pair.old, pair.new
    if new is None:
        return
    more = wanted.new - new.spec.replicas
    fewer = 0 if old is None else old.spec.replicas - wanted.old
    if old is None or (more > 0 and fewer < 0):
        await _set(client, new, wanted.new)
        await _set(client, old, wanted.old)
        return
    giver, receiver = (old, new) if more >= 0 and fewer >= 0 else (new, old)
    add, remove = (more, fewer) if giver is old else (-fewer, -more)
    if add < 0:  # both shrink
        await _set(client, old, wanted.old)
        await _set(client, new, wanted.new)
        return
    versions = (giver.metadata.resource_version, receiver.metadata.resource_version)
    try:
        await transfer_replicas(
            client,
            update.metadata.namespace,
            giver.metadata.name,
            receiver.metadata.name,
            transfer_id=names.digest(update.metadata.uid, *versions),
            add=add,
            remove=remove,
            giver_start=giver.spec.replicas,
            receiver_start=receiver.spec.replicas,
        )
    except OperationRefused as error:
        raise Conflict(str(error)) from error  # it was scaled: count again


async def _set(client: Client, controller: ReplicationController | None, replicas: int) -> None:
    """Set one count, at the version that was read."""
    if controller is None or controller.spec.replicas == replicas:
        return
    notes = {"annotations": after_transfer(replicas)}
    change = {"metadata": notes, "spec": {"replicas": replicas}}
    await client.patch_as_read(REPLICATIONCONTROLLER, controller, change)
