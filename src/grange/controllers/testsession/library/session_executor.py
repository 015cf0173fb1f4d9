"""What runs one session, and what it is given for that."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from grange.api.kinds.testsession import TestSession
from grange.controllers.testsession.library.session_records import SessionEventKind


@dataclass(frozen=True, slots=True)
class ExecutionContext:
    """What an executor gets with a session.

    Attributes:
        record: records an event that is not terminal; it never raises.
        timeout_s: how long provisioning and the run may take together; None: no limit.
    """

    record: Callable[[SessionEventKind, str], None]
    timeout_s: float | None = None


class Executor(Protocol):
    """Runs sessions: provisions the components of each, monitors them, and cleans up."""

    async def execute(self, context: ExecutionContext, session: TestSession) -> Mapping[str, bytes]:
        """Run a session to its end; it was accepted, and its machines are reserved.

        Nothing of the session is left on its machines when this returns or raises. Cancellation ends
        the session early and cleans up all the same.

        Returns:
            Output by component: the test has passed.

        Raises:
            SessionFailedError: the test has not passed. What only concerns logs or clean-up is
                recorded as INTERNAL_ERROR and does not raise.
        """
