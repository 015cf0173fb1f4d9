"""What is done about a session: one function from what is observed to a decision. Pure.

Every phase has a function that either takes a step, or returns what is to be done while the phase lasts.
The steps of one pass are stored by one write of the status, and nothing else is written before it.
"""

from collections.abc import Callable, Mapping

from grange.controllers.testsession.session_cleanup import (
    cleaning,
    collecting,
    finished,
    release_deleted,
)
from grange.controllers.testsession.session_draft import SessionDraft
from grange.controllers.testsession.session_inputs import SessionDecision, SessionInputs
from grange.controllers.testsession.session_phase import FINAL, SessionPhase
from grange.controllers.testsession.session_run import provisioning, running
from grange.controllers.testsession.session_start import accepted, check_driver, enqueue, queued


def decide(inputs: SessionInputs) -> SessionDecision:
    """What is done about a session now."""
    draft = SessionDraft(inputs)
    if inputs.session.metadata.deletion_timestamp:
        release_deleted(draft)
        return draft.decision()
    if not inputs.session.status.phase:
        enqueue(draft)
    if draft.phase in _BEFORE_THE_VERDICT:
        check_driver(draft)
    while True:
        phase, attempt = draft.phase, draft.status.attempt
        if phase in FINAL:
            finished(draft)
            break
        _HANDLERS[phase](draft)
        if draft.status.attempt != attempt:  # what was observed is of the attempt that is over
            draft.requeue(0.0)
            break
        if draft.phase is phase:
            break
    return draft.decision()


_BEFORE_THE_VERDICT = frozenset(
    {
        *(SessionPhase.QUEUED, SessionPhase.ACCEPTED),
        *(SessionPhase.PROVISIONING, SessionPhase.RUNNING),
    }
)
_HANDLERS: Mapping[SessionPhase, Callable[[SessionDraft], None]] = {
    SessionPhase.QUEUED: queued,
    SessionPhase.ACCEPTED: accepted,
    SessionPhase.PROVISIONING: provisioning,
    SessionPhase.RUNNING: running,
    SessionPhase.COLLECTING: collecting,
    SessionPhase.CLEANING: cleaning,
}
