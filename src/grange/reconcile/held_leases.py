"""Machines that objects hold by leases which a pool of machines has made for them, as the cache has them."""

from collections.abc import Mapping

from grange.api.kinds import MACHINELEASE
from grange.api.kinds.machinelease import GRANTED, MachineLease
from grange.api.machine_claims import HOLDER_LABEL
from grange.reconcile.informer import InformerFactory

_BY_HOLDER = "held-leases/holder"


class HeldLeases:
    """Granted leases by their holders.

    Args:
        informers: of the process.
    """

    def __init__(self, informers: InformerFactory) -> None:
        self._store = informers.informer(MACHINELEASE).store
        self._store.add_index(_BY_HOLDER, _holder)

    def nodes(self, holder: str) -> Mapping[str, str]:
        """UIDs of leases by node name.

        Args:
            holder: UID of the object that has them.
        """
        return {
            machine.node: lease.metadata.uid
            for lease in self._store.by_index(_BY_HOLDER, holder)
            if is_granted(lease)
            for machine in lease.status.machines
        }


def is_granted(lease: MachineLease) -> bool:
    """Whether the lease has its machines and was not released."""
    return lease.status.phase == GRANTED and lease.metadata.deletion_timestamp is None


def _holder(lease: MachineLease) -> tuple[str, ...]:
    uid = lease.metadata.labels.get(HOLDER_LABEL)
    return (uid,) if uid else ()
