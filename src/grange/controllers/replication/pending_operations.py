"""Orders that were put down on a controller for whoever owns it.

Pods that were ordered to go with the decrement that makes room for their absence, and a transfer of
replicas that whoever gave it did not live to finish.
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
from grange.client.transfers import prune, settle
from grange.controllers.replication import budget
from grange.controllers.replication.inputs import Inputs

_LOOK_AGAIN_S = 5.0  # what is to be mended may be another controller's, whose news wakes nobody


@dataclass(frozen=True, slots=True)
class Followed:
    """What became of the orders about transfers of replicas that a controller bears.

    Attributes:
        finished: one was finished: what the caches show is out of date, and the pass ends.
        written: the controller without notes of transfers that are over, for the next pass, if any
            was taken away.
        unreadable: what somebody's hand spoiled, in words; empty for nothing. It concerns this order
            and nothing else: the pass goes on.
    """

    finished: bool = False
    written: ReplicationController | None = None
    unreadable: str = ""

    @property
    def changed(self) -> bool:
        """Whether the pass has to wait for the news of what was written."""
        return self.finished or self.written is not None

    @property
    def wait_s(self) -> float | None:
        """Seconds until it is worth another look without news; None where it is not."""
        return _LOOK_AGAIN_S if self.unreadable else None


async def follow(controller: ReplicationController, *, client: Client, log: Logger) -> Followed:
    """Finish a transfer of replicas that is under way, or forget those that are over.

    Raises:
        GrangeError: a request failed; to be tried again.
    """
    unreadable = ""
    try:
        if await _finish_transfer(controller, client):
            return Followed(finished=True)
    except BadIntent as error:
        unreadable = str(error)
    forgotten: ReplicationController | None = None
    try:
        forgotten = await _forget_transfers(controller, client)
    except BadIntent as error:
        unreadable = unreadable or str(error)
    if unreadable and not _is_told(controller, unreadable):  # else each look would say it again
        log.warning("order ignored", key=str(controller.key), error=unreadable)
    return Followed(written=forgotten, unreadable=unreadable)


def _is_told(controller: ReplicationController, unreadable: str) -> bool:
    said = conditions.find(controller.status.conditions, "Reconciled")
    return said is not None and said.message == unreadable


async def _finish_transfer(controller: ReplicationController, client: Client) -> bool:
    """Whether there was one."""
    order = transfer_of(controller)
    if order is None or order.refused:
        return False
    await settle(client, controller.metadata.namespace, controller.metadata.name)
    return True


async def _forget_transfers(
    controller: ReplicationController, client: Client
) -> ReplicationController | None:
    if not has_received(controller):
        return None
    try:
        return await prune(client, controller)
    except (Conflict, NotFound):
        return None  # whoever carried it out does it, or the news is on its way


def has_received(controller: ReplicationController) -> bool:
    """Whether it bears notes of transfers."""
    return bool(controller.metadata.annotations.get(RECEIVED_ANNOTATION))


def marked_for_deletion(controller: ReplicationController, owned: Sequence[Pod]) -> list[Pod]:
    """The active pods that were ordered to go; none while it is paused or goes."""
    if controller.spec.paused or controller.metadata.deletion_timestamp:
        return []
    going = pods_to_remove(controller)
    return [pod for pod in owned if pod.metadata.uid in going and pods.is_active(pod)]


def granted(inputs: Inputs, minimum: int) -> list[Pod]:
    """Those of the pods that were ordered to go that may go now: the minimum holds for orders, too.

    Args:
        inputs: with all pods of the controller.
        minimum: available pods that must stay.
    """
    account = budget.Budget(inputs.available or frozenset(), minimum)
    going = marked_for_deletion(inputs.controller, inputs.owned)
    return account.granted(going, len(going))


def without_marked(inputs: Inputs) -> Inputs:
    """The inputs in which nobody counts on the pods that were ordered to go."""
    going = marked_for_deletion(inputs.controller, inputs.owned)
    if not going:
        return inputs
    available = inputs.available
    if available is not None:
        available = available - {pod.metadata.uid for pod in going}
    return replace(inputs, available=available).hiding(going)
