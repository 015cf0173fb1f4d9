"""Whether the pod that claimed a machine still needs it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from grange.api import timestamps
from grange.api.kinds.pod import Pod, is_finished
from grange.machines.disruption.node_drain import STUCK_S


@dataclass(frozen=True, slots=True)
class HolderState:
    """What became of the pod that claimed a machine.

    Attributes:
        gone: it is gone or has ended, in two looks apart.
        used: it was bound to the node: what it left may be there.
        until: it is ending, and has until then; None where it is not.
    """

    gone: bool = False
    used: bool = True
    until: datetime | None = None


def holder_state(pod: Pod | None, node: str, now: datetime, *, ready: bool) -> HolderState:
    """What became of the pod that claimed a machine.

    A pod that ends keeps the machine for its grace period, as long as its node is ready to report its end.

    Args:
        pod: as it is now; None where it is gone.
        node: of the machine.
        now: wall time.
        ready: the node is.
    """
    if pod is None:
        return HolderState(gone=True)
    used = pod.spec.node_name == node
    if is_finished(pod) or pod.spec.node_name not in ("", node):
        return HolderState(gone=True, used=used)
    deleted = pod.metadata.deletion_timestamp
    if deleted is None:
        return HolderState(used=used)
    until = timestamps.parse_or(deleted, now) + timedelta(seconds=STUCK_S)
    if used and ready and now < until:
        return HolderState(used=used, until=until)
    return HolderState(gone=True, used=used)
