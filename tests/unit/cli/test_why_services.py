"""``grange why service/NAME``: the selector, the ports and the pods that keep it from answering."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.controller_world import World, world
from tests.unit.cli.sessions import opened

from grange.api.kinds import ENDPOINTSLICE, POD, SERVICE
from grange.api.kinds.endpointslice import SERVICE_LABEL
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.cli.why import services
from grange.sim import builders

SERVED = "No EndpointSlice has its pods; grange farm status shows which controllers run."


@pytest.fixture
async def there(clock: Clock, rng: Stream, log: Logger) -> AsyncIterator[World]:
    async with world(clock, rng, log, hands=False) as made:
        yield made


async def add_service(there: World, *ports: dict[str, Any], **spec: Any) -> None:
    spec = {"selector": {"app": "shop"}, "ports": list(ports) or [{"port": 80}], **spec}
    await there.client.create(SERVICE, {"metadata": {"name": "x"}, "spec": spec}, "default")


async def add_pod(there: World, name: str, *, ready: bool, phase: str = "Running") -> None:
    document = builders.pod_document(name, nodeName="n")
    document["metadata"]["labels"] = {"app": "shop", "tier": "web"}
    document["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 8080}]
    await there.client.create(POD, document, "default")
    condition = {"type": "Ready", "status": str(ready), "message": "probe failed"}
    status = {"phase": phase, "conditions": [condition]}
    await there.client.patch(POD, name, "default", patch={"status": status}, subresource="status")


async def add_slice(there: World) -> None:
    meta = {"name": "x-1", "labels": {SERVICE_LABEL: "x"}}
    body = {"addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}]}
    await there.client.create(ENDPOINTSLICE, {"metadata": meta, **body}, "default")


async def lines(there: World) -> list[str]:
    session = opened(there.deps.client, clock=there.clock, rng=there.rng, log=there.log)
    return (await services.ask(session, SERVICE, "x")).lines


async def test_selector_without_pods_shows_the_labels_there_are(there: World) -> None:
    await add_service(there, selector={"app": "shp"})
    assert await lines(there) == [
        "service/x: selects 0 pods with app=shp",
        "There are no pods in namespace default.",
    ]
    await add_pod(there, "a", ready=True)
    assert (await lines(there))[-1] == "Labels of pods in namespace default: app=shop"
    other = {"spec": {"selector": {"app": None, "ap": "shop"}}}
    await there.client.patch(SERVICE, "x", "default", patch=other)
    shown = (await lines(there))[-1]
    assert shown == "Labels of pods in namespace default: app=shop, tier=web"


async def test_selector_of_ended_pods_only_is_explained(there: World) -> None:
    await add_service(there)
    await add_pod(there, "a", ready=False, phase="Failed")
    assert (await lines(there))[-1] == "Ended or terminating pods with these labels: 1"


async def test_port_name_that_no_container_has_is_shown(there: World) -> None:
    await add_service(there, {"name": "a", "port": 80, "targetPort": "htp"})
    await add_pod(there, "a", ready=True)
    await add_slice(there)
    assert await lines(there) == [
        "service/x: 1 pod selected, 1 ready",
        "",
        "port 80: its pods have no TCP port named htp; there is http",
    ]


async def test_port_of_another_protocol_is_no_match(there: World) -> None:
    port = {"name": "a", "port": 53, "targetPort": "http", "protocol": "UDP"}
    await add_service(there, port, {"name": "b", "port": 80, "targetPort": "http"})
    await add_pod(there, "a", ready=True)
    await add_slice(there)
    [shown] = [line for line in await lines(there) if line.startswith("port")]
    assert shown == "port 53: its pods have no UDP port named http; there is http (TCP)"


async def test_pods_that_are_not_ready_have_their_causes(there: World) -> None:
    await add_service(there)
    for name in ("a", "b", "c"):
        await add_pod(there, name, ready=False)
    assert await lines(there) == [
        "service/x: 3 pods selected, none ready",
        "",
        "Not ready:",
        "  pod/a, pod/b, pod/c  probe failed",
    ]


async def test_ready_pods_without_endpoints_are_noticed(there: World) -> None:
    await add_service(there)
    await add_pod(there, "a", ready=True)
    assert (await lines(there))[-1] == SERVED
    await add_slice(there)
    assert await lines(there) == [
        "service/x: 1 pod selected, 1 ready",
        "No condition or event reports a problem.",
    ]


async def test_service_without_selector_is_explained_as_any_object(there: World) -> None:
    await add_service(there, selector={})
    assert (await lines(there))[0] == "service/x: exists"
