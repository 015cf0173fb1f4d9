"""Judges of test sessions in simulated worlds: what must hold at every write, whatever goes wrong."""

from collections import Counter
from collections.abc import Mapping

from grange.agent.runtimes.fake import FakeMachine
from grange.api.http import Request, Response
from grange.api.kinds import POD, TESTSESSION
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.testsession import (
    ATTEMPT_LABEL,
    FINAL_PHASES,
    ROLE_LABEL,
    SESSION_UID_LABEL,
)
from grange.api.meta import Document
from grange.base.errors import invariant
from grange.sim import simulated_nodes
from grange.sim.invariants import ObservedWrite

TERMINAL_EVENTS = frozenset({"DONE", "ERROR", "CANCELLED"})


class AttemptsRunAlone:
    """Programs of one attempt of a session at a time, its driver once, and on its machines only.

    Args:
        machines: all of them.

    Attributes:
        drivers: UIDs of the drivers whose programs were seen, by session and attempt.
    """

    def __init__(self, machines: Mapping[str, FakeMachine]) -> None:
        self._machines = machines
        self._pods: dict[str, Document] = {}
        self._forced: set[str] = set()
        self.drivers: dict[tuple[str, str], set[str]] = {}

    def witness(self, request: Request, response: Response) -> None:
        """Note the pods that are deleted without waiting for their end."""
        user = request.user.name
        if request.method != "DELETE" or "/pods/" not in request.path or "agent-" in user:
            return
        if b'"gracePeriodSeconds":0' in (request.body or b""):
            name = request.path.rpartition("/")[2]
            self._forced |= {
                uid for uid, pod in self._pods.items() if pod["metadata"]["name"] == name
            }

    def see(self, change: ObservedWrite) -> None:
        """Look at all machines."""
        if not change.concerns(POD):
            return
        if SESSION_UID_LABEL in (change.document["metadata"].get("labels") or {}):
            self._pods[change.uid] = change.document
        attempts: dict[str, set[str]] = {}
        holders: dict[str, set[str]] = {}
        for node, machine in self._machines.items():
            for uid in simulated_nodes.running(machine):
                pod = self._pods.get(uid)
                if pod is None or uid in self._forced:
                    continue
                labels = pod["metadata"]["labels"]
                session, attempt = labels[SESSION_UID_LABEL], labels[ATTEMPT_LABEL]
                attempts.setdefault(session, set()).add(attempt)
                if lease := labels.get(MACHINE_LEASE):
                    holders.setdefault(node, set()).add(lease)
                if labels[ROLE_LABEL] == "driver":
                    self.drivers.setdefault((session, attempt), set()).add(uid)
        for session, found in attempts.items():
            invariant(len(found) == 1, "attempts do not overlap", session=session, found=found)
        for node, found in holders.items():
            invariant(len(found) == 1, "a machine is for one lease", node=node, found=found)
        for key, found in self.drivers.items():
            invariant(len(found) == 1, "an attempt has one driver", attempt=key, found=found)


class SessionsEndOnce:
    """Events only grow, the last one of an ended session is terminal, and an end never changes.

    Attributes:
        ends: how many sessions ended in which phase.
        retries: attempts that were repeated.
    """

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()
        self.retries = 0
        self._sessions: dict[str, Document] = {}
        self._pods: dict[str, str] = {}  # UID of the session by that of a live pod of it

    def see(self, change: ObservedWrite) -> None:
        """Judge a write of a session; note one of a pod."""
        labels = change.document["metadata"].get("labels") or {}
        if change.concerns(POD) and SESSION_UID_LABEL in labels:
            self._pods.pop(change.uid, None)
            if not change.deleted:
                self._pods[change.uid] = labels[SESSION_UID_LABEL]
        elif change.concerns(TESTSESSION) and not change.deleted:
            before = (self._sessions.get(change.uid) or {}).get("status") or {}
            self._sessions[change.uid] = change.document
            self._judge(change, before, change.document.get("status") or {})

    def _judge(self, change: ObservedWrite, old: Document, new: Document) -> None:
        facts = {"session": change.document["metadata"]["name"], "revision": change.revision}
        before, after = old.get("events") or [], new.get("events") or []
        invariant(after[: len(before)] == before, "events are only added", **facts)
        kinds = [event["type"] for event in after]
        terminal = [kind for kind in kinds if kind in TERMINAL_EVENTS]
        ended = new.get("phase") in FINAL_PHASES
        invariant(len(terminal) == int(ended), "the end is reported once", events=kinds, **facts)
        if ended:
            invariant(kinds[-1] in TERMINAL_EVENTS, "the last event is terminal", **facts)
        if "ACCEPT" in kinds:
            first = kinds.index("ACCEPT")
            invariant(kinds[0] == "QUEUE" and first > 0, "QUEUE precedes ACCEPT", **facts)
        if old.get("phase") in FINAL_PHASES:
            invariant(old == new, "an end never changes", old=old, new=new, **facts)
        elif ended:
            self.ends[new["phase"]] += 1
            held = [uid for uid, session in self._pods.items() if session == change.uid]
            invariant(not held, "a session ends when its pods are gone", pods=held, **facts)
        self.retries += kinds.count("RETRY") - [event["type"] for event in before].count("RETRY")
        attempt = new.get("attempt", 0)
        invariant(attempt >= old.get("attempt", 0), "attempts only grow", **facts)
        if attempt == old.get("attempt", 0):
            for time in ("startTime", "runTime"):
                once = old.get(time) in (None, new.get(time))
                invariant(once, "an attempt's times are set once", time=time, **facts)
