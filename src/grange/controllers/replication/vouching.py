"""Asks the server before an available pod is taken.

A watch that hangs shows pods as they were, and so does the server while agents cannot write to it. A
pod that has been ready for ``minReadySeconds`` therefore counts only when its node has sent a
heartbeat since: an agent tells how its pods are before it renews its Lease. The stamps of both are by
the clock of the node, whatever it says.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

from grange.api import timestamps
from grange.api.kinds import LEASE, POD, pod as pods
from grange.api.kinds.lease import NODE_LEASES
from grange.api.kinds.pod import Pod
from grange.client.client import Client
from grange.controllers.replication import budget, identity, logic, ranking


async def vouched(client: Client, situation: logic.Situation, plan: logic.Plan) -> logic.Plan:
    """The plan, without the available pods that it takes unless enough others are ready now.

    Creations that were to follow those removals wait with them.

    Args:
        client: to the API.
        situation: what the plan was made from.
        plan: which may take available pods.

    Raises:
        ApiError: the server cannot be asked.
    """
    available = situation.available or frozenset()
    going = {removal.pod.metadata.uid for removal in plan.delete}
    if not available & going:
        return plan
    meta = situation.controller.metadata
    mark = f"{identity.RC_ID_LABEL}={meta.uid}"
    live = (await client.list(POD, meta.namespace, labels=mark)).items
    staying = [
        pod
        for pod in live
        if logic.is_active(pod)
        and ranking.is_ready(pod, situation.down)
        and pod.metadata.uid in available - going
    ]
    needed_s = situation.controller.spec.rollout.min_ready_seconds
    sure = await _heard_of(client, staying, needed_s) if needed_s > 0 else len(staying)
    limits = situation.limits or budget.limits(situation.controller)
    if sure >= min(limits.minimum, len(available - going)):
        return plan
    kept = tuple(item for item in plan.delete if item.pod.metadata.uid not in available)
    waiting = len(plan.delete) - len(kept)
    return replace(plan, delete=kept, create=plan.create[: max(0, len(plan.create) - waiting)])


async def _heard_of(client: Client, ready: Iterable[Pod], needed_s: float) -> int:
    """How many pods were ready for so long when their node said last that it is alive.

    A node without a Lease has no agent that we know of; its pods are believed.
    """
    leases = (await client.list(LEASE, NODE_LEASES)).items
    heard = {lease.metadata.name: lease.spec.renew_time for lease in leases}
    return sum(_ready_s(pod, heard.get(pod.spec.node_name)) >= needed_s for pod in ready)


def _ready_s(pod: Pod, heard: str | None) -> float:
    """Seconds for which a pod had been ready at a moment by the clock of its node."""
    ready = pods.condition(pod, "Ready")
    if not heard or ready is None or not ready.last_transition_time:
        return math.inf
    try:
        now = timestamps.parse(heard)
    except timestamps.TimestampError:
        return 0.0
    return (now - timestamps.parse(ready.last_transition_time)).total_seconds()
