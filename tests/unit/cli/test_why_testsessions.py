"""``grange why`` about test sessions and leases: queue, pools with their holders, components."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened, session

from grange.api.kinds import MACHINE, MACHINELEASE, NODE, POD, TESTSESSION
from grange.api.kinds.machinelease import HOLDER_ANNOTATION, MACHINE_LEASE, STATE_ANNOTATION
from grange.api.meta import Document
from grange.api.status import Forbidden
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.machineleases import pool_counts
from grange.cli.why import TABLE


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncGenerator[World, None]:
    async with world(clock, rng, log, hands=False) as made:
        yield made


async def lease(there: World, name: str, **status: Any) -> None:
    spec: Document = {
        "machines": [{"pool": "workers", "count": 2}],
        "holder": {"kind": "TestSession", "name": name.removesuffix("-0")},
    }
    await there.client.create(MACHINELEASE, {"metadata": {"name": name}, "spec": spec}, "default")
    patch = {"status": status}
    await there.client.patch(MACHINELEASE, name, "default", patch=patch, subresource="status")


async def add_session(there: World, name: str, **status: Any) -> None:
    document: Document = {"metadata": {"name": name}, "spec": {"driver": {"command": ["true"]}}}
    await there.client.create(TESTSESSION, document, "default")
    patch = {"status": status}
    await there.client.patch(TESTSESSION, name, "default", patch=patch, subresource="status")


async def hold(there: World, node: str, holder: str, state: str = "Leased") -> None:
    notes = {HOLDER_ANNOTATION: holder, STATE_ANNOTATION: state}
    patch = {"metadata": {"labels": {MACHINE_LEASE: "uid"}, "annotations": notes}}
    await there.client.patch(NODE, node, patch=patch)


async def why(there: World, kind: Any, name: str) -> list[str]:
    answer = await TABLE[kind.qualified](session(there), kind, name)
    return [" ".join(line.split()) for line in answer.lines]


async def test_waiting_session_names_pools_and_holders(there: World) -> None:
    for at in range(5):
        await there.add_node(f"n{at}", labels={"pool": "workers"}, ready=at != 3)
    goes = {"spec": {"taints": [{"key": "grange.dev/disrupted", "effect": "NoSchedule"}]}}
    await there.client.patch(NODE, "n4", patch=goes)
    await hold(there, "n0", "TestSession default/old")
    await hold(there, "n1", "TestSession default/older", "Dirty")
    await lease(there, "first-0", phase="Queued", position=1)
    await lease(there, "qps-0", phase="Queued", position=2, message="1 of 2 workers free")
    await add_session(there, "qps", phase="Queued", lease="qps-0", position=2)
    assert await why(there, TESTSESSION, "qps") == [
        "testsession/qps: queued: position 2",
        "",
        "Lease ml/qps-0: queued: 1 of 2 workers free",
        "position 2 in the queue",
        "pool workers: 2 wanted, 1 of 5 free",
        "1 held by TestSession default/old",
        "1 held by TestSession default/older",
        "1 of these are released and not clean yet",
        "2 cordoned, not ready or about to be taken away",
        "before it:",
        "1. default: TestSession first (2 of workers)",
    ]
    assert (await why(there, MACHINELEASE, "qps-0"))[0].startswith("Lease ml/qps-0: queued")


async def test_machine_with_a_pod_of_others_is_not_free(there: World) -> None:
    await there.add_node("n0", labels={"pool": "workers"})
    spec = {"nodeName": "n0", "containers": [{"name": "main", "image": "x"}]}
    await there.client.create(POD, {"metadata": {"name": "shop"}, "spec": spec}, "default")
    await lease(there, "qps-0", phase="Queued", position=1)
    lines = await why(there, MACHINELEASE, "qps-0")
    at = lines.index("pool workers: 2 wanted, 0 of 1 free")
    assert lines[at + 1].startswith("1 busy with pods default/shop; ")


async def test_pods_that_cannot_be_read_are_mentioned(there: World) -> None:
    await there.add_node("n0", labels={"pool": "workers"})
    await lease(there, "qps-0", phase="Queued", position=1)
    there.gate = lambda request: Forbidden("no") if request.path.endswith("/pods") else None
    limited = opened(there.new_client(), clock=there.clock, rng=there.rng, log=there.log)
    lines = (await TABLE[MACHINELEASE.qualified](limited, MACHINELEASE, "qps-0")).lines
    assert "  pool workers: 2 wanted, 1 of 1 free" in lines
    assert f"    {pool_counts.PODS_UNREAD}" in lines


async def test_granted_lease_explains_no_pools(there: World) -> None:
    await lease(there, "qps-0", phase="Granted")
    found = [{"name": "server", "health": "NotReady", "message": "image does not exist"}]
    await add_session(there, "qps", phase="Provisioning", lease="qps-0", components=found)
    lines = await why(there, TESTSESSION, "qps")
    assert lines[2:4] == ["Lease ml/qps-0: granted", ""]
    assert "server <none> NotReady image does not exist" in lines


async def test_waiting_session_shows_machines_that_boot_for_it(there: World) -> None:
    await lease(there, "qps-0", phase="Queued", position=1)
    await add_session(there, "qps", phase="Queued", lease="qps-0")
    uid = (await there.client.get(MACHINELEASE, "qps-0", "default")).metadata.uid
    for name, own in (("m-1", uid), ("m-2", "other")):
        meta: Document = {"name": name, "annotations": {"grange.dev/planned-lease": own}}
        spec = {"pool": "workers", "provider": "local", "instanceType": "small"}
        await there.client.create(MACHINE, {"metadata": meta, "spec": spec})
        failed = {"phase": "Creating", "lastError": "no route"}
        await there.client.patch(MACHINE, name, patch={"status": failed}, subresource="status")
    lines = await why(there, TESTSESSION, "qps")
    at = lines.index("Its machines:")
    assert lines[at + 1].startswith("machine m-1 (small): Creating")
    assert lines[at + 2] == "last error of its boot: no route"
    assert not any("m-2" in line for line in lines)


async def test_lease_that_does_not_exist_yet_is_no_error(there: World) -> None:
    await add_session(there, "qps", phase="Queued", lease="qps-0")
    assert "Lease ml/qps-0: it does not exist yet" in await why(there, TESTSESSION, "qps")


async def test_ended_session_shows_what_failed(there: World) -> None:
    components = [{"name": "driver", "node": "n1", "health": "Failed", "message": "exit code 3"}]
    status: Document = {"phase": "Failed", "verdict": "Failed", "reason": "TestFailed"}
    await add_session(there, "qps", components=components, lease="qps-0", **status)
    assert await why(there, TESTSESSION, "qps") == [
        "testsession/qps: failed: TestFailed",
        "",
        "Components:",
        "driver n1 Failed exit code 3",
    ]


async def test_component_without_a_pod_was_not_created(there: World) -> None:
    components = [{"name": "server", "node": "n1", "health": "NotReady"}, {"name": "driver"}]
    late: Document = {"phase": "Errored", "verdict": "Error", "reason": "ProvisionTimeout"}
    await add_session(there, "qps", components=components, **late)
    lines = await why(there, TESTSESSION, "qps")
    assert lines[-2:] == ["server n1 NotReady", "driver <none> Unknown not created"]
