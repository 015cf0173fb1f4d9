"""How an attempt ends: what its verdict is, and why. Pure."""

import msgspec

from grange.api.kinds import machinelease, testsession
from grange.api.kinds.machinelease import MachineLease
from grange.controllers.testsession.attempt_outcome import AttemptOutcome
from grange.controllers.testsession.component_pods import assign
from grange.controllers.testsession.session_draft import SessionDraft
from grange.controllers.testsession.session_phase import SessionStep
from grange.controllers.testsession.session_reasons import SessionReason
from grange.reconcile.recorder import NORMAL, WARNING

NOW = "Now"

AGAIN_S = 5.0  # what waits may count as failed after a while without a change


def check_provisioning_time(draft: SessionDraft, why: str, *, keep: bool) -> None:
    """End an attempt that is not provisioned in time.

    Args:
        draft: of the session.
        why: what is not ready.
        keep: whether there may be evidence.
    """
    limit = draft.inputs.session.spec.timeouts.provision_seconds
    if draft.overdue(limit):
        draft.create = ()
        message = f"the session was {draft.phase.value} for {limit} s: not ready: {why}"
        end_attempt(
            draft,
            AttemptOutcome(testsession.ERROR, SessionReason.PROVISION_TIMEOUT, message),
            keep=keep,
        )


def is_cancelled(draft: SessionDraft, *, keep: bool) -> bool:
    """End the attempt if a user or a newer session of the group asks for it."""
    cancel, newer = draft.inputs.session.spec.cancel, draft.inputs.group.superseding
    if cancel:
        message = f"cancelled by a user while {draft.phase.value}"
        end_attempt(
            draft,
            AttemptOutcome(testsession.CANCELED, SessionReason.CANCELLED, message),
            keep=keep and cancel != NOW,
        )
    elif newer:
        message = f"superseded by TestSession {newer} while {draft.phase.value}"
        end_attempt(
            draft,
            AttemptOutcome(testsession.CANCELED, SessionReason.SUPERSEDED, message),
            keep=keep,
        )
    return bool(cancel or newer)


def is_unusable(draft: SessionDraft, lease: MachineLease) -> bool:
    """End the attempt if its lease will never be granted."""
    status = lease.status
    if status.phase == machinelease.REJECTED:
        end = AttemptOutcome(testsession.ERROR, status.reason or "Rejected", status.message)
    elif lease.metadata.deletion_timestamp or status.phase in (
        machinelease.EXPIRED,
        machinelease.RELEASING,
    ):
        end = _lease_lost(lease)
    else:
        return False
    end_attempt(draft, end, keep=False)
    return True


def _lease_lost(lease: MachineLease) -> AttemptOutcome:
    why = f": {lease.status.message}" if lease.status.message else ""
    message = f"MachineLease {lease.metadata.name} was released by another client{why}"
    return AttemptOutcome(testsession.ERROR, SessionReason.MACHINE_LOST, message)


def has_lost_machines(draft: SessionDraft, *, keep: bool) -> bool:
    """End the attempt if the machines that it was given are not its own any more."""
    if not draft.status.lease:
        return False
    lease, name = draft.lease, draft.status.lease
    if lease is None:
        end = AttemptOutcome(
            testsession.ERROR, SessionReason.MACHINE_LOST, f"MachineLease {name} is gone"
        )
    elif lease.metadata.deletion_timestamp or lease.status.phase != machinelease.GRANTED:
        end = _lease_lost(lease)
    else:
        pools, machines = draft.inputs.default_pools, lease.status.machines
        gone = [item.node for item in machines if item.node not in draft.inputs.machines]
        if gone:
            message = f"the machines {', '.join(gone)} of MachineLease {name} are gone"
        elif assign(draft.wanted, machines, pools) is None:
            message = f"MachineLease {name} has not the machines that the session needs"
        else:
            return False
        end = AttemptOutcome(testsession.ERROR, SessionReason.MACHINE_LOST, message)
    end_attempt(draft, end, keep=keep)
    return True


def end_attempt(draft: SessionDraft, end: AttemptOutcome, *, keep: bool) -> None:
    """Note the verdict, and go on to the evidence if there may be any, else to clean-up."""
    draft.decide_verdict(end)
    draft.step(SessionStep.END if keep else SessionStep.DISCARD)
    if not keep and draft.status.attempt > 0:  # what the status has is of an earlier attempt
        none = f"none was collected of attempt {draft.status.attempt}"
        evidence = msgspec.structs.replace(draft.status.evidence, complete=False, message=none)
        draft.set(evidence=evidence, metrics=())
    kind = NORMAL if end.verdict == testsession.PASSED else WARNING
    draft.notice(kind, end.reason or SessionReason.PASSED, end.message)
