"""Reads pods live before deleting an available one.

A watch that hangs shows pods as they were; see ``shared.live_reads``.
"""

from grange.api.kinds import pod as pods
from grange.client.client import Client
from grange.controllers.replication import budget
from grange.controllers.replication.inputs import Inputs
from grange.controllers.replication.plan import Plan
from grange.controllers.shared import deletion_order
from grange.controllers.shared.availability import Readiness
from grange.controllers.shared.live_reads import active_pods, reported_ready


async def confirm(client: Client, inputs: Inputs, plan: Plan, readiness: Readiness) -> bool:
    """Whether enough other pods are ready now for the available pods that a plan takes.

    Args:
        client: to the API.
        inputs: what the plan was made from.
        plan: which may take available pods; if it takes none, nothing is read.
        readiness: what was seen of the pods so far.

    Raises:
        ApiError: the server cannot be asked.
    """
    available = inputs.available or frozenset()
    going = {removal.pod.metadata.uid for removal in plan.delete}
    if not available & going:
        return True
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
    return sure >= min(limits.minimum, len(available - going))
