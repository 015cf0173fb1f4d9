"""The members of the farm, read from their Leases."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from grange.api import farm_protocol, timestamps
from grange.api.codec import decode_document
from grange.api.http import Request
from grange.api.kinds import LEASE
from grange.api.meta import Document
from grange.cli import session


@dataclass
class FarmMember:
    """One member, from its Lease.

    Attributes:
        name: its name; without a session it has only its Lease left.
        session: identity of its session; empty when it has none.
        term_s: after so long without a renewal others end its session.
        silent_s: seconds since its last renewal, by this machine's clock.
        alerts: its present alerts.
        owns: how many objects name its session, by farm.
    """

    name: str
    session: str
    term_s: int
    silent_s: float
    alerts: list[dict[str, Any]]
    owns: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> str:
        """In one word."""
        if not self.session:
            return "Left"
        return "Active" if self.silent_s <= self.term_s else "Silent"


async def listed(opened: session.ApiSession, now: datetime) -> list[FarmMember]:
    """The members, also those that have left; silence is measured by this machine's clock."""
    query = {"labelSelector": farm_protocol.GROUP_LABEL}
    request = Request("GET", LEASE.path(farm_protocol.NAMESPACE), query=query)
    items = decode_document((await opened.fetch(request)).body).get("items") or []
    return [member(item, now) for item in items]


def member(lease: Document, now: datetime) -> FarmMember:
    """The member of a Lease."""
    meta, spec = lease["metadata"], lease.get("spec") or {}
    holder = str(spec.get("holderIdentity") or "")
    group = str(meta["labels"][farm_protocol.GROUP_LABEL])
    renewed = spec.get("renewTime")
    return FarmMember(
        name=holder.rpartition("_")[0] or str(meta["name"]).removeprefix(f"{group}-"),
        session=f"{holder}/{spec.get('leaseTransitions') or 0}" if holder else "",
        term_s=int(spec.get("leaseDurationSeconds") or 0),
        silent_s=(now - timestamps.parse_or(renewed, now)).total_seconds(),
        alerts=_alerts((meta.get("annotations") or {}).get(farm_protocol.REPORT_ANNOTATION, "")),
    )


def _alerts(report: str) -> list[dict[str, Any]]:
    try:
        decoded = msgspec.json.decode(report or "{}", type=dict[str, Any])
        return msgspec.convert(decoded.get("alerts") or [], list[dict[str, Any]])
    except msgspec.MsgspecError:
        return []  # malformed (edited by a user); the member's next renewal corrects it
