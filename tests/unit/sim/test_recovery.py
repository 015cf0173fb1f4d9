"""A service that stays short while nothing is broken is noticed, and what excuses it is not held against it."""

from typing import Any

import msgspec
import pytest

from grange.api.meta import Document
from grange.base.clock import Clock
from grange.base.errors import InvariantError
from grange.sim.invariants import ObservedWrite
from grange.sim.recovery import BOUND_S, ServicesRecover
from grange.sim.trouble import Trouble

READY = {"type": "Ready", "status": "True"}


class Tape:
    """Writes objects of one small world."""

    def __init__(self, clock: Clock) -> None:
        self.trouble = Trouble(clock)
        self.judge = ServicesRecover(self.trouble, clock)
        self.revision = 0

    def write(self, kind: str, name: str, document: Document, *, deleted: bool = False) -> None:
        self.revision += 1
        meta = {"name": name, "namespace": "default", "uid": name, **document.pop("metadata", {})}
        body = msgspec.json.decode(msgspec.json.encode({"metadata": meta, **document}))
        self.judge.see(ObservedWrite(f"/{kind}/{name}", self.revision, body, deleted))

    def node(self, name: str, *, ready: bool = True) -> None:
        status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
        self.write("core/nodes", name, {"status": status})

    def service(self, replicas: int, **spec: Any) -> None:
        body = {"replicas": replicas, "placement": "Packed", **spec}
        self.write("grange.dev/replicationcontrollers", "web", {"spec": body})

    def pod(self, name: str, node: str = "a", **status: Any) -> None:
        owner = {"apiVersion": "v1", "kind": "X", "name": "web", "uid": "web", "controller": True}
        meta = {"ownerReferences": [owner]}
        spec = {"nodeName": node, "containers": []}
        self.write("core/pods", name, {"metadata": meta, "spec": spec, "status": status})


def short_by_one(clock: Clock) -> Tape:
    made = Tape(clock)
    made.node("a")
    made.service(2)
    made.pod("one", conditions=[READY])
    return made


async def test_short_service_is_noticed_when_it_recovers_late(clock: Clock) -> None:
    tape = short_by_one(clock)
    await clock.sleep(BOUND_S + 1)
    with pytest.raises(InvariantError, match="not short for long"):
        tape.pod("two", conditions=[READY])


async def test_short_service_is_noticed_at_the_end(clock: Clock) -> None:
    tape = short_by_one(clock)
    await clock.sleep(BOUND_S - 1)
    tape.judge.check()
    await clock.sleep(2)
    with pytest.raises(InvariantError):
        tape.judge.check()


async def test_time_counts_from_the_end_of_trouble(clock: Clock) -> None:
    tape = short_by_one(clock)
    tape.trouble.begin("server away")
    await clock.sleep(100)
    tape.judge.check()
    tape.trouble.end("server away", after_s=5)
    await clock.sleep(BOUND_S + 4)
    tape.judge.check()
    await clock.sleep(2)
    with pytest.raises(InvariantError):
        tape.judge.check()


async def test_allowance_adds_to_the_bound(clock: Clock) -> None:
    tape = short_by_one(clock)
    tape.judge.allowances["a session expires"] = 20.0
    await clock.sleep(BOUND_S + 19)
    tape.judge.check()
    assert tape.judge.longest_s == BOUND_S + 19


@pytest.mark.parametrize(
    ("node", "status"),
    [
        ("a", {"phase": "Failed"}),
        ("a", {"containerStatuses": [{"name": "main", "restartCount": 1}]}),
        ("gone", {"conditions": [READY]}),
        (
            "",
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                ]
            },
        ),
    ],
    ids=["finished", "restarts", "node lost", "no room"],
)
async def test_pod_that_no_client_can_help_counts(
    node: str, status: Document, clock: Clock
) -> None:
    tape = short_by_one(clock)
    tape.pod("two", node, **status)
    await clock.sleep(1000)
    tape.judge.check()


async def test_pod_that_waits_for_a_controller_does_not_count(clock: Clock) -> None:
    tape = short_by_one(clock)
    tape.pod("two", "")
    await clock.sleep(BOUND_S + 1)
    with pytest.raises(InvariantError):
        tape.judge.check()


async def test_spread_service_can_have_one_pod_on_each_node(clock: Clock) -> None:
    tape = Tape(clock)
    tape.node("a")
    tape.node("b", ready=False)
    tape.service(2, placement="OnePerNode")
    tape.pod("one", conditions=[READY])
    await clock.sleep(1000)
    tape.judge.check()
    tape.node("b")
    await clock.sleep(BOUND_S + 1)
    with pytest.raises(InvariantError):
        tape.judge.check()
