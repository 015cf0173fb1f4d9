"""Charges disruption budgets for a pod that several of them cover.

No server evicts such a pod. The controller does what the eviction subresource does for one budget:
it takes one from what each budget allows and names the pod in ``disruptedPods``, by compare-and-set,
and deletes the pod then. So whoever evicts other pods of these budgets spends from the same account.
A charge whose pod stays is given back at once, or by the disruption controller after two minutes.
"""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds import PODDISRUPTIONBUDGET
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.status import ApiError, Cause, Conflict, NotFound, TooManyRequests
from grange.client.client import Client

CAUSE = "DisruptionBudget"

_ATTEMPTS = 5


async def charge(client: Client, pod: Pod, budgets: Sequence[str], now: datetime) -> None:
    """Charge every budget, or none.

    Args:
        client: to the API.
        pod: which is to be deleted.
        budgets: their names, in the namespace of the pod.
        now: wall time.

    Raises:
        TooManyRequests: one of them has nothing left.
        ApiError: the server cannot write.
    """
    charged: list[str] = []
    try:
        for name in budgets:
            await _charge(client, pod, name, now)
            charged.append(name)
    except ApiError:
        await give_back(client, pod, charged)
        raise


async def give_back(client: Client, pod: Pod, budgets: Sequence[str]) -> None:
    """The pod stays: its deletion is not to be waited for."""
    meta = pod.metadata
    patch = {"status": {"disruptedPods": {meta.name: None}}}
    for name in budgets:
        with suppress(ApiError):  # the disruption controller does it after a while
            await client.patch(
                PODDISRUPTIONBUDGET, name, meta.namespace, patch=patch, subresource="status"
            )


async def _charge(client: Client, pod: Pod, name: str, now: datetime) -> None:
    meta = pod.metadata
    for _ in range(_ATTEMPTS):
        try:
            budget: PodDisruptionBudget = await client.get(
                PODDISRUPTIONBUDGET, name, meta.namespace
            )
        except NotFound:
            return  # it covers nothing any more
        status, fence = budget.status, budget.metadata
        if meta.name in status.disrupted_pods:
            return  # an earlier charge without an answer
        if status.observed_generation < fence.generation or status.disruptions_allowed <= 0:
            raise _refused(f"the disruption budget {name} allows no disruption now")
        patch = {
            "metadata": {"uid": fence.uid, "resourceVersion": fence.resource_version},
            "status": {
                "disruptionsAllowed": status.disruptions_allowed - 1,
                "disruptedPods": {meta.name: timestamps.rfc3339(now)},
            },
        }
        with suppress(Conflict, NotFound):
            await client.patch(
                PODDISRUPTIONBUDGET, name, meta.namespace, patch=patch, subresource="status"
            )
            return
    raise _refused(f"the disruption budget {name} is changing")


def _refused(message: str) -> TooManyRequests:
    return TooManyRequests(message, causes=[Cause(CAUSE, message, "")])
