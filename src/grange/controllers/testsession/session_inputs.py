"""What a decision about a session is made from, and what it consists of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from grange.api.kinds.machinelease import MachineLease, MachineLeaseSpec
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession, TestSessionStatus
from grange.controllers.testsession.component_documents import SessionContext
from grange.controllers.testsession.component_pods import ComponentPod, WorkerAddress
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.controllers.testsession.health import Health, PodDiagnosis


@dataclass(frozen=True, slots=True)
class DiagnosedPod:
    """A pod of a session, and how it is.

    Attributes:
        pod: as the cache has it.
        diagnosis: of it.
    """

    pod: Pod
    diagnosis: PodDiagnosis

    @property
    def health(self) -> Health:
        """How it is."""
        return self.diagnosis.health


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """The others of a session's concurrency group.

    Attributes:
        superseding: a newer one that cancels older ones; empty for none.
        unfinished: one that has not ended and comes first; empty for none.
        known_in_s: seconds until all that were created in the session's second are known.
    """

    superseding: str = ""
    unfinished: str = ""
    known_in_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionInputs:
    """A session, and all that decides what is done about it.

    Attributes:
        session: as the cache has it.
        now: the time.
        pods: all pods of its UID, of any attempt.
        leases: all machine leases that it controls, of any attempt.
        default_pools: of the LeasePolicy, by role.
        group: the others of its concurrency group.
        occupied: names of its pods or of its lease that other objects have, and whose these are.
        gone: names of pods of this attempt that were there and are gone.
        refused: why pods cannot be created as they are, by name.
        machines: those of its leases that are there, by name of the node.
        evidence: what was collected in this attempt; None as long as that goes on.
        collects: whether there is anybody who collects evidence.
        confirmed: whether the attempt's files are deleted, and the server has no pod of the session.
        expected_seconds: how long it will have its machines.
        link_mounts: whether mounts are links below the container's root.
        environment: further variables of every container.
    """

    session: TestSession
    now: datetime
    pods: tuple[DiagnosedPod, ...] = ()
    leases: tuple[MachineLease, ...] = ()
    default_pools: Mapping[str, str] = field(default_factory=dict)
    group: GroupMembers = field(default_factory=GroupMembers)
    occupied: Mapping[str, str] = field(default_factory=dict)
    gone: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)
    machines: frozenset[str] = frozenset()
    evidence: CollectedEvidence | None = None
    collects: bool = False
    confirmed: bool = False
    expected_seconds: int | None = None
    link_mounts: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodRemoval:
    """A pod to delete.

    Attributes:
        pod: as it was seen.
        forced: without grace.
    """

    pod: Pod
    forced: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A machine lease to create, or to change where it is there."""

    name: str
    spec: MachineLeaseSpec


class SessionNotice(NamedTuple):
    """An Event on the session's object."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class SessionDecision:
    """What is done about a session, in this order.

    Attributes:
        status: what it is to be; written first, if it differs.
        notices: Events, once the status is written.
        remove_files: ConfigMaps to delete, by name, before any pod.
        remove: pods to delete.
        release: leases to delete.
        lease: to create.
        context: of the pods to create.
        create: workers, and last the driver.
        workers: the addresses that the driver gets.
        collect: whether evidence is to be collected.
        delete_session: whether the object itself is to be deleted.
        requeue_s: when to look again without a change.
    """

    status: TestSessionStatus
    context: SessionContext
    notices: tuple[SessionNotice, ...] = ()
    remove_files: tuple[str, ...] = ()
    remove: tuple[PodRemoval, ...] = ()
    release: tuple[MachineLease, ...] = ()
    lease: LeaseRequest | None = None
    create: tuple[ComponentPod, ...] = ()
    workers: tuple[WorkerAddress, ...] = ()
    collect: bool = False
    delete_session: bool = False
    requeue_s: float | None = None
