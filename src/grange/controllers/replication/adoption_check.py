"""Asks the server before pods are made beside those of an earlier controller of the name.

Names of pods collide on purpose: two owners that decide the same make one pod. Names that somebody else
has are avoided, and there nothing collides. Pods of a controller that was deleted without them are
somebody else's until they are adopted, and a cache that is late shows them so for longer than that.
"""

from collections.abc import Iterable

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.base.errors import GrangeError
from grange.client.client import Client
from grange.controllers.replication.inputs import sort_by_owner
from grange.controllers.replication.pod_control import is_quiet
from grange.controllers.shared import pod_identity

_NAMED = 3


class NotAdopted(GrangeError):
    """Pods that are to be adopted are not, and hold up those that are to be made."""


async def unseen(client: Client, controller: ReplicationController, seen: Iterable[Pod]) -> bool:
    """Whether the controller has pods, or has orphans to adopt, besides those that a pass counts with.

    Args:
        client: to the API.
        controller: whose.
        seen: the pods that the pass takes for the controller's.

    Raises:
        ApiError: the server cannot be asked.
    """
    meta = controller.metadata
    mark = f"{pod_identity.RC_NAME_LABEL}={pod_identity.label_value(meta.name)}"
    live = sort_by_owner(controller, (await client.list(POD, meta.namespace, labels=mark)).items)
    known = {pod.metadata.uid for pod in seen}
    return any(pod.metadata.uid not in known for pod in (*live.owned, *live.adopt))


def not_adopted(wanted: Iterable[Pod], adopted: Iterable[Pod], failure: Exception) -> Exception:
    """What to say where pods could not be adopted and none is made beside them.

    Args:
        wanted: the pods that were to be adopted.
        adopted: those that were.
        failure: the first error; what is no more than a race stays as it is.
    """
    ours = {pod.metadata.uid for pod in adopted}
    left = [pod.metadata.name for pod in wanted if pod.metadata.uid not in ours]
    if is_quiet(failure) or not left:
        return failure
    names = ", ".join(left[:_NAMED])
    if len(left) == 1:
        text = (
            f"pod {names} could not be adopted ({failure}), and none is made beside it: delete it"
        )
        its = "its"
    else:
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        text = f"pods {names}{more} could not be adopted ({failure}), and none is made beside them"
        text, its = f"{text}: delete them", "their"
    error = NotAdopted(f"{text}, or take {its} label {pod_identity.RC_NAME_LABEL} off")
    error.__cause__ = failure
    return error
