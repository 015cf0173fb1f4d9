"""Endpoints against a real API server in memory."""

from typing import Any

from tests.support.controller_world import World, world

from grange.api.kinds import ENDPOINTS, ENDPOINTSLICE, POD, SERVICE
from grange.api.kinds.endpointslice import EndpointSlice
from grange.api.status import NotFound
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.controllers.endpoints.controller import EndpointsController


async def create_service(there: World, name: str = "web", **spec: Any) -> None:
    ports = [{"port": 80, "targetPort": 8080}]
    document = {"metadata": {"name": name}, "spec": {"ports": ports, **spec}}
    await there.client.create(SERVICE, document, "default")


async def create_pod(there: World, name: str, ip: str = "127.9.0.1", *, ready: bool = True) -> None:
    document = {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "command": ["x"]}]},
    }
    await there.client.create(POD, document, "default")
    await report(there, name, ip, ready=ready)


async def report(there: World, name: str, ip: str = "127.9.0.1", *, ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions}
    await there.client.patch(POD, name, "default", patch={"status": status}, subresource="status")


async def slices(there: World) -> list[EndpointSlice]:
    found = await there.client.list(
        ENDPOINTSLICE, "default", labels="kubernetes.io/service-name=web"
    )
    return list(found.items)


async def ready_addresses(there: World) -> list[str]:
    return sorted(
        endpoint["addresses"][0]
        for item in await slices(there)
        for endpoint in item.endpoints
        if endpoint["conditions"]["ready"]
    )


def writes(there: World) -> int:
    kinds = ("/endpoints", "/endpointslices")
    return len(
        [path for verb, path in there.requests if verb != "GET" and any(k in path for k in kinds)]
    )


async def test_endpoints_follow_pods_and_go_with_the_service(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.start(EndpointsController(there.deps))
        await create_service(there, selector={"app": "web"})
        await create_pod(there, "a")
        await create_pod(there, "b", "127.9.0.2", ready=False)
        await there.settle()
        assert await ready_addresses(there) == ["127.9.0.1"]
        legacy = await there.client.get(ENDPOINTS, "web", "default")
        assert [len(part.get("notReadyAddresses", ())) for part in legacy.subsets] == [1]
        await report(there, "b", "127.9.0.2", ready=True)
        await there.client.delete(POD, "a", "default", grace_period_s=0)
        await there.settle()
        assert await ready_addresses(there) == ["127.9.0.2"]
        for item in (*(await slices(there)), legacy):
            [owner] = item.metadata.owner_references
            assert (owner.kind, owner.name, owner.controller) == ("Service", "web", True)


async def test_edits_are_restored_but_not_of_a_users_endpoints(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.start(EndpointsController(there.deps))
        theirs = {"metadata": {"name": "own"}, "subsets": [{"addresses": [{"ip": "10.0.0.1"}]}]}
        await there.client.create(ENDPOINTS, theirs, "default")
        await create_service(there, "own")
        await create_service(there, selector={"app": "web"})
        await create_pod(there, "a")
        await there.settle()
        [found] = await slices(there)
        await there.client.delete(ENDPOINTSLICE, found.metadata.name, "default")
        await there.client.patch(ENDPOINTS, "web", "default", patch={"subsets": None})
        await there.settle()
        assert await ready_addresses(there) == ["127.9.0.1"]
        legacy = await there.client.get(ENDPOINTS, "web", "default")
        assert legacy.subsets[0]["addresses"][0]["ip"] == "127.9.0.1"
        kept = await there.client.get(ENDPOINTS, "own", "default")
        assert kept.subsets[0]["addresses"] == [{"ip": "10.0.0.1"}]


async def test_many_pods_are_few_writes(clock: Clock, rng: Stream, log: Logger) -> None:
    async with world(clock, rng, log) as there:
        there.start(EndpointsController(there.deps))
        await create_service(there, selector={"app": "web"})
        for number in range(50):
            await create_pod(there, f"p-{number}", f"127.9.0.{number + 1}", ready=False)
        await there.settle()
        before = writes(there)
        for number in range(50):
            await report(there, f"p-{number}", f"127.9.0.{number + 1}", ready=True)
        await there.settle()
        assert len(await ready_addresses(there)) == 50
        assert writes(there) - before <= 6
        before = writes(there)
        patch = {"metadata": {"annotations": {"x": "y"}}}
        await there.client.patch(POD, "p-0", "default", patch=patch)
        await there.settle()
        assert writes(there) == before


async def test_service_that_loses_its_selector_keeps_its_endpoints(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as there:
        there.start(EndpointsController(there.deps))
        await create_service(there, selector={"app": "web"})
        await create_pod(there, "a")
        await there.settle()
        await there.client.patch(SERVICE, "web", "default", patch={"spec": {"selector": None}})
        await there.client.delete(POD, "a", "default", grace_period_s=0)
        await there.settle()
        assert await ready_addresses(there) == ["127.9.0.1"]
        await there.client.delete(SERVICE, "web", "default")
        await there.settle()
        try:
            await there.client.get(SERVICE, "web", "default")
        except NotFound:
            return
        raise AssertionError("the Service is still there")
