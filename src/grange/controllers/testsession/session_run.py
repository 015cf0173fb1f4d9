"""How a session is provisioned and runs, until its verdict is known. Pure."""

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.controllers.testsession import attempt_outcome
from grange.controllers.testsession.attempt_outcome import AttemptOutcome
from grange.controllers.testsession.component_pods import WorkerAddress
from grange.controllers.testsession.component_status import (
    component_statuses,
    is_settled,
    lost_pods,
    not_ready,
)
from grange.controllers.testsession.health import Health
from grange.controllers.testsession.session_draft import SessionDraft
from grange.controllers.testsession.session_end import (
    check_provisioning_time,
    end_attempt,
    has_lost_machines,
    is_cancelled,
)
from grange.controllers.testsession.session_events import RUN
from grange.controllers.testsession.session_phase import SessionStep
from grange.controllers.testsession.session_reasons import SessionReason
from grange.reconcile.recorder import NORMAL


def provisioning(draft: SessionDraft) -> None:
    """Create the pods; the session runs when its driver is ready."""
    outcome = _observe(draft)
    state = draft.found.get(draft.wanted[-1].name)
    # A driver that was quick may have ended before it was seen ready.
    ran = state is not None and (
        state.health in (Health.READY, Health.SUCCEEDED)
        or (outcome is not None and outcome.reason == SessionReason.TEST_FAILED)
    )
    if ran and (outcome is None or outcome.verdict != testsession.ERROR):
        draft.set(run_time=timestamps.rfc3339_micro(draft.inputs.now), message="")
        draft.step(SessionStep.RUN)
        draft.event(RUN, "all components are ready")
        draft.notice(NORMAL, SessionReason.RUNNING, "All components are ready")
    elif not _has_ended(draft, outcome):
        _create_pods(draft)
        check_provisioning_time(draft, not_ready(draft.wanted, draft.found), keep=True)


def _create_pods(draft: SessionDraft) -> None:
    """All workers at once, and the driver when they are ready."""
    found, driver, workers = draft.found, draft.wanted[-1], draft.wanted[:-1]
    ready = [item for pod in draft.wanted if is_settled(item := found.get(pod.name))]
    draft.set(message=f"{len(ready)} of {len(draft.wanted)} components are ready")
    missing = tuple(pod for pod in workers if pod.name not in found)
    if missing:
        draft.create = missing
    elif driver.name not in found and len(ready) == len(workers):
        draft.workers = tuple(
            WorkerAddress(
                pod, found[pod.name].pod.status.pod_ip, found[pod.name].pod.spec.node_name
            )
            for pod in workers
        )
        draft.create = (driver,)


def running(draft: SessionDraft) -> None:
    """Wait for the driver's end."""
    if _has_ended(draft, _observe(draft)):
        return
    limit = draft.inputs.session.spec.timeouts.run_seconds
    if draft.overdue(limit):
        why = not_ready(draft.wanted, draft.found)
        message = f"the session was Running for {limit} s and the driver has not ended"
        message += f"; not ready: {why}" if why else ""
        end_attempt(
            draft,
            AttemptOutcome(testsession.TEST_FAILED, SessionReason.RUN_TIMEOUT, message),
            keep=True,
        )


def _has_ended(draft: SessionDraft, outcome: AttemptOutcome | None) -> bool:
    """End an attempt that is at work if there is a reason to: the first of several counts."""
    if outcome is not None and outcome.verdict == testsession.PASSED:
        end_attempt(draft, outcome, keep=True)
    elif not is_cancelled(draft, keep=True) and not has_lost_machines(draft, keep=True):
        if outcome is None:
            return False
        end_attempt(draft, outcome, keep=True)
    return True


def _observe(draft: SessionDraft) -> AttemptOutcome | None:
    """Note the state of the components; the verdict, if there is one."""
    found, before = draft.found, draft.status.components
    lost = (*lost_pods(draft.wanted, found, before), *draft.inputs.gone - found.keys())
    draft.set(components=component_statuses(draft.wanted, found, before))
    for item in found.values():
        if (at := item.diagnosis.recheck_at) is not None:
            draft.requeue((at - draft.inputs.now).total_seconds())
    limit = draft.inputs.session.spec.timeouts.run_seconds
    deadline = timestamps.parse_or(draft.status.run_time, draft.inputs.now)
    deadline = timestamps.shift(deadline, limit)
    found_outcome = attempt_outcome.outcome(draft.wanted, found, lost, deadline, limit)
    refused = [pod for pod in draft.wanted if pod.name in draft.inputs.refused]
    if found_outcome is None and refused:
        pod = refused[0]
        message = f"{pod.member} was refused: {draft.inputs.refused[pod.name]}"
        return AttemptOutcome(testsession.ERROR, SessionReason.INVALID_POD, message)
    return found_outcome
