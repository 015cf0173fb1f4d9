"""Asks the server before pods are made beside those of an earlier controller of the name.

Names of pods collide on purpose: two owners that decide the same make one pod. Names that somebody else
has are avoided, and there nothing collides. Pods of a controller that was deleted without them are
somebody else's until they are adopted, and a cache that is late shows them so for longer than that.
"""

from collections.abc import Iterable

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.client.client import Client
from grange.controllers.replication import identity, logic


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
    mark = f"{identity.RC_NAME_LABEL}={identity.label_value(meta.name)}"
    live = logic.claim(controller, (await client.list(POD, meta.namespace, labels=mark)).items)
    known = {pod.metadata.uid for pod in seen}
    return any(pod.metadata.uid not in known for pod in (*live.owned, *live.adopt))
