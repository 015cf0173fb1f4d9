"""How a session waits for its machines, and for names that are free. Pure."""

from grange.api import codec, timestamps
from grange.api.kinds import machinelease, testsession
from grange.api.kinds.machinelease import LeaseHolder, MachineLease, MachineLeaseSpec
from grange.api.validation.testsessions import check
from grange.base.plurals import counted
from grange.controllers.testsession import queueing
from grange.controllers.testsession.attempt_outcome import AttemptOutcome
from grange.controllers.testsession.component_pods import machine_requests
from grange.controllers.testsession.session_draft import SessionDraft
from grange.controllers.testsession.session_end import (
    AGAIN_S,
    check_provisioning_time,
    end_attempt,
    has_lost_machines,
    is_cancelled,
    is_unusable,
)
from grange.controllers.testsession.session_events import ACCEPT, PROVISION, QUEUE
from grange.controllers.testsession.session_inputs import LeaseRequest
from grange.controllers.testsession.session_phase import SessionStep
from grange.controllers.testsession.session_reasons import SessionReason
from grange.reconcile.recorder import NORMAL


def enqueue(draft: SessionDraft) -> None:
    """The session is new: it is queued, or ends at once if its spec is not valid."""
    draft.set(
        phase=testsession.QUEUED, phase_time=timestamps.rfc3339_micro(draft.inputs.now), attempt=0
    )
    draft.event(QUEUE, "waits to be accepted")
    _check_spec(draft)


def check_driver(draft: SessionDraft) -> None:
    """End a session without a driver, or with more pods than are allowed."""
    if not draft.wanted or not draft.wanted[-1].is_driver:
        message = "spec.driver: there is none, or the session has too many pods"
        end = AttemptOutcome(testsession.ERROR, SessionReason.INVALID_SPEC, message)
        end_attempt(draft, end, keep=False)


def _check_spec(draft: SessionDraft) -> None:
    """End a session that cannot be acted on; where our rules are not checked on admission."""
    causes = check(codec.to_document(draft.inputs.session), None)
    if causes:
        message = "; ".join(f"{cause.field}: {cause.message}" for cause in causes[:3])
        end_attempt(
            draft,
            AttemptOutcome(testsession.ERROR, SessionReason.INVALID_SPEC, message),
            keep=False,
        )


def queued(draft: SessionDraft) -> None:
    """Ask for machines and wait for them, and for others of the group."""
    draft.remove_pods(draft.stale())
    need = machine_requests(draft.wanted, draft.inputs.default_pools)
    name = f"{draft.inputs.session.metadata.name}-{draft.status.attempt}" if need else ""
    if draft.status.lease != name and draft.lease is None:
        draft.set(lease=name)
    draft.release_leases(but={draft.status.lease})
    lease = draft.lease
    if is_cancelled(draft, keep=False):
        return
    if lease is not None and is_unusable(draft, lease):
        return
    if other := draft.inputs.group.unfinished:
        _wait(
            draft,
            SessionReason.CONCURRENCY,
            f"waits for TestSession {other} of its concurrency group",
        )
    elif (known_in_s := draft.inputs.group.known_in_s) and lease is None:
        draft.requeue(known_in_s)
    elif not draft.status.lease:
        draft.set(reason="", message="")
        _accept(draft, "no machines are reserved")
        return
    elif lease is None:
        _request(draft, need)
    elif lease.status.phase == machinelease.GRANTED:
        machines = ", ".join(item.node for item in lease.status.machines)
        _accept(draft, f"has the machines {machines}")
        return
    else:
        queueing.mirror(draft, lease)
        _follow_priority(draft, lease)
    limit = draft.inputs.session.spec.timeouts.queue_seconds
    if limit is not None and draft.overdue(limit):
        why = f": {draft.status.message}" if draft.status.message else ""
        message = f"the session was queued for {limit} s{why}"
        end_attempt(
            draft,
            AttemptOutcome(testsession.ERROR, SessionReason.QUEUE_TIMEOUT, message),
            keep=False,
        )


def _request(draft: SessionDraft, need: tuple[machinelease.PoolRequest, ...]) -> None:
    """Ask for machines, unless another object has the name of the lease."""
    if owner := draft.inputs.occupied.get(draft.status.lease):
        message = f"MachineLease {draft.status.lease} exists and belongs to {owner}; delete it"
        _wait(draft, SessionReason.NAME_TAKEN, message)
        draft.requeue(AGAIN_S)  # leases of others do not wake the session
        return
    session = draft.inputs.session
    meta, spec = session.metadata, session.spec
    holder = LeaseHolder(kind="TestSession", name=meta.name, uid=meta.uid)
    wanted = MachineLeaseSpec(
        machines=need,
        holder=holder,
        priority=spec.priority,
        semaphores=spec.semaphores,
        expected_seconds=draft.inputs.expected_seconds,
        cleaning=spec.cleaning,
    )
    draft.lease_request = LeaseRequest(draft.status.lease, wanted)


def _follow_priority(draft: SessionDraft, lease: MachineLease) -> None:
    if lease.spec.priority != draft.inputs.session.spec.priority:
        _request(draft, lease.spec.machines)


def _wait(draft: SessionDraft, reason: str, message: str) -> None:
    draft.set(reason=reason, message=message, position=0, expected_start=None)


def _accept(draft: SessionDraft, message: str) -> None:
    now = timestamps.rfc3339_micro(draft.inputs.now)
    draft.set(reason="", message="", position=0, expected_start=None, start_time=now)
    draft.step(SessionStep.ACCEPT)
    draft.event(ACCEPT, message)
    draft.notice(NORMAL, SessionReason.ACCEPTED, f"The session {message}")


def accepted(draft: SessionDraft) -> None:
    """Wait until no pod is in the way."""
    draft.remove_pods(draft.stale())
    if is_cancelled(draft, keep=False) or has_lost_machines(draft, keep=False):
        return
    in_the_way = {item.pod.metadata.name: "an earlier attempt" for item in draft.stale()}
    in_the_way |= draft.inputs.occupied
    if not in_the_way:
        draft.set(reason="", message="")
        draft.step(SessionStep.PROVISION)
        pods = counted(len(draft.wanted), "pod")
        draft.event(PROVISION, f"creates {pods}")
        draft.notice(NORMAL, SessionReason.PROVISIONING, f"Creates {pods}")
        return
    listed = ", ".join(f"{name} of {owner}" for name, owner in sorted(in_the_way.items())[:5])
    message = f"waits until the names of its pods are free: {listed}"
    draft.set(reason=SessionReason.NAME_TAKEN, message=message)
    draft.requeue(AGAIN_S)  # pods of others do not wake the session
    check_provisioning_time(draft, message, keep=False)
