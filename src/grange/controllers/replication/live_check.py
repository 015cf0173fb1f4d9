"""Reads pods live where the listers may be late: before an available pod is deleted and before pods are created.

A watch that hangs shows pods as they were (see ``shared.availability``). Pod names collide on purpose, so that
two owners that decide the same make one pod; but names that pods of an earlier controller of the same name
hold are avoided, and nothing collides there. So these pods are listed before others are created.
"""

from collections.abc import Iterable

from grange.api.kinds import POD, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.errors import GrangeError
from grange.base.first_few import first_few
from grange.client.client import Client
from grange.controllers.replication import deletion_budgets
from grange.controllers.replication.inputs import Inputs, sort_by_owner
from grange.controllers.replication.plan import Plan
from grange.controllers.replication.pod_control import is_quiet
from grange.controllers.shared import deletion_order, pod_identity
from grange.controllers.shared.availability import Readiness, active_pods, reported_ready


async def confirm(client: Client, inputs: Inputs, plan: Plan, readiness: Readiness) -> bool:
    """Whether enough other pods are ready now for the available pods that a plan deletes.

    Args:
        client: to the API.
        inputs: what the plan was made from.
        plan: if it deletes no available pods, nothing is read.
        readiness: of the pods so far.

    Raises:
        ApiError: pods cannot be read.
    """
    available = inputs.available
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
    limits = inputs.limits or deletion_budgets.limits(inputs.controller)
    return sure >= min(limits.minimum, len(available - going))


_NAMED = 3


class NotAdopted(GrangeError):
    """Pods could not be adopted, and block the creation of others."""


async def has_unseen(
    client: Client, controller: ReplicationController, seen: Iterable[Pod]
) -> bool:
    """Whether the controller has pods, or orphans to adopt, that the listers do not show.

    Args:
        client: to the API.
        controller: whose.
        seen: the controller's pods according to the listers.

    Raises:
        ApiError: pods cannot be read.
    """
    meta = controller.metadata
    mark = f"{pod_identity.RC_NAME_LABEL}={pod_identity.label_value(meta.name)}"
    live = sort_by_owner(controller, (await client.list(POD, meta.namespace, labels=mark)).items)
    known = {pod.metadata.uid for pod in seen}
    return any(pod.metadata.uid not in known for pod in (*live.owned, *live.adopt))


def not_adopted(wanted: Iterable[Pod], adopted: Iterable[Pod], failure: Exception) -> Exception:
    """The error for pods that could not be adopted.

    Args:
        wanted: the pods to adopt.
        adopted: those that were.
        failure: the first error; a conflict is returned unchanged.
    """
    ours = {pod.metadata.uid for pod in adopted}
    left = [pod.metadata.name for pod in wanted if pod.metadata.uid not in ours]
    if is_quiet(failure) or not left:
        return failure
    names = first_few(left, _NAMED)
    pods_, them, their = ("pod", "it", "its") if len(left) == 1 else ("pods", "them", "their")
    error = NotAdopted(
        f"{pods_} {names} could not be adopted ({failure}), so no other pod is created: "
        f"delete {them}, or remove {their} label {pod_identity.RC_NAME_LABEL}"
    )
    error.__cause__ = failure
    return error
