"""Asks the server before an available pod is taken.

A watch that hangs shows pods as they were, and so does the server while agents cannot write to it. A
pod that has been ready for ``minReadySeconds`` therefore counts only when its node has told so: the
Lease of a node says until when all that its agent knows of its pods is written. The stamps of both
are by the clock of the node, whatever it says.
"""

from dataclasses import replace

from grange.api.kinds import pod as pods
from grange.client.client import Client
from grange.controllers.replication import budget, logic
from grange.controllers.shared import deletion_order
from grange.controllers.shared.availability import Readiness
from grange.controllers.shared.live_reads import active_pods, reported_ready


async def live_checked(
    client: Client, inputs: logic.Inputs, plan: logic.Plan, readiness: Readiness
) -> logic.Plan:
    """The plan, without the available pods that it takes unless enough others are ready now.

    Creations that were to follow those removals wait with them.

    Args:
        client: to the API.
        inputs: what the plan was made from.
        plan: which may take available pods.
        readiness: what was seen of the pods so far.

    Raises:
        ApiError: the server cannot be asked.
    """
    available = inputs.available or frozenset()
    going = {removal.pod.metadata.uid for removal in plan.delete}
    if not available & going:
        return plan
    staying = [
        pod
        for pod in await active_pods(client, inputs.controller)
        # One that is marked for deletion may go at any time, so it does not count.
        if deletion_order.is_ready(pod, inputs.down)
        and pod.metadata.uid in available - going
        and not pods.is_disruption_target(pod)
    ]
    sure = len(await reported_ready(client, inputs.controller, staying, readiness))
    limits = inputs.limits or budget.limits(inputs.controller)
    if sure >= min(limits.minimum, len(available - going)):
        return plan
    kept = tuple(item for item in plan.delete if item.pod.metadata.uid not in available)
    waiting = len(plan.delete) - len(kept)
    create = plan.create[: max(0, len(plan.create) - waiting)]
    return replace(plan, delete=kept, create=create, kept=plan.kept + waiting)
