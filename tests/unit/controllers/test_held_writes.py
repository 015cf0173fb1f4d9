"""Every kind of write that the controllers send, held for 40 s past a hand-over.

The wish that led to it is undone meanwhile, and another process has the controllers. Whatever the
answer is then: the service keeps its pods, and comes to rest as it is wanted.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from tests.support.controller_world import World, world
from tests.unit.controllers.test_late_writes import Proxy, label, nodes, ready_pods, rests, template

from grange.api.kinds import NODE, POD, PODDISRUPTIONBUDGET, REPLICATIONCONTROLLER
from grange.api.kinds.replicationcontroller import NAME_LABEL
from grange.api.meta import Document, controller_of
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.controllers.disruption.controller import DisruptionController
from grange.controllers.nodelifecycle.controller import NodeLifecycle
from grange.controllers.replication.controller import ReplicationService

REPLICAS, HELD_S = 3, 40.0
CREATED, OK, CONFLICT, GONE = 201, 200, 409, 404
TAINT = {"key": "dedicated", "value": "db", "effect": "NoExecute"}

Step = Callable[[World], Awaitable[object]]


@dataclass(frozen=True)
class Case:
    """One kind of write.

    Attributes:
        method, part, word: which requests these are.
        provoke: brings it about.
        undo: takes the wish back while it is held.
        answers: that it may get when it arrives.
        before: what has to be there first.
    """

    method: str
    part: str
    provoke: Step
    undo: Step
    answers: frozenset[int] = frozenset({CONFLICT})
    word: bytes = b""
    before: Step | None = None


def replicas(count: int) -> Step:
    return lambda there: there.change(replicas=count)


def budgets(*names: str) -> Step:
    async def create(there: World) -> None:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        for name in names:
            document: Document = {"metadata": {"name": name}, "spec": spec}
            await there.client.create(PODDISRUPTIONBUDGET, document, "default")
        await there.settle(5.0)

    return create


def relabelled(value: str | None, *, index: int = 0) -> Step:
    async def change(there: World) -> None:
        await label(there, sorted(await there.names())[index], value)

    return change


async def orphan(there: World) -> None:
    labels = {"app": "web", NAME_LABEL: "web"}
    document: Document = {"metadata": {"name": "orphan", "labels": labels}}
    await there.client.create(POD, {**document, "spec": template(1)["spec"]}, "default")


async def taken_out(there: World) -> None:
    await label(there, "orphan", None)


def tainted(*taints: dict[str, str]) -> Step:
    async def change(there: World) -> None:
        node = (await there.pods())[0].spec.node_name
        await there.client.patch(NODE, node, patch={"spec": {"taints": list(taints)}})

    return change


async def remove_node(there: World) -> None:
    await there.client.delete(NODE, (await there.pods())[0].spec.node_name)


async def put_nodes_back(there: World) -> None:
    there_are = {node.metadata.name for node in (await there.client.list(NODE)).items}
    for name in sorted({"a", "b", "c", "d"} - there_are):
        await there.add_node(name)


def became_ready(ready: str) -> Step:
    async def change(there: World) -> None:
        await there.set_ready((await there.pods())[0].spec.node_name, ready)

    return change


async def record_deletion(there: World) -> None:
    """A predecessor's, without an answer."""
    meta = (await there.pods())[0].metadata
    item = {"pod": meta.name, "uid": meta.uid, "resourceVersion": meta.resource_version}
    await there.client.patch(
        REPLICATIONCONTROLLER,
        "web",
        "default",
        patch={"status": {"pendingDeletions": [item]}},
        subresource="status",
    )
    note: Document = {"metadata": {"annotations": {"example.com/look": "again"}}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=note)


async def strip_finalizer(there: World) -> None:
    bare: Document = {"metadata": {"finalizers": None}}
    await there.client.patch(REPLICATIONCONTROLLER, "web", "default", patch=bare)
    await there.change(replicas=REPLICAS + 1)


