"""The life of a test session, as a table; nothing else decides what may follow what.

Theory of operation. A session is *queued* while it waits for its machines, or for others of its
group. It is *accepted* when it has them, and *provisioning* when nothing of an earlier attempt is in
the way: its workers are created, and when all of them are ready, its driver. It is *running* once the
driver is ready. The verdict is known when that ends; from there evidence is *collected*, and the pods
are *cleaned* up, whatever the verdict. What was cleaned up is queued again as the next attempt, or has
one of the four final phases: no event leads out of these.

A session that has no pods yet has no evidence, and is cleaned up at once.
"""

from collections.abc import Mapping
from enum import Enum

from grange.api.kinds import testsession


class SessionPhase(Enum):
    """Where a session is; the values are those of ``status.phase``."""

    QUEUED = testsession.QUEUED
    ACCEPTED = testsession.ACCEPTED
    PROVISIONING = testsession.PROVISIONING
    RUNNING = testsession.RUNNING
    COLLECTING = testsession.COLLECTING
    CLEANING = testsession.CLEANING
    SUCCEEDED = testsession.SUCCEEDED
    FAILED = testsession.FAILED
    ERRORED = testsession.ERRORED
    CANCELLED = testsession.CANCELLED


class SessionStep(Enum):
    """What happens to a session."""

    ACCEPT = "machines granted"
    PROVISION = "names free"
    RUN = "driver ready"
    END = "verdict known"
    DISCARD = "verdict known, nothing to keep"
    CLEAN = "evidence kept, or too late"
    RETRY = "another attempt"
    PASS = "test passed"  # noqa: S105  not a password
    FAIL = "test failed"
    ERROR = "infrastructure failed"
    CANCEL = "cancelled"


P, S = SessionPhase, SessionStep

SESSION: Mapping[tuple[SessionPhase, SessionStep], SessionPhase] = {
    (P.QUEUED, S.ACCEPT): P.ACCEPTED,
    (P.QUEUED, S.DISCARD): P.CLEANING,
    (P.ACCEPTED, S.PROVISION): P.PROVISIONING,
    (P.ACCEPTED, S.DISCARD): P.CLEANING,
    (P.PROVISIONING, S.RUN): P.RUNNING,
    (P.PROVISIONING, S.END): P.COLLECTING,
    (P.PROVISIONING, S.DISCARD): P.CLEANING,
    (P.RUNNING, S.END): P.COLLECTING,
    (P.RUNNING, S.DISCARD): P.CLEANING,
    (P.COLLECTING, S.CLEAN): P.CLEANING,
    (P.CLEANING, S.RETRY): P.QUEUED,
    (P.CLEANING, S.PASS): P.SUCCEEDED,
    (P.CLEANING, S.FAIL): P.FAILED,
    (P.CLEANING, S.ERROR): P.ERRORED,
    (P.CLEANING, S.CANCEL): P.CANCELLED,
}
"""What follows in a phase when something happens; what is not here cannot happen."""

FINAL = frozenset({P.SUCCEEDED, P.FAILED, P.ERRORED, P.CANCELLED})

END_OF_VERDICT: Mapping[str, SessionStep] = {
    testsession.PASSED: S.PASS,
    testsession.TEST_FAILED: S.FAIL,
    testsession.ERROR: S.ERROR,
    testsession.CANCELED: S.CANCEL,
}
"""How a session ends that was cleaned up, by its verdict."""
