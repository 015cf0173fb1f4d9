"""Operations that a controller's annotations ask of its owner (see ``client.replica_operations``).

Pods to delete together with the decrement that made them superfluous, and a transfer of replicas that its
initiator did not finish.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grange.api import conditions
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.replication import RECEIVED_ANNOTATION, BadIntent, pods_to_remove, transfer_of
from grange.api.status import Conflict, NotFound
from grange.base.log import Logger
from grange.client.client import Client
from grange.client.transfers import complete_transfer, prune
from grange.controllers.replication import deletion_budgets
from grange.controllers.replication.inputs import Inputs

_RETRY_S = (
    5.0  # the malformed annotation may be another controller's, whose events do not wake this one
)


@dataclass(frozen=True, slots=True)
class FollowedOperations:
    """The result of the transfers of replicas in a controller's annotations.

    Attributes:
        finished: a transfer was finished: the listers are out of date, and the reconcile ends.
        written: the controller without its notes of finished transfers, if any were removed.
        malformed: which annotation is malformed (edited by a user); empty for none. It blocks this operation
            only: the reconcile goes on.
    """

    finished: bool = False
    written: ReplicationController | None = None
    malformed: str = ""

    @property
    def changed(self) -> bool:
        """Whether the reconcile must wait for the events of what was written."""
        return self.finished or self.written is not None

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next attempt; None for none."""
        return _RETRY_S if self.malformed else None


async def follow(
    controller: ReplicationController, *, client: Client, log: Logger
) -> FollowedOperations:
    """Finish a transfer of replicas that is under way, or remove the notes of finished ones.

    Raises:
        GrangeError: a request failed; to be tried again.
    """
    meta, malformed = controller.metadata, ""
    try:
        order = transfer_of(controller)
        if order is not None and not order.refused:
            await complete_transfer(client, meta.namespace, meta.name)
            return FollowedOperations(finished=True)
    except BadIntent as error:
        malformed = str(error)
    written: ReplicationController | None = None
    try:
        if has_received(controller):
            written = await prune(client, controller)
    except BadIntent as error:
        malformed = malformed or str(error)
    except (Conflict, NotFound):
        pass  # its initiator removes the note, or the event of the change is on its way
    reconciled = conditions.find(controller.status.conditions, "Reconciled")
    if malformed and (reconciled is None or reconciled.message != malformed):  # log it once
        log.warning("malformed annotation ignored", key=str(controller.key), error=malformed)
    return FollowedOperations(written=written, malformed=malformed)


def has_received(controller: ReplicationController) -> bool:
    """Whether it has notes of transfers."""
    return bool(controller.metadata.annotations.get(RECEIVED_ANNOTATION))


def marked_for_deletion(controller: ReplicationController, owned: Sequence[Pod]) -> list[Pod]:
    """The active pods that users marked for deletion; none while it is paused or being deleted."""
    if controller.spec.paused or controller.metadata.deletion_timestamp:
        return []
    marked = pods_to_remove(controller)
    return [pod for pod in owned if pod.metadata.uid in marked and pods.is_active(pod)]


def granted(inputs: Inputs, minimum: int) -> list[Pod]:
    """Those of the marked pods that may be deleted now.

    Args:
        inputs: with all pods of the controller.
        minimum: available pods that must stay.
    """
    account = deletion_budgets.Budget(inputs.available, minimum)
    marked = marked_for_deletion(inputs.controller, inputs.owned)
    return account.granted(marked, len(marked))


def without_marked(inputs: Inputs) -> Inputs:
    """The inputs without the pods that are marked for deletion."""
    marked = marked_for_deletion(inputs.controller, inputs.owned)
    if not marked:
        return inputs
    available = inputs.available - {pod.metadata.uid for pod in marked}
    return replace(inputs, available=available).hiding(marked)
