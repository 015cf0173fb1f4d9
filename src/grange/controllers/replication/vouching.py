"""Asks the server before an available pod is taken: a watch that hangs shows pods as they were."""

from dataclasses import replace

from grange.api.kinds import POD
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
    ready = {
        pod.metadata.uid
        for pod in live
        if logic.is_active(pod) and ranking.is_ready(pod, situation.down)
    }
    limits = situation.limits or budget.limits(situation.controller)
    if len(ready & available - going) >= min(limits.minimum, len(available - going)):
        return plan
    kept = tuple(item for item in plan.delete if item.pod.metadata.uid not in available)
    waiting = len(plan.delete) - len(kept)
    return replace(plan, delete=kept, create=plan.create[: max(0, len(plan.create) - waiting)])