CASES = {
    "delete": Case("DELETE", "/pods/", replicas(2), replicas(REPLICAS)),
    "evict": Case("POST", "/eviction", replicas(2), replicas(REPLICAS), before=budgets("one")),
    "charge": Case(
        "PATCH",
        "/poddisruptionbudgets/",
        replicas(2),
        replicas(REPLICAS),
        frozenset({OK, CONFLICT}),
        b"disruptedPods",
        budgets("one", "two"),
    ),
    "create": Case(
        "POST", "/pods", replicas(4), replicas(REPLICAS), frozenset({CREATED, CONFLICT})
    ),
    "repair": Case("PATCH", "/pods/", relabelled(None), relabelled("mine"), word=b'"labels"'),
    "adopt": Case("PATCH", "/pods/", orphan, taken_out, word=b"ownerReferences"),
    "release": Case("PATCH", "/pods/", relabelled("mine"), relabelled("web")),
    "revoke": Case(
        "PATCH",
        "/pods/",
        record_deletion,
        replicas(REPLICAS),
        frozenset({OK, CONFLICT}),
        b"deletion-revoked-at",
    ),
    "status": Case("PATCH", "/replicationcontrollers/web/status", replicas(2), replicas(REPLICAS)),
    "finalizer": Case(
        "PATCH",
        "/replicationcontrollers/web",
        strip_finalizer,
        replicas(REPLICAS),
        word=b'"finalizers"',
    ),
    "audit": Case(
        "POST", "/auditrecords", replicas(4), replicas(REPLICAS), frozenset({CREATED, CONFLICT})
    ),
    "event": Case(
        "POST", "/events", replicas(4), replicas(REPLICAS), frozenset({CREATED, CONFLICT})
    ),
    "mark": Case(
        "PATCH", "/pods/", tainted(TAINT), tainted(), frozenset({OK, CONFLICT}), b"DisruptionTarget"
    ),
    "evict for a taint": Case("DELETE", "/pods/", tainted(TAINT), tainted()),
    "remove an orphan": Case(
        "DELETE", "/pods/", remove_node, put_nodes_back, frozenset({CONFLICT, GONE})
    ),
    "taint": Case(
        "PATCH", "/nodes/", became_ready("False"), became_ready("True"), word=b'"taints"'
    ),
}


class Services:
    """What one process runs."""

    def __init__(self, there: World) -> None:
        deps = there.deps
        self._services = (ReplicationService(deps), NodeLifecycle(deps), DisruptionController(deps))

    async def run(self) -> None:
        async with Nursery("process") as nursery:
            for service in self._services:
                nursery.start(service.run())


async def members(there: World) -> list[str]:
    """The pods that the controller has and that are not on their way out."""
    live = [pod for pod in await there.pods() if not pod.metadata.deletion_timestamp]
    return [pod.metadata.name for pod in live if controller_of(pod.metadata) is not None]


@pytest.mark.parametrize("kind", CASES)
async def test_held_write_is_refused_or_harmless(
    kind: str, clock: Clock, rng: Stream, log: Logger
) -> None:
    case = CASES[kind]
    async with world(clock, rng, log) as there:
        proxy = Proxy(there)
        await nodes(there)
        await there.add_controller(
            replicas=REPLICAS,
            placement="Packed",
            template=template(1),
            rollout={"maxUnavailable": 0, "maxSurge": 1},
        )
        async with Nursery("first owner") as first:
            first.start(Services(there).run())
            await there.until(lambda: rests(there, REPLICAS))
            if case.before is not None:
                await case.before(there)
            proxy.hold(case.method, case.part, case.word)
            await case.provoke(there)
            await there.until(proxy.has_some)
            first.cancel()
        proxy.pass_on()
        await case.undo(there)
        there.start(Services(there))
        await there.settle(HELD_S)
        await there.until(lambda: rests(there, REPLICAS))
        before = await ready_pods(there)
        assert set(await proxy.deliver()) <= case.answers
        for _ in range(300):
            assert set(before) <= set(await ready_pods(there))
            await there.settle(0.1)
        await there.until(lambda: rests(there, REPLICAS))
        assert len(await members(there)) == REPLICAS
