"""The fields of a Lease, and how long they are unchanged: pure values, ``now`` is an argument.

A peer's clock is never read. A Lease is judged by how long *we* have seen it unchanged, by our own
monotonic clock; the times written on it are for people.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from grange.api.farm_protocol import FARMS_ANNOTATION, GROUP_LABEL, REPORT_ANNOTATION
from grange.api.kinds.lease import Lease
from grange.api.meta import Document
from grange.reconcile.farm.config import FarmConfig


@dataclass(frozen=True, slots=True, order=True)
class Token:
    """Identity of one session: never the same twice, also for one member.

    Attributes:
        member: its name.
        nonce: drawn for every acquisition.
        epoch: rises with every acquisition of the member's Lease.
    """

    member: str
    nonce: str
    epoch: int

    @property
    def holder(self) -> str:
        """The holder of the Lease."""
        return f"{self.member}_{self.nonce}"

    def __str__(self) -> str:
        return f"{self.holder}/{self.epoch}"

    @classmethod
    def parse(cls, text: str) -> "Token | None":
        """Read what ``str`` writes; None for anything else."""
        holder, _, epoch = text.rpartition("/")
        member, _, nonce = holder.rpartition("_")
        if not member or not nonce or not epoch.isdecimal():
            return None
        return cls(member, nonce, int(epoch))


def token_of(lease: Lease) -> Token | None:
    """The session that holds the Lease; None when it is free."""
    holder = lease.spec.holder_identity or ""
    return Token.parse(f"{holder}/{lease.spec.lease_transitions or 0}") if holder else None


def farms_of(lease: Lease) -> Mapping[str, str]:
    """The farms that the member takes part in, each with its label selector."""
    text = lease.metadata.annotations.get(FARMS_ANNOTATION, "")
    try:
        return msgspec.json.decode(text, type=dict[str, str]) if text else {}
    except msgspec.MsgspecError:
        return {}  # edited by a user: the member's next renewal corrects it


def spec_of(token: Token, config: FarmConfig, *, renewed: str, acquired: str = "") -> Document:
    """The Lease's spec under a session; times are RFC 3339."""
    spec: Document = {
        "holderIdentity": token.holder,
        "leaseDurationSeconds": config.ttl_s,
        "leaseTransitions": token.epoch,
        "renewTime": renewed,
    }
    if acquired:
        spec["acquireTime"] = acquired
    return spec


def marks(config: FarmConfig, farms: Mapping[str, str], report: Document) -> Document:
    """Label and annotation by which members find each other, and the report for people."""
    values = {FARMS_ANNOTATION: dict(farms), REPORT_ANNOTATION: report}
    return {
        "labels": {GROUP_LABEL: config.group},
        "annotations": {key: msgspec.json.encode(value).decode() for key, value in values.items()},
    }


@dataclass(frozen=True, slots=True)
class Observation:
    """A Lease as we last saw it.

    Attributes:
        lease: the object.
        since: when we first saw it in this state, on our own monotonic clock.
    """

    lease: Lease
    since: float

    @property
    def signs(self) -> tuple[str | None, int | None, str | None]:
        """What changes with every sign of life."""
        spec = self.lease.spec
        return spec.holder_identity, spec.lease_transitions, spec.renew_time

    def due(self, ttl_s: float) -> float:
        """When the holder may be taken for dead, unless the Lease changes."""
        return self.since + max(ttl_s, float(self.lease.spec.lease_duration_seconds or 0))


class Observations:
    """What we have seen of the Leases of a group, and since when."""

    def __init__(self) -> None:
        self._seen: dict[str, Observation] = {}

    def __iter__(self) -> Iterator[Observation]:
        return iter(list(self._seen.values()))

    def get(self, name: str) -> Observation | None:
        """The Lease of this name as last seen."""
        return self._seen.get(name)

    def see(self, lease: Lease, now: float) -> bool:
        """Take note of a Lease; whether its holder has changed."""
        name = lease.metadata.name
        old, new = self._seen.get(name), Observation(lease, now)
        if old is not None and old.signs == new.signs:
            new = Observation(lease, old.since)
        self._seen[name] = new
        return old is None or token_of(old.lease) != token_of(lease)

    def forget(self, name: str) -> None:
        """The Lease is gone."""
        self._seen.pop(name, None)
