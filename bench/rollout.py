"""A rollout of 1,000 packed replicas, decided by the controller on a simulated fleet.

A pod is Ready one second (and up to a quarter more, drawn) after it was made; one that is deleted is
gone half a second later. The controller decides when something has changed, at most every 20 ms, as
its work queue lets it. What is measured: simulated seconds until the rollout is complete, and the
CPU that the decisions took. The minimum is judged at every change.

Alone: ``python -m bench.rollout``.
"""

import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Condition, Document
from grange.base.rng import Stream
from grange.controllers.replication import logic, podtemplate, rollout
from grange.controllers.replication.plan import Addition, Inputs

REPLICAS = 1_000
START_S, END_S = 1.0, 0.5
QUEUE_S = 0.02
MINIMUM, MOST = REPLICAS * 3 // 4, REPLICAS * 5 // 4
NODES = [f"node-{number}" for number in range(50)]
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def controller(version: int) -> ReplicationController:
    template: Document = {
        "metadata": {"labels": {"app": "web", "version": str(version)}},
        "spec": {"containers": [{"name": "web", "command": ["web"]}]},
    }
    document = {
        "metadata": {"name": "web", "namespace": "default", "uid": "web", "generation": version},
        "spec": {"replicas": REPLICAS, "placement": "Packed", "template": template},
    }
    return msgspec.convert(document, ReplicationController)


@dataclass
class Fleet:
    """Pods that come and go in simulated time."""

    owner: ReplicationController
    rng: Stream = field(default_factory=lambda: Stream(1))
    now: float = 0.0
    made: int = 0
    passes: int = 0
    cpu_s: float = 0.0
    pods: dict[str, Pod] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)  # when something happens to a pod

    def ready(self) -> set[str]:
        return {
            name
            for name, pod in self.pods.items()
            if pod.status.conditions and not pod.metadata.deletion_timestamp
        }

    def make(self, addition: Addition) -> None:
        self.made += 1
        source = addition.source or self.owner
        document = podtemplate.pod_document(source, name=addition.name)
        document["metadata"]["uid"] = f"pod-{self.made}"
        document["spec"]["nodeName"] = self.rng.choice(NODES)
        self.pods[addition.name] = msgspec.convert(document, Pod)
        self.due[addition.name] = self.now + START_S * self.rng.uniform(1.0, 1.25)

    def remove(self, pod: Pod) -> None:
        meta = replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.pods[meta.name] = replace(pod, metadata=meta)
        self.due[meta.name] = self.now + END_S

    def happen(self) -> None:
        """Let time pass until something has happened, and then until the controller looks."""
        self.now = max(self.now, min(self.due.values())) + QUEUE_S
        for name in [name for name, at in self.due.items() if at <= self.now]:
            del self.due[name]
            pod = self.pods[name]
            if pod.metadata.deletion_timestamp:
                del self.pods[name]
            else:
                condition = Condition(
                    type="Ready", status="True", last_transition_time="2026-01-01T00:00:00Z"
                )
                status = replace(pod.status, phase="Running", conditions=(condition,))
                self.pods[name] = replace(pod, status=status)

    def decide(self) -> None:
        """One pass of the controller; only its decision is timed."""
        owned = [self.pods[name] for name in sorted(self.pods)]
        ready = self.ready()
        available = {self.pods[name].metadata.uid for name in ready}
        started = time.process_time()
        now = EPOCH + timedelta(seconds=self.now)
        decision = rollout.decide(Inputs(self.owner, owned, NODES, available=available), now)
        plan = logic.plan(
            Inputs(
                decision.controller,
                owned,
                NODES,
                available=available,
                limits=decision.limits,
                sides=decision.sides,
            )
        )
        self.cpu_s += time.process_time() - started
        self.passes += 1
        self.owner = decision.controller
        for removal in plan.delete:
            self.remove(removal.pod)
        for addition in plan.create:
            self.make(addition)
        live = [pod for pod in self.pods.values() if not pod.metadata.deletion_timestamp]
        if len(live) > MOST or (len(ready) >= MINIMUM and len(self.ready()) < MINIMUM):
            raise RuntimeError(f"{len(self.ready())} ready, {len(live)} there")

    def complete(self) -> None:
        """Go on until the template is rolled out."""
        self.decide()
        while self.owner.status.rollout is None or self.owner.status.rollout.phase != "Complete":
            self.happen()
            self.decide()


def measure() -> dict[str, float]:
    """Bring a fleet up, change its template, and roll that out."""
    fleet = Fleet(controller(1))
    fleet.complete()
    began_s, before = fleet.now, fleet.cpu_s
    status = fleet.owner.status
    fleet.owner = replace(controller(2), status=status)
    fleet.passes = 0
    fleet.complete()
    return {
        "rollout_simulated_s": fleet.now - began_s,
        "rollout_cpu_s": fleet.cpu_s - before,
        "rollout_passes": float(fleet.passes),
    }


if __name__ == "__main__":
    print(json.dumps(measure()))
