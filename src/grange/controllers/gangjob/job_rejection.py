"""The conditions of a job whose spec cannot be acted on."""

from datetime import datetime
from typing import TypeVar

import msgspec

from grange.api import timestamps
from grange.api.job_status import FAILED, FINISHED_TYPES
from grange.api.meta import Condition, Document, Resource, preconditions
from grange.api.scheme import KindInfo
from grange.client.client import Client
from grange.controllers.gangjob.errors import InvalidJob

R = TypeVar("R", bound=Resource)

INVALID = "InvalidJobSpec"


async def mark_failed(
    client: Client, kind: KindInfo[R], job: R, error: InvalidJob, now: datetime
) -> R | None:
    """Give a job the condition ``Failed``; None where it is finished or has no status.

    The conditions are read live and kept as they are, with fields that no view of ours names.

    Raises:
        Conflict: the job changed meanwhile.
        NotFound: it is gone.
    """
    if not kind.has_status:
        return None
    meta = job.metadata
    document = await client.get_document(kind, meta.name, meta.namespace)
    live = msgspec.convert(document["metadata"], type(meta))
    conditions = (document.get("status") or {}).get("conditions") or []
    if live.uid != meta.uid or any(_is_final(item) for item in conditions):
        return None
    failed = Condition(
        type=FAILED,
        status="True",
        reason=INVALID,
        message=str(error),
        last_transition_time=timestamps.rfc3339(now),
    )
    others = [item for item in conditions if item.get("type") != FAILED]
    patch = {
        "metadata": preconditions(live),
        "status": {"conditions": [*others, msgspec.to_builtins(failed)]},
    }
    return await client.patch(kind, meta.name, meta.namespace, patch=patch, subresource="status")


def _is_final(condition: Document) -> bool:
    return condition.get("type") in FINISHED_TYPES and condition.get("status") == "True"
