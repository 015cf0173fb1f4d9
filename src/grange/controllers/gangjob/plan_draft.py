"""A plan while the parts of the core work on it."""

from dataclasses import dataclass, field

from grange.controllers.gangjob.job_counts import JobCounts
from grange.controllers.gangjob.job_members import NOT_WANTED, JobMembers
from grange.controllers.gangjob.model import (
    Creation,
    Deletion,
    JobEvent,
    JobInputs,
    JobModel,
    JobPod,
)
from grange.controllers.gangjob.pod_outcomes import PodOutcome


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How the job ended.

    Attributes:
        succeeded: or failed.
        reason: of the condition; empty: the kind's own.
        message: for people.
    """

    succeeded: bool
    reason: str
    message: str


@dataclass(slots=True)
class PlanDraft:
    """What is decided so far.

    Attributes:
        inputs: of the plan.
        counts: to be written.
        members: the pods by role and index.
        deletions: by UID.
        releases: by UID.
        first_counted: pods whose end is counted for the first time, by UID.
        leaving: UIDs of pods that the clean-up of a job that ends now takes in the next pass.
        creations: in order.
        notices: events about single members, recorded after those of the phase.
        restarts: what is being restarted and why; not empty: the job is restarting.
        ends: roles (in lower case) and indexes of which a pod failed by itself, charged or not, or a
            server ended.
        completions: roles (in lower case) of which an index was completed in this pass.
        requeue_s: as in the plan.
    """

    inputs: JobInputs
    counts: JobCounts
    members: JobMembers
    deletions: dict[str, Deletion] = field(default_factory=dict)
    releases: dict[str, JobPod] = field(default_factory=dict)
    first_counted: dict[str, JobPod] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    creations: list[Creation] = field(default_factory=list)
    notices: list[JobEvent] = field(default_factory=list)
    restarts: list[str] = field(default_factory=list)
    ends: set[tuple[str, int]] = field(default_factory=set)
    completions: set[str] = field(default_factory=set)
    requeue_s: float | None = None

    @property
    def model(self) -> JobModel:
        """What is wanted."""
        return self.inputs.model

    def active_pods(self) -> dict[str, list[JobPod]]:
        """The pods of the current attempt that run and stay, by role in lower case."""
        return {
            name: [pod for pod in pods if pod.phase == "Running"]
            for name, pods in self._staying_pods().items()
        }

    def pending_pods(self) -> dict[str, int]:
        """How many pods of the current attempt have not started and stay, by role in lower case."""
        return {
            name: sum(pod.phase != "Running" for pod in pods)
            for name, pods in self._staying_pods().items()
        }

    def _staying_pods(self) -> dict[str, list[JobPod]]:
        return {
            name: [
                pod
                for pod in members.having(PodOutcome.LIVE)
                if pod.uid not in self.deletions and pod.uid not in self.leaving
            ]
            for name, members in self.members.roles.items()
        }

    def reporting_pods(self) -> list[JobPod]:
        """The pods of the current attempt that stay, also those that have ended."""
        return [
            pod
            for members in self.members.roles.values()
            for pod in members.current.values()
            if not pod.deleting and pod.uid not in self.deletions
        ]

    def delete(self, pod: JobPod, reason: str) -> None:
        """Delete the pod, unless it is being deleted."""
        if not pod.deleting:
            self.deletions.setdefault(pod.uid, Deletion(pod, reason))

    def release(self, *pods: JobPod) -> None:
        """Let go of pods that need not be counted any more."""
        self.releases |= {pod.uid: pod for pod in pods if pod.tracked}

    def requeue(self, after_s: float) -> None:
        """Look again at the latest after so many seconds."""
        earliest = after_s if self.requeue_s is None else min(self.requeue_s, after_s)
        self.requeue_s = max(0.0, earliest)

    def delete_surplus(self) -> None:
        """Delete the pods that stand for no index.

        Where the node restarts nothing inside of them, nothing of their ends is counted: they are let go of
        at once, in the write that deletes them.
        """
        for members in self.members.roles.values():
            released = not members.counts.in_place
            for pod, reason in members.surplus:
                self.delete(pod, reason)
                if released:
                    self.release(pod)
        for pod in self.members.strays:
            self.delete(pod, NOT_WANTED)
