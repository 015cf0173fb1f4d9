"""The interface of what keeps the evidence of sessions."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import SessionEvidenceStatus, SessionMetricResult, TestSession


@dataclass(frozen=True, slots=True)
class CollectedEvidence:
    """What was kept of one attempt.

    Attributes:
        status: where it is, and whether all of it was kept.
        metrics: what was read from the driver's JSON.
        failure: why evidence could not be kept; empty where it could.
    """

    status: SessionEvidenceStatus
    metrics: tuple[SessionMetricResult, ...] = ()
    failure: str = ""


class EvidenceCollector(Protocol):
    """Keeps logs, artifacts and results of sessions.

    All calls may be repeated, also after a restart and by another process, and for an attempt that
    is over; what was kept already is not lost by that.
    """

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables that every container of the session gets, as the address of its service."""

    def start(self, session: TestSession, pod: Pod) -> None:
        """A pod of the session runs: follow its logs. Returns at once."""

    async def collect(self, session: TestSession, deadline: datetime) -> CollectedEvidence:
        """Complete the evidence of the session's attempt; its pods are there, and may still run.

        Args:
            session: as it is, with its verdict.
            deadline: when the call is cancelled.

        Raises:
            GrangeError: it could not be kept; the session ends all the same.
        """

    def forget(self, session: TestSession) -> None:
        """The session is gone, or has ended: nothing more comes from its pods. Returns at once."""
