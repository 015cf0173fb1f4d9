"""Events about instances, as a queue has them."""

import json
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from grange.api import timestamps
from grange.machines.providers.provider import Interruption

SPOT_NOTICE_S = 120.0
"""So long before the end of a spot instance the vendor announces it."""


def read_notice(body: str, now: datetime) -> tuple[Interruption, ...]:
    """What an event announces; nothing where it is about something else.

    Raises:
        ValueError: it is no event.
    """
    event = json.loads(body)
    if not isinstance(event, dict) or not isinstance(detail := event.get("detail"), dict):
        raise ValueError("no event: it has no detail")  # noqa: TRY004  of the queue, not of a program
    match event.get("detail-type"):
        case "EC2 Spot Instance Interruption Warning":
            reason, rebalance = "spot instance is reclaimed", False
            within_s = _left(event.get("time"), now)
            ids = [detail.get("instance-id")]
        case "EC2 Instance Rebalance Recommendation":
            reason, within_s, rebalance = "spot instance is likely to be reclaimed", 0.0, True
            ids = [detail.get("instance-id")]
        case "AWS Health Event" if detail.get("service") == "EC2" and _is_scheduled(detail):
            reason = f"maintenance: {detail.get('eventTypeCode') or 'scheduled change'}"
            within_s, rebalance = _until(detail.get("startTime"), now), False
            entities = detail.get("affectedEntities")
            ids = [one.get("entityValue") for one in entities or () if isinstance(one, dict)]
        case _:
            return ()
    return tuple(
        Interruption(one, reason, within_s, rebalance)
        for one in ids
        if isinstance(one, str) and one.startswith("i-")
    )


def _is_scheduled(detail: dict[str, Any]) -> bool:
    return detail.get("eventTypeCategory") == "scheduledChange"


def _left(announced: object, now: datetime) -> float:
    """Seconds until the end of a spot instance; an event may have been in the queue for a while."""
    since = timestamps.parse_or(announced if isinstance(announced, str) else None, now)
    return min(SPOT_NOTICE_S, max(0.0, SPOT_NOTICE_S - (now - since).total_seconds()))


def _until(start: object, now: datetime) -> float:
    try:
        return max(0.0, (parsedate_to_datetime(str(start)) - now).total_seconds())
    except (TypeError, ValueError):
        return 0.0
