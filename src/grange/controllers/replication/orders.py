"""Orders that were put down on a controller for whoever owns it.

Pods that were ordered to go with the decrement that makes room for their absence, and a transfer of
replicas that whoever gave it did not live to finish.
"""

from collections.abc import Sequence
from dataclasses import replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.replication import RECEIVED_ANNOTATION, BadIntent, doomed, transfer_of
from grange.api.status import Conflict, NotFound
from grange.base.log import Logger
from grange.client.client import Client
from grange.client.transfers import settle, tidy
from grange.controllers.replication import budget, logic


async def finish_transfer(
    controller: ReplicationController, *, client: Client, log: Logger
) -> bool:
    """Finish a transfer of replicas that is under way.

    Returns:
        Whether there was one: what the caches show is out of date then, and the pass ends.

    Raises:
        GrangeError: a write failed; to be tried again.
    """
    meta = controller.metadata
    try:
        order = transfer_of(controller)
    except BadIntent as error:  # somebody's hand: it concerns this order and nothing else
        log.warning("order ignored", key=str(controller.key), error=error)
        return False
    if order is None or order.refused:
        return False
    await settle(client, meta.namespace, meta.name)
    return True


async def forget_transfers(
    controller: ReplicationController, *, client: Client, log: Logger
) -> ReplicationController | None:
    """Take away the notes of replicas received in transfers that are over.

    Returns:
        The controller as it is then, for the next pass; None if nothing was written.

    Raises:
        GrangeError: a request failed; to be tried again.
    """
    if not has_received(controller):
        return None
    try:
        return await tidy(client, controller)
    except BadIntent as error:  # as above
        log.warning("note ignored", key=str(controller.key), error=error)
    except (Conflict, NotFound):
        pass  # whoever carried it out does it, or the news is on its way
    return None


def has_received(controller: ReplicationController) -> bool:
    """Whether it bears notes of transfers."""
    return bool(controller.metadata.annotations.get(RECEIVED_ANNOTATION))


def condemned(controller: ReplicationController, owned: Sequence[Pod]) -> list[Pod]:
    """The active pods that were ordered to go; none while it is paused or goes."""
    if controller.spec.paused or controller.metadata.deletion_timestamp:
        return []
    going = doomed(controller)
    return [pod for pod in owned if pod.metadata.uid in going and logic.is_active(pod)]


def granted(situation: logic.Situation, minimum: int) -> list[Pod]:
    """Those of the pods that were ordered to go that may go now: the minimum holds for orders, too.

    Args:
        situation: with all pods of the controller.
        minimum: available pods that must stay.
    """
    account = budget.Budget(situation.available or frozenset(), minimum)
    going = condemned(situation.controller, situation.owned)
    return account.granted(going, len(going))


def obeyed(situation: logic.Situation) -> logic.Situation:
    """The situation once the pods that were ordered to go are gone: nobody counts on them."""
    going = condemned(situation.controller, situation.owned)
    if not going:
        return situation
    available = situation.available
    if available is not None:
        available = available - {pod.metadata.uid for pod in going}
    owned = [pod for pod in situation.owned if pod not in going]
    return replace(situation, owned=owned, available=available)
