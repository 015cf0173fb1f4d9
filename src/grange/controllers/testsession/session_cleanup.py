"""What follows the verdict: evidence is collected, pods go, and there is a retry or the end. Pure."""

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.testsession import SessionEvidenceStatus
from grange.controllers.testsession.session_draft import SessionDraft
from grange.controllers.testsession.session_end import AGAIN_S, NOW
from grange.controllers.testsession.session_events import INTERNAL_ERROR, RETRY
from grange.controllers.testsession.session_phase import END_OF_VERDICT, SessionStep
from grange.controllers.testsession.session_reasons import (
    OF_THE_INFRASTRUCTURE,
    OF_THE_TEST,
    SessionReason,
)
from grange.reconcile.recorder import NORMAL, WARNING

_ASK_AGAIN_S = 0.5
NOTHING_COLLECTED = "no evidence was collected: there is no session service"


def collecting(draft: SessionDraft) -> None:
    """Wait for the evidence, up to its deadline."""
    draft.remove_files()
    evidence = draft.inputs.evidence
    limit = draft.inputs.session.spec.timeouts.collect_seconds
    if not draft.inputs.collects:
        draft.set(evidence=SessionEvidenceStatus(message=NOTHING_COLLECTED))
    elif evidence is not None:
        draft.set(evidence=evidence.status, metrics=evidence.metrics)
        if evidence.failure:
            draft.event(INTERNAL_ERROR, evidence.failure, SessionReason.COLLECT_FAILED)
            draft.notice(WARNING, SessionReason.COLLECT_FAILED, evidence.failure)
    elif draft.inputs.session.spec.cancel == NOW:
        draft.set(evidence=SessionEvidenceStatus(message="cancelled while it was collected"))
    elif draft.overdue(limit):
        message = f"evidence was not complete after {limit} s"
        draft.set(evidence=SessionEvidenceStatus(message=message))
        draft.event(INTERNAL_ERROR, message, SessionReason.COLLECT_TIMEOUT)
        draft.notice(WARNING, SessionReason.COLLECT_TIMEOUT, message)
    else:
        draft.collect = True
        return
    draft.step(SessionStep.CLEAN)


def cleaning(draft: SessionDraft) -> None:
    """Delete the pods, then the lease; when both are done the attempt is over."""
    draft.remove_files()
    if draft.inputs.pods or not draft.inputs.confirmed:
        _remove_all(draft)
        if not draft.inputs.pods:
            stored = draft.inputs.session.status.phase == testsession.CLEANING
            draft.requeue(_ASK_AGAIN_S if stored else 0.0)
        return
    draft.release_leases()
    if draft.release:
        draft.requeue(AGAIN_S)
        return  # the pass that sees this done ends the attempt
    if _is_retried(draft):
        status = draft.status
        draft.event(RETRY, f"attempt {status.attempt}: {status.message}", status.reason)
        draft.notice(NORMAL, SessionReason.RETRY, f"Attempt {status.attempt}: {status.message}")
        draft.step(SessionStep.RETRY)
        draft.set(
            attempt=status.attempt + 1,
            failure_retries=status.failure_retries + (status.reason in OF_THE_TEST),
            verdict="",
            reason="",
            message="",
            lease="",
            components=(),
            start_time=None,
            run_time=None,
        )
        return
    if draft.status.verdict not in END_OF_VERDICT:  # a user has changed the status
        draft.set(verdict=testsession.ERROR)
    draft.step(END_OF_VERDICT[draft.status.verdict])
    draft.finish()


def _remove_all(draft: SessionDraft) -> None:
    """Delete the pods, without grace when they take too long."""
    limit = draft.inputs.session.spec.timeouts.cleanup_seconds
    late = draft.overdue(limit)
    draft.remove_pods(draft.inputs.pods, forced=late)
    if late:
        draft.requeue(AGAIN_S)
        listed = ", ".join(sorted(item.pod.metadata.name for item in draft.inputs.pods)[:5])
        message = f"pods did not end within {limit} s and are deleted without grace: {listed}"
        attempt = f"attempt {draft.status.attempt}"
        known = any(
            item.reason == SessionReason.CLEANUP_TIMEOUT and item.component == attempt
            for item in draft.status.events
        )
        if listed and not known:
            draft.event(INTERNAL_ERROR, message, SessionReason.CLEANUP_TIMEOUT, attempt)
            draft.notice(WARNING, SessionReason.CLEANUP_TIMEOUT, message)


def _is_retried(draft: SessionDraft) -> bool:
    """Whether the policy has another attempt for this end."""
    spec, status = draft.inputs.session.spec, draft.status
    if spec.cancel or draft.inputs.group.superseding:
        return False
    if status.reason in OF_THE_TEST:
        return status.failure_retries < spec.retries.failure
    others = status.attempt - status.failure_retries
    return status.reason in OF_THE_INFRASTRUCTURE and others < spec.retries.infrastructure


def finished(draft: SessionDraft) -> None:
    """Whatever arrives late is removed; the object goes when its time is over."""
    draft.remove_pods(draft.inputs.pods)
    if not draft.inputs.pods:
        draft.release_leases()
    ttl = draft.inputs.session.spec.ttl_seconds_after_finished
    if ttl is None:
        return
    end = timestamps.parse_or(draft.status.completion_time, draft.inputs.now)
    left = (timestamps.shift(end, ttl) - draft.inputs.now).total_seconds()
    if left > 0:
        draft.requeue(left)
    else:
        draft.delete_session = True


def release_deleted(draft: SessionDraft) -> None:
    """The object waits for its dependents: delete them, and the leases when no pod is left."""
    limit = draft.inputs.session.spec.timeouts.cleanup_seconds
    since = timestamps.parse_or(draft.inputs.session.metadata.deletion_timestamp, draft.inputs.now)
    left = (timestamps.shift(since, limit) - draft.inputs.now).total_seconds()
    draft.remove_pods(draft.inputs.pods, forced=left <= 0)
    if draft.inputs.pods:
        draft.requeue(max(left, AGAIN_S))
    else:
        draft.release_leases()
