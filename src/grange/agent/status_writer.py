"""Writes a pod's status to the API: only when it changed, and only to the very object it is of.

Status is written as a strategic merge patch: conditions merge by their type, so that those which
other writers have set stay, also those that the agent has not seen yet.

A write that something held on its way may arrive after a newer one. The agent writes again as soon as
the object shows another status of ours than the one that was answered last.
"""

from enum import Enum

import msgspec

from grange.agent.metrics import AgentMetrics
from grange.agent.pod_status import OWN_CONDITIONS
from grange.api import conditions
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod, PodStatus
from grange.api.meta import Condition, Document
from grange.api.status import ApiError, Conflict, NotFound
from grange.base.log import Logger
from grange.client.client import Client

_FOR_GOOD = frozenset({400, 403, 413, 422})  # asking again changes nothing


class WriteOutcome(Enum):
    """What became of a write."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    GONE = "gone"
    FAILED = "failed"


class PodStatusWriter:
    """The status of one pod, as it was written last.

    Args:
        pod: the object as it was read first.
        client: where to.
        metrics: where writes are counted.
        log: where failures go.

    Attributes:
        status: the newest that we know of; the informer lags behind our own writes.
        is_behind: whether something was judged that is not written yet, and may be.
    """

    def __init__(self, pod: Pod, *, client: Client, metrics: AgentMetrics, log: Logger) -> None:
        self.status: PodStatus = pod.status
        self.is_behind = False
        self._client = client
        self._metrics = metrics
        self._log = log
        self._written: Document | None = None
        self._version = ""  # of the object that the last write was answered with
        self._conditions: tuple[Condition, ...] | None = None  # our conditions, written or not

    @property
    def has_written(self) -> bool:
        """Whether anything was written yet."""
        return self._written is not None

    def merged(self, pod: Pod) -> Pod:
        """The object with the newest status: our part as we know it, the rest as it was read.

        Our conditions are those judged last, also where writing them failed: a pod that broke and
        recovered meanwhile has been ready since it recovered.
        """
        ours = self._conditions
        if ours is None:
            ours = tuple(item for item in self.status.conditions if item.type in OWN_CONDITIONS)
        # The mark of an eviction is ours on pods that this agent evicts, and on no others.
        known = OWN_CONDITIONS.union(item.type for item in ours)
        theirs = [item for item in pod.status.conditions if item.type not in known]
        status = msgspec.structs.replace(self.status, conditions=(*theirs, *ours))
        return msgspec.structs.replace(pod, status=status)

    async def write(self, pod: Pod, document: Document) -> WriteOutcome:
        """Write a status unless it is what was written last and nothing else is there.

        The patch is fenced by the UID: a status never reaches another pod of the same name.
        """
        judged = document.get("conditions", ())
        self._conditions = msgspec.convert(judged, tuple[Condition, ...])
        self.is_behind = document != self._written or self._is_overwritten(pod)
        if not self.is_behind:
            return WriteOutcome.UNCHANGED
        meta = pod.metadata
        patch: Document = {"metadata": {"uid": meta.uid}, "status": self._status_patch(document)}
        try:
            answer = await self._client.patch(
                POD, meta.name, meta.namespace, patch=patch, type="strategic", subresource="status"
            )
        except (NotFound, Conflict):
            self.is_behind = False
            outcome = WriteOutcome.GONE
        except ApiError as error:
            self._log.warning("status not written", error=error)
            outcome = WriteOutcome.FAILED
            self.is_behind = error.code not in _FOR_GOOD
        else:
            self.is_behind = False
            self._written = document
            self.status, self._version = answer.status, answer.metadata.resource_version
            outcome = WriteOutcome.WRITTEN
        self._metrics.status_writes.labels(outcome.value).inc()
        return outcome

    def _is_overwritten(self, pod: Pod) -> bool:
        """Whether a later version of the object has another status of ours than was written last."""
        shown = pod.metadata.resource_version
        if not (shown.isdecimal() and self._version.isdecimal()):
            return False
        return int(shown) > int(self._version) and _ours(pod.status) != _ours(self.status)

    def _status_patch(self, document: Document) -> Document:
        patch = dict(document)
        if self._conditions:
            there = {item.type for item in self._conditions}
            patch["conditions"] = [
                *(conditions.patch_item(item) for item in self._conditions),
                *(
                    {"$patch": "delete", "type": item.type}
                    for item in self.status.conditions
                    if item.type in OWN_CONDITIONS and item.type not in there
                ),
            ]
        for field in ("podIPs", "hostIPs"):
            if field in patch:  # these merge by address: an earlier one would stay
                patch[field] = [{"$patch": "replace"}, *patch[field]]
        return patch


def _ours(status: PodStatus) -> tuple[object, ...]:
    """The parts of a status that only the agent writes, and others decide by."""
    own = [item for item in status.conditions if item.type in OWN_CONDITIONS]
    return status.phase, sorted(own, key=lambda item: item.type), status.container_statuses
