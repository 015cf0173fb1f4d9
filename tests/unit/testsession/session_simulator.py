"""A session with pods and a lease by hand: decisions are carried out at once, on virtual time."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from grange.api import timestamps
from grange.api.kinds import machinelease
from grange.api.kinds.machinelease import LeasedMachine, MachineLease, MachineLeaseStatus
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import TestSession, TestSessionStatus
from grange.api.meta import Document, ObjectMeta
from grange.controllers.testsession.component_documents import pod_document
from grange.controllers.testsession.health import diagnose
from grange.controllers.testsession.logic import decide
from grange.controllers.testsession.session_inputs import (
    DiagnosedPod,
    SessionDecision,
    SessionInputs,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
DRIVER: Document = {"command": ["drive"]}
WORKER: Document = {"command": ["work"]}


def session_document(name: str = "qps", **spec: Any) -> Document:
    """A session of one server, one client and a driver."""
    given: Document = {"driver": DRIVER, "servers": [WORKER], "clients": [WORKER], **spec}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "generation": 1,
            "creationTimestamp": timestamps.rfc3339(START),
        },
        "spec": given,
    }


class SessionSimulator:
    """One session under the pure core.

    Attributes:
        session: with its status as it was stored last.
        pods: by name.
        leases: by name.
        inputs: what else is observed.
        writes: how often the status was written.
    """

    def __init__(self, document: Document | None = None, **inputs: Any) -> None:
        self.now = START
        self.session = msgspec.convert(document or session_document(), TestSession)
        self.pods: dict[str, Pod] = {}
        self.leases: dict[str, MachineLease] = {}
        self.inputs: dict[str, Any] = {"confirmed": True, **inputs}
        self.writes = 0
        self.files: set[str] = set()
        self.decisions: list[SessionDecision] = []

    @property
    def status(self) -> TestSessionStatus:
        """As it was stored last."""
        return self.session.status

    @property
    def events(self) -> list[str]:
        """Types of the session's events."""
        return [item.type for item in self.status.events]

    def spec(self, **fields: Any) -> None:
        """Change the spec."""
        self.session = changed(self.session, spec=changed(self.session.spec, **fields))

    def observe(self) -> SessionInputs:
        """The inputs of the next decision."""
        pods = tuple(DiagnosedPod(pod, diagnose(pod, self.now)) for pod in self.pods.values())
        machines = frozenset(
            item.node for lease in self.leases.values() for item in lease.status.machines
        )
        given = {"machines": machines, **self.inputs}
        return SessionInputs(
            self.session, self.now, pods=pods, leases=tuple(self.leases.values()), **given
        )

    def step(self) -> SessionDecision:
        """Decide and carry out."""
        inputs = self.observe()
        decision = decide(inputs)
        assert decide(replace(inputs, pods=inputs.pods[::-1])).status == decision.status
        self.decisions.append(decision)
        if decision.status != self.status:
            self.writes += 1
            self.session = changed(self.session, status=decision.status)
        for removal in decision.remove:
            name = removal.pod.metadata.name
            if removal.forced:
                del self.pods[name]
            else:
                self._mark_deleted(name)
        for lease in decision.release:
            del self.leases[lease.metadata.name]
        if decision.lease is not None:
            self._add_lease(decision)
        for pod in decision.create:
            document = pod_document(decision.context, pod, decision.workers)
            self.pods[pod.name] = msgspec.convert({**document, "status": {"phase": "Pending"}}, Pod)
        return decision

    def settle(self) -> TestSessionStatus:
        """Decide until nothing changes."""
        for _ in range(20):
            writes, pods, leases = self.writes, dict(self.pods), dict(self.leases)
            self.step()
            if (writes, pods, leases) == (self.writes, self.pods, self.leases):
                return self.status
        raise AssertionError("the session does not come to rest")

    def forward(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    def grant(self, machines: Mapping[str, str]) -> None:
        """Grant the lease these machines: node to pool."""
        listed = tuple(LeasedMachine(pool=pool, node=node) for node, pool in machines.items())
        self.lease_status(phase=machinelease.GRANTED, machines=listed)

    def lease_status(self, **fields: Any) -> None:
        """Set the status of the only lease."""
        [(name, lease)] = self.leases.items()
        self.leases[name] = changed(lease, status=changed(lease.status, **fields))

    def run(self, *names: str) -> None:
        """Start pods, by default all that are pending."""
        for name in names or [n for n, pod in self.pods.items() if pod.status.phase == "Pending"]:
            number = sorted(self.pods).index(name) + 1
            state = {"running": {"startedAt": timestamps.rfc3339(self.now)}}
            self._set(name, "Running", state, podIP=f"10.0.0.{number}")

    def exit(self, name: str, code: int = 0, **ended: Any) -> None:
        """End a pod's program."""
        state = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "finishedAt": timestamps.rfc3339(self.now),
            **ended,
        }
        self._set(name, "Failed" if code else "Succeeded", {"terminated": state})

    def wait(self, name: str, reason: str) -> None:
        """Let a pod's container wait."""
        self._set(name, "Pending", {"waiting": {"reason": reason}})

    def lose(self, name: str) -> None:
        """Delete a pod from outside."""
        self._mark_deleted(name)

    def stop_deleted(self) -> None:
        """Pods that are being deleted are gone."""
        self.pods = {
            name: pod for name, pod in self.pods.items() if not pod.metadata.deletion_timestamp
        }

    def started(self) -> "SessionSimulator":
        """A session whose driver runs."""
        for _ in range(3):
            self.settle()
            self.run()
        self.settle()
        assert self.status.phase == "Running", self.status
        return self

    def finished(self) -> TestSessionStatus:
        """Let the clean-up happen."""
        for _ in range(3):
            self.settle()
            self.stop_deleted()
        return self.settle()

    def _set(self, name: str, phase: str, state: Document, **more: Any) -> None:
        pod = self.pods[name]
        before = {"podIP": pod.status.pod_ip} if pod.status.pod_ip else {}
        status = {
            "phase": phase,
            "containerStatuses": [{"name": "main", "state": state, "image": "test"}],
            "startTime": timestamps.rfc3339(self.now),
            **before,
            **more,
        }
        self.pods[name] = msgspec.convert({**msgspec.to_builtins(pod), "status": status}, Pod)

    def _mark_deleted(self, name: str) -> None:
        pod = self.pods[name]
        meta = changed(pod.metadata, deletion_timestamp=timestamps.rfc3339(self.now))
        self.pods[name] = changed(pod, metadata=meta)

    def _add_lease(self, decision: SessionDecision) -> None:
        request = decision.lease
        assert request is not None
        old = self.leases.get(request.name)
        status = old.status if old is not None else MachineLeaseStatus()
        meta = ObjectMeta(name=request.name, namespace="default", uid=f"uid-{request.name}")
        self.leases[request.name] = MachineLease(metadata=meta, spec=request.spec, status=status)
