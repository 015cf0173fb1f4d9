"""Machines that a dedicated pool is to have for claims that it could not meet.

A request is an annotation of the pool. It holds until a moment that its holder puts off again and again.
When the claim is given up or its owner dies, the request ends, and with it what was booted for it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from grange.api import names, timestamps
from grange.api.kinds.machine import Machine
from grange.api.kinds.nodepool import NodePool
from grange.api.machine_claims import REQUEST_PREFIX
from grange.api.machine_phases import MachinePhase
from grange.machines.scaling.pod_needs import PodNeed

_MOST = 10_000
_LONGEST = timedelta(minutes=5)
"""Holders put the end off for a minute; what asks for more was not written by one."""


class MachineRequest(msgspec.Struct, frozen=True):
    """An unmet claim.

    Attributes:
        need: what each machine must have; ``need.pod`` names the holder.
        count: how many, with those that are claimed for it already.
        until: RFC 3339; the request does not hold from then on.
    """

    need: PodNeed
    count: int
    until: str


def request_annotation(holder: str, request_id: str) -> str:
    """Where the request of a claim stands.

    Args:
        holder: UID.
        request_id: of the claim.
    """
    return REQUEST_PREFIX + names.digest(holder, request_id)


def open_needs(
    requests: Mapping[str, MachineRequest], machines: Iterable[Machine]
) -> Sequence[PodNeed]:
    """What is needed for requests beyond the machines that are claimed for them already, one a machine."""
    held = Counter(
        request_annotation(machine.status.holder_uid, machine.status.request_id)
        for machine in machines
        if machine.phase is MachinePhase.CLAIMED and machine.status.holder_uid
    )
    return [one.need for key, one in requests.items() for _ in range(one.count - held[key])]


def requests_of(pool: NodePool, now: datetime) -> Mapping[str, MachineRequest]:
    """The requests that hold, by annotation, in the order of these."""
    return {
        key: request
        for key, request in sorted(_all(pool))
        if request is not None and _holds(request, now)
    }


def ended_requests(pool: NodePool, now: datetime) -> Sequence[str]:
    """Annotations of requests that do not hold, or that cannot be read (edited by a user)."""
    return [key for key, request in _all(pool) if request is None or not _holds(request, now)]


def _all(pool: NodePool) -> Iterator[tuple[str, MachineRequest | None]]:
    for key, text in pool.metadata.annotations.items():
        if key.startswith(REQUEST_PREFIX):
            try:
                yield key, msgspec.json.decode(text, type=MachineRequest)
            except msgspec.DecodeError:
                yield key, None


def _holds(request: MachineRequest, now: datetime) -> bool:
    until = timestamps.parse_or(request.until, now)
    return now < until <= now + _LONGEST and request.count <= _MOST
