"""Judges of jobs in simulated worlds: what must hold at every write, whatever goes wrong."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grange.agent.runtimes.fake import FakeMachine
from grange.api import index_ranges
from grange.api.http import Request, Response
from grange.api.kinds import GANGJOB, POD
from grange.api.meta import Document
from grange.base.errors import invariant
from grange.controllers.gangjob.adapters.gangjob import GANGJOB_ADAPTER
from grange.sim import simulated_nodes
from grange.sim.invariants import ObservedWrite

LABELS = GANGJOB_ADAPTER.labels
TERMINAL = ("Succeeded", "Failed")


@dataclass(slots=True)
class _PodRecord:
    """What was seen of a pod.

    Attributes:
        job: UID of its owner.
        member: role and index.
        own_failure: whether it failed by itself; None: a deletion came so soon that either is right.
        ended: whether its end was seen.
        in_place: restarts of its containers by the node.
    """

    job: str
    member: tuple[str, int]
    own_failure: bool | None = False
    ended: bool = False
    in_place: int = 0


class IndexesRunOnce:
    """No two machines run programs of pods of one name, unless one was deleted by force.

    Args:
        machines: all of them; may grow.
    """

    def __init__(self, machines: Mapping[str, FakeMachine]) -> None:
        self._machines = machines
        self._forced: set[str] = set()

    def witness(self, request: Request, response: Response) -> None:
        """Note who deletes pods without waiting for their end; node agents may, when it has come."""
        user = request.user.name
        if request.method != "DELETE" or "/pods/" not in request.path or "agent-" in user:
            return
        if b'"gracePeriodSeconds":0' in (request.body or b""):
            name = request.path.rpartition("/")[2]
            machines = self._machines.values()
            self._forced |= {  # those that are about to run as well: their node may not know yet
                uid
                for machine in machines
                for uid, known in machine.pods.items()
                if known.setup.name == name
            }

    def see(self, change: ObservedWrite) -> None:
        """Look at all machines."""
        if not change.concerns(POD):
            return
        for name, found in self._running().items():
            kept = [(uid, node) for uid, node in found if uid not in self._forced]
            invariant(len(kept) <= 1, "an index runs once at a time", pod=name, found=kept)

    def _running(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for node, machine in self._machines.items():
            for uid in simulated_nodes.running(machine):
                name = machine.pods[uid].setup.name
                found.setdefault(name, []).append((uid, node))
        return found


class RestartsAreBarriers:
    """With ``BlockingRecreate`` no pod is created while one of an earlier attempt of its job exists.

    Jobs with rules that restart single roles are left out: their roles differ in attempts.

    Attributes:
        crossed: how many pods were created behind a barrier.
    """

    def __init__(self) -> None:
        self.crossed = 0
        self._blocking: set[str] = set()
        self._attempts: dict[str, dict[str, int]] = {}  # of pods by UID, by UID of their job

    def see(self, change: ObservedWrite) -> None:
        """Judge the first write of a pod."""
        if change.concerns(GANGJOB):
            policy = change.document["spec"].get("failurePolicy") or {}
            actions = {rule["action"] for rule in policy.get("rules") or ()}
            blocks = policy.get("restartStrategy") == "BlockingRecreate"
            if blocks and "RestartRole" not in actions:
                self._blocking.add(change.uid)
        elif change.concerns(POD):
            meta = change.document["metadata"]
            owners = [item["uid"] for item in meta.get("ownerReferences") or ()]
            attempt = (meta.get("labels") or {}).get(LABELS.attempt)
            if attempt is not None and owners and owners[0] in self._blocking:
                self._see_pod(change, owners[0], int(attempt))

    def _see_pod(self, change: ObservedWrite, job: str, attempt: int) -> None:
        existing = self._attempts.setdefault(job, {})
        if change.deleted:
            existing.pop(change.uid, None)
        elif change.uid not in existing:
            earlier = sorted({found for found in existing.values() if found < attempt})
            name = change.document["metadata"]["name"]
            facts = {"pod": name, "attempt": attempt, "revision": change.revision}
            invariant(not earlier, "a restart is a barrier", earlier=earlier, **facts)
            self.crossed += attempt > 0
            existing[change.uid] = attempt


class JobsAreCounted:
    """Ends never change, and every failure of a pod is charged once.

    Attributes:
        ends: how many jobs ended in which way.
        charges: restarts that were charged in all.
        exact: how many jobs were compared with all failures of their pods.
    """

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.charges = 0
        self.exact = 0
        self._jobs: dict[str, Document] = {}
        self._pods: dict[str, _PodRecord] = {}
        self._suspended: set[str] = set()

    def see(self, change: ObservedWrite) -> None:
        """Judge a write of a job; note one of a pod."""
        if change.concerns(POD):
            self._see_pod(change)
        elif change.concerns(GANGJOB):
            before = self._jobs.get(change.uid)
            self._jobs[change.uid] = change.document
            if change.document["spec"].get("runPolicy", {}).get("suspend"):
                self._suspended.add(change.uid)
            if not change.deleted:
                self._judge(change, (before or {}).get("status") or {})

    def _see_pod(self, change: ObservedWrite) -> None:
        meta, status = change.document["metadata"], change.document.get("status") or {}
        owners = [item["uid"] for item in meta.get("ownerReferences") or () if item["controller"]]
        labels = meta.get("labels") or {}
        if not owners or LABELS.index not in labels:
            return
        member = (labels[LABELS.role], int(labels[LABELS.index]))
        record = self._pods.setdefault(change.uid, _PodRecord(owners[0], member))
        containers = status.get("containerStatuses") or ()
        record.in_place = max(
            record.in_place, sum(item.get("restartCount", 0) for item in containers)
        )
        disrupted = bool(meta.get("deletionTimestamp")) or any(
            item["type"] == "DisruptionTarget" and item["status"] == "True"
            for item in status.get("conditions") or ()
        )
        if not record.ended and status.get("phase") in TERMINAL:
            record.ended = True
            failed = status["phase"] == "Failed"
            record.own_failure = (None if disrupted else True) if failed else False
        elif record.own_failure and (disrupted or change.deleted):
            counted = self._status(record.job).get("countedPods") or ()
            if change.uid not in counted and not self._has_given_up(record):
                record.own_failure = None  # whether the end or the deletion came first is not known

    def _status(self, job: str) -> Document:
        return (self._jobs.get(job) or {}).get("status") or {}

    def _has_given_up(self, record: _PodRecord) -> bool:
        role, index = record.member
        found = (self._status(record.job).get("replicaStatuses") or {}).get(role) or {}
        return index in index_ranges.parse(found.get("failedIndexes") or "")

    def _judge(self, change: ObservedWrite, before: Document) -> None:
        status: Document = change.document.get("status") or {}
        facts = {"job": change.document["metadata"]["name"], "revision": change.revision}
        old, new = _end(before), _end(status)
        if old:
            kept = ("completionTime", "restarts", "restartsTowardsMax", "unchargedRestarts")
            invariant(old == new, "an end never changes", old=old, new=new, **facts)
            for name in kept:
                found = (before.get(name), status.get(name))
                invariant(found[0] == found[1], "an end never changes", what=name, **facts)
        else:
            self.ends[new] += bool(new)
        for name in ("restarts", "restartsTowardsMax", "unchargedRestarts"):
            was, now = before.get(name) or 0, status.get(name) or 0
            invariant(now >= was, "restarts never get fewer", what=name, was=was, now=now, **facts)
        self.charges += (status.get("restarts") or 0) - (before.get("restarts") or 0)
        self._compare(change, status, exact=new == "Succeeded" and not old, facts=facts)

    def _compare(
        self, change: ObservedWrite, status: Document, *, exact: bool, facts: Mapping[str, Any]
    ) -> None:
        """Restarts by index with the failures of the pods that were seen."""
        roles = change.document["spec"]["replicaSpecs"]
        rules = (change.document["spec"].get("failurePolicy") or {}).get("rules") or ()
        by_rule = any(rule["action"] == "RestartPodInPlace" for rule in rules)
        exact = exact and self._charges_all(change)
        self.exact += exact
        failures: Counter[tuple[str, int]] = Counter()
        doubtful: Counter[tuple[str, int]] = Counter()
        for record in self._pods.values():
            if record.job == change.uid:
                failures[record.member] += record.own_failure is True
                doubtful[record.member] += record.own_failure is None
                policy = roles[record.member[0]]["restartPolicy"]
                if by_rule or policy in ("Always", "OnFailure"):
                    doubtful[record.member] += record.in_place
        for role, found in (status.get("replicaStatuses") or {}).items():
            charged = found.get("indexRestarts") or {}
            for index in range(roles[role]["replicas"]):
                number, least = charged.get(str(index), 0), failures[role, index]
                most = least + doubtful[role, index]
                facts = {**facts, "role": role, "index": index, "charged": number}
                invariant(number <= most, "no failure is charged twice", most=most, **facts)
                if exact:
                    invariant(number >= least, "no failure is lost", least=least, **facts)

    def _charges_all(self, change: ObservedWrite) -> bool:
        """Whether nothing but restarts of single pods can follow from failures in this job."""
        spec = change.document["spec"]
        roles = spec["replicaSpecs"].values()
        return (
            change.uid not in self._suspended
            and not spec.get("failurePolicy")
            and not spec.get("successPolicy")
            and not any(role.get("minReplicas") or role.get("leader") for role in roles)
            and all(role.get("completes", True) for role in roles)
        )


def _end(status: Document) -> str:
    found = [
        item["type"]
        for item in status.get("conditions") or ()
        if item["type"] in TERMINAL and item["status"] == "True"
    ]
    return "+".join(found)
