"""What is written of a pod leaves alone what others wrote meanwhile."""

import msgspec
import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document

from grange.agent.metrics import instruments
from grange.agent.status_writer import PodStatusWriter, WriteOutcome
from grange.api import conditions
from grange.api.kinds import NODE, POD, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.meta import Condition, Document
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.metrics import registry
from grange.base.rng import Stream

GATE: Document = {
    "type": "example.com/gate",
    "status": "True",
    "reason": "Checked",
    "lastProbeTime": "2026-01-01T00:00:00Z",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
READY = Condition("Ready", "False", "ContainersNotReady", "containers with unready status: [main]")


async def add_gate(there: World) -> None:
    """Another writer puts a condition on the pod."""
    await there.client.patch(
        POD,
        "web",
        "default",
        patch={"status": {"conditions": [GATE]}},
        type="strategic",
        subresource="status",
    )


async def stored(there: World) -> list[Document]:
    found: list[Document] = (await there.client.get_document(POD, "web", "default"))["status"][
        "conditions"
    ]
    return found


def reporter(there: World, pod: Pod) -> PodStatusWriter:
    metrics = instruments(registry())
    return PodStatusWriter(pod, client=there.client, metrics=metrics, log=there.log)


def status_with(*found: Condition, **fields: object) -> Document:
    return {"conditions": [msgspec.to_builtins(item) for item in found], **fields}


async def test_write_keeps_conditions_not_seen_yet(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, agent=False) as there:
        stale = await there.create(document(container()))
        await add_gate(there)
        assert await reporter(there, stale).write(stale, status_with(READY)) is WriteOutcome.WRITTEN
        assert GATE in await stored(there)


async def test_write_clears_its_own_reason_and_message(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log, agent=False) as there:
        pod = await there.create(document(container()))
        writer = reporter(there, pod)
        await writer.write(pod, status_with(READY))
        await writer.write(pod, status_with(Condition("Ready", "True")))
        ready = conditions.find((await there.pod()).status.conditions, "Ready")
        assert ready == Condition("Ready", "True")
        assert "reason" not in next(item for item in await stored(there) if item["type"] == "Ready")


async def test_write_replaces_addresses(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log, agent=False) as there:
        pod = await there.create(document(container()))
        writer = reporter(there, pod)
        for address in ("127.1.0.1", "127.1.0.2"):
            await writer.write(pod, status_with(READY, podIP=address, podIPs=[{"ip": address}]))
        found = await there.client.get_document(POD, "web", "default")
        assert found["status"]["podIPs"] == [{"ip": "127.1.0.2"}]


@pytest.mark.parametrize("kind", ["pod", "node"])
async def test_agent_keeps_conditions_of_others(
    clock: Clock, rng: Stream, log: Logger, kind: str
) -> None:
    async with world(clock, rng, log) as there:
        await there.create(document(container()))
        await there.until_ready()
        if kind == "pod":
            await add_gate(there)
            there.machine.lose(there.starts()[0], there.clock.now())
            await there.clock.sleep(10)
            assert GATE in await stored(there)
            return
        gate = {"type": "example.com/gate", "status": "True", "reason": "Checked"}
        await there.client.patch(
            NODE,
            "node-1",
            patch={"status": {"conditions": [gate]}},
            type="strategic",
            subresource="status",
        )
        await there.clock.sleep(600)
        assert gate in (await there.client.get_document(NODE, "node-1"))["status"]["conditions"]


@pytest.mark.parametrize("late", [{"phase": "Pending"}, {}], ids=["phase", "condition"])
async def test_late_status_is_written_over(
    late: Document, clock: Clock, rng: Stream, log: Logger
) -> None:
    """An earlier write arrives after a newer one; it stays until the agent sees it."""
    async with world(clock, rng, log) as there:
        await there.create(document(container()))
        await there.until_ready()
        await there.clock.sleep(5)
        before = await there.pod()
        earlier = {"conditions": [msgspec.to_builtins(READY)], **late}
        patch = {"metadata": {"uid": before.metadata.uid}, "status": earlier}
        overwritten = await there.client.patch(
            POD, "web", "default", patch=patch, type="strategic", subresource="status"
        )
        assert not pods.is_ready(overwritten)
        await there.clock.sleep(1)
        after = await there.pod()
        assert after.status == before.status
        await there.clock.sleep(60)
        assert (await there.pod()).metadata.resource_version == after.metadata.resource_version


async def test_stale_view_of_a_status_is_not_written_over(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """A cache lags behind the agent's own writes: what it shows then is not news."""
    async with world(clock, rng, log, agent=False) as there:
        stale = await there.create(document(container()))
        writer = reporter(there, stale)
        for _ in range(2):
            await writer.write(stale, status_with(READY))
        assert await writer.write(stale, status_with(READY)) is WriteOutcome.UNCHANGED
        await add_gate(there)
        assert await writer.write(await there.pod(), status_with(READY)) is WriteOutcome.UNCHANGED


HERE = "no effect on this node: spec.containers[0].securityContext.readOnlyRootFilesystem"


@pytest.mark.parametrize(
    ("spec", "message"),
    [({}, HERE), ({"hostUsers": False}, f"no effect: spec.hostUsers; {HERE}")],
)
async def test_fields_that_the_node_lacks_are_on_the_pod(
    clock: Clock, rng: Stream, log: Logger, spec: dict[str, str], message: str
) -> None:
    fixed = container(securityContext={"readOnlyRootFilesystem": True})
    expected = ("True", "FieldsNotHonoured", message)
    async with world(clock, rng, log) as there:
        await there.create(document(fixed, **spec))
        await there.until_ready()
        assert await there.condition("grange.dev/UnsupportedFields") == expected
        there.crash_agent()
        there.start_agent()
        await clock.sleep(30.0)
        assert await there.condition("grange.dev/UnsupportedFields") == expected


async def test_pod_is_one_write_and_an_event_until_ready(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    """What 500 pods at once take is this many times what a write takes."""
    async with world(clock, rng, log) as there:
        await there.create(document(container()))
        await there.until_ready()
        await clock.sleep(5)
        of_pod = [(verb, path) for verb, path in there.requests if "/default/" in path]
        assert of_pod == [
            ("POST", "/api/v1/namespaces/default/events"),  # RegisteredNode
            ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
            ("PATCH", "/api/v1/namespaces/default/pods/web/status"),
            ("POST", "/api/v1/namespaces/default/events"),
        ]
