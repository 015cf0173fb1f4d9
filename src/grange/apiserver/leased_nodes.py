"""Whether a leased node is closed to a pod: the taint that machine leases set, and its tolerations.

Other taints are left to schedulers. This one promises a whole machine to its holder, and the holder
counts on it from the moment the node bears it, however old the cache of a scheduler is.
"""

from typing import Any, NamedTuple

from grange.api import codec
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.meta import Document

Tolerations = bytes | list[Any] | tuple[()]
"""The tolerations of a stored pod; as JSON where they were not decoded."""

_HARD = ("NoSchedule", "NoExecute")


class LeaseTaint(NamedTuple):
    """UID of the lease, and what the taint does."""

    lease: str
    effect: str


def lease_taint(spec: Document | None) -> LeaseTaint | None:
    """The taint of a machine lease in a node's spec, where it keeps pods away."""
    for taint in (spec or {}).get("taints") or ():
        if taint.get("key") == MACHINE_LEASE and taint.get("effect") in _HARD:
            return LeaseTaint(taint.get("value") or "", taint["effect"])
    return None


def is_tolerated(taint: LeaseTaint, tolerations: Tolerations) -> bool:
    """Whether one of a pod's tolerations matches the taint of a lease, by Kubernetes' rules."""
    given: list[Document] | tuple[()]
    given = codec.decode_trusted(tolerations) if isinstance(tolerations, bytes) else tolerations
    return any(_matches(taint, item) for item in given)


def _matches(taint: LeaseTaint, toleration: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    key = toleration.get("key") or ""
    if key and key != MACHINE_LEASE:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(key) and (toleration.get("value") or "") == taint.lease
