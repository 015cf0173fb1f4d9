"""Services have separate addresses and ports from the moment they are there."""

from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.unit.apiserver.server import Answer, Server

from grange.api.kinds import SERVICE
from grange.api.meta import Document
from grange.api.status import InternalError
from grange.apiserver import storage
from grange.apiserver.service_allocation import DEFAULT_NETWORK, NODE_PORTS, ServiceAllocator
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Nursery
from grange.sim.pytest_plugin import EPOCH
from grange.store.errors import StorageFull
from grange.store.memory import MemoryStore

SERVICES = "/api/v1/namespaces/default/services"
NETWORK = str(DEFAULT_NETWORK)


def service(name: str = "web", **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def two_ports(**more: Any) -> Document:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    return service(type="NodePort", ports=ports, **more)


def node_ports(document: Document) -> list[int | None]:
    return [port.get("nodePort") for port in document["spec"]["ports"]]


def refusal(answer: Answer) -> tuple[int, list[str]]:
    return answer.code, answer.fields


# --- what is allocated -------------------------------------------------------------------------


async def test_service_gets_an_address(server: Server) -> None:
    spec = (await server.made(SERVICES, service()))["spec"]
    assert IPv4Address(spec["clusterIP"]) in DEFAULT_NETWORK
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
    assert spec["internalTrafficPolicy"] == "Cluster"
    assert "nodePort" not in spec["ports"][0]


def test_no_pod_gets_an_address_of_a_service() -> None:
    """The second octet of pods' ranges is 1 to 254; control planes with other ranges report it."""
    assert DEFAULT_NETWORK.subnet_of(IPv4Network("127.0.0.0/16"))


async def test_headless_service_gets_no_address(server: Server) -> None:
    spec = (await server.made(SERVICES, service(clusterIP="None")))["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])


async def test_external_service_gets_no_address(server: Server) -> None:
    asked = service(type="ExternalName", externalName="example.com")
    spec = (await server.made(SERVICES, asked))["spec"]
    assert not {"clusterIP", "clusterIPs", "ipFamilies"} & {*spec}


@pytest.mark.parametrize("kind", ["NodePort", "LoadBalancer"])
async def test_ports_of_nodes_are_allocated(server: Server, kind: str) -> None:
    made = await server.made(
        SERVICES, {**two_ports(), "spec": {**two_ports()["spec"], "type": kind}}
    )
    numbers = node_ports(made)
    assert len({*numbers}) == 2
    assert all(number in NODE_PORTS for number in numbers)


async def test_protocols_of_one_port_share_the_port_of_nodes(server: Server) -> None:
    ports = [
        {"name": "tcp", "port": 53, "protocol": "TCP"},
        {"name": "udp", "port": 53, "protocol": "UDP"},
    ]
    first, second = node_ports(await server.made(SERVICES, service(type="NodePort", ports=ports)))
    assert first == second


async def test_load_balancer_may_do_without_ports_of_nodes(server: Server) -> None:
    asked = service(type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert node_ports(await server.made(SERVICES, asked)) == [None]


async def test_local_load_balancer_gets_a_health_check_port(server: Server) -> None:
    asked = service(type="LoadBalancer", externalTrafficPolicy="Local")
    spec = (await server.made(SERVICES, asked))["spec"]
    assert spec["healthCheckNodePort"] in NODE_PORTS
    assert spec["healthCheckNodePort"] != spec["ports"][0]["nodePort"]


async def test_service_of_the_api_server_has_the_first_address(server: Server) -> None:
    spec = (await server.made(SERVICES, service("kubernetes")))["spec"]
    assert IPv4Address(spec["clusterIP"]) == DEFAULT_NETWORK[1]


async def test_helm_finds_every_service_ready(server: Server) -> None:
    """Helm 3 waits until a service that is not ExternalName has a clusterIP."""
    specs: dict[str, Document] = {
        "a": {},
        "b": {"clusterIP": "None"},
        "c": {"type": "NodePort"},
    }
    for name, spec in specs.items():
        made = await server.made(SERVICES, service(name, **spec))
        assert made["spec"]["clusterIP"]


# --- what is asked for -------------------------------------------------------------------------


async def test_address_may_be_asked_for(server: Server) -> None:
    wanted = str(DEFAULT_NETWORK[77])
    spec = (await server.made(SERVICES, service(clusterIP=wanted)))["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == (wanted, [wanted])
    taken = await server.create(SERVICES, service("other", clusterIP=wanted))
    assert refusal(taken) == (422, ["spec.clusterIPs"])
    assert f"failed to allocate IP {wanted}: provided IP is already allocated" in taken.message
    outside = await server.create(SERVICES, service("other", clusterIP="10.0.0.1"))
    assert refusal(outside) == (422, ["spec.clusterIPs"])
    assert f"The range of valid IPs is {NETWORK}" in outside.message


async def test_port_of_nodes_may_be_asked_for(server: Server) -> None:
    def wanting(name: str, number: int) -> Document:
        return service(name, type="NodePort", ports=[{"port": 80, "nodePort": number}])

    assert node_ports(await server.made(SERVICES, wanting("a", 30080))) == [30080]
    taken = await server.create(SERVICES, wanting("b", 30080))
    assert refusal(taken) == (422, ["spec.ports[0].nodePort"])
    assert "provided port is already allocated" in taken.message
    outside = await server.create(SERVICES, wanting("b", 80))
    assert "not in the valid range. The range of valid ports is 30000-32767" in outside.message


# --- updates -----------------------------------------------------------------------------------


async def test_update_keeps_what_was_allocated(server: Server) -> None:
    made = await server.made(SERVICES, two_ports())
    asked = two_ports(selector={"app": "web"})
    asked["spec"]["ports"].reverse()
    updated = (await server.update(f"{SERVICES}/web", asked)).body
    for field in ("clusterIP", "clusterIPs", "ipFamilies"):
        assert updated["spec"][field] == made["spec"][field]
    assert node_ports(updated) == node_ports(made)[::-1]


async def test_address_may_not_change(server: Server) -> None:
    await server.made(SERVICES, service())
    other = str(DEFAULT_NETWORK[77])
    for change in (
        {"clusterIP": other},
        {"clusterIP": "None"},
        {"clusterIP": other, "clusterIPs": [other]},
    ):
        answer = await server.patch(f"{SERVICES}/web", {"spec": change})
        assert refusal(answer) == (422, ["spec.clusterIP"]), answer.text
        assert "may not change once set" in answer.message


async def test_added_port_gets_a_port_of_nodes(server: Server) -> None:
    made = await server.made(SERVICES, two_ports())
    asked = two_ports()
    asked["spec"]["ports"].append({"name": "c", "port": 82})
    updated = (await server.update(f"{SERVICES}/web", asked)).body
    assert node_ports(updated)[:2] == node_ports(made)
    assert node_ports(updated)[2] not in {None, *node_ports(made)}


async def test_change_of_type_allocates_and_releases(server: Server) -> None:
    made = await server.made(SERVICES, service())
    path = f"{SERVICES}/web"
    opened = (await server.patch(path, {"spec": {"type": "NodePort"}})).body
    assert opened["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    (number,) = node_ports(opened)
    assert number in NODE_PORTS
    assert opened["spec"]["externalTrafficPolicy"] == "Cluster"
    closed = (await server.patch(path, {"spec": {"type": "ClusterIP"}})).body
    assert node_ports(closed) == [None]
    assert "externalTrafficPolicy" not in closed["spec"]
    other = service("other", type="NodePort", ports=[{"port": 1, "nodePort": number}])
    assert node_ports(await server.made(SERVICES, other)) == [number]
    named = {"spec": {"type": "ExternalName", "externalName": "example.com"}}
    external = (await server.patch(path, named)).body
    assert not {"clusterIP", "clusterIPs", "ipFamilies"} & {*external["spec"]}
    back = (await server.patch(path, {"spec": {"type": "ClusterIP"}})).body
    assert back["spec"]["clusterIP"] == made["spec"]["clusterIP"]


async def test_status_of_a_service_changes_nothing_else(server: Server) -> None:
    made = await server.made(SERVICES, service(type="LoadBalancer"))
    status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
    answer = await server.patch(f"{SERVICES}/web/status", {"status": status})
    assert answer.body["spec"] == made["spec"]


# --- unique, and for good ----------------------------------------------------------------------


async def test_addresses_are_unique_under_concurrent_creates(server: Server) -> None:
    async def make(number: int) -> None:
        await server.made(SERVICES, service(f"s{number}", type="NodePort"))

    async with Nursery("creates") as nursery:
        for number in range(300):
            nursery.start(make(number), name=f"create {number}")
    items = (await server.get(SERVICES)).body["items"]
    assert len({item["spec"]["clusterIP"] for item in items}) == 300
    assert len({node_ports(item)[0] for item in items}) == 300


async def test_address_of_a_deleted_service_is_free_again(server: Server) -> None:
    made = await server.made(SERVICES, service())
    await server.delete(f"{SERVICES}/web")
    other = service("other", clusterIP=made["spec"]["clusterIP"])
    await server.made(SERVICES, other)


async def test_same_service_gets_the_same_address_again(server: Server) -> None:
    made = await server.made(SERVICES, service(type="NodePort"))
    await server.delete(f"{SERVICES}/web")
    again = await server.made(SERVICES, service(type="NodePort"))
    assert again["spec"] == made["spec"]


async def test_refused_and_trial_writes_hold_nothing(server: Server) -> None:
    wanted = str(DEFAULT_NETWORK[77])
    trial = await server.create(SERVICES, service(clusterIP=wanted), dryRun="All")
    assert trial.body["spec"]["clusterIP"] == wanted
    assert (await server.create(SERVICES, service("other", clusterIP=wanted))).code == 201


class Refusing(MemoryStore):
    """A store whose disk is full for a while."""

    full = False

    async def put(self, *positional: Any, **named: Any) -> Any:
        if self.full:
            raise StorageFull("free space, then try again")
        return await super().put(*positional, **named)


async def test_write_that_the_store_refused_holds_nothing(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    store = Refusing()
    server = Server(clock=clock, rng=rng, log=log, store=store)
    await server.application.bootstrap()
    wanted = str(DEFAULT_NETWORK[77])
    store.full = True
    assert (await server.create(SERVICES, service(clusterIP=wanted))).code == 507
    store.full = False
    await server.made(SERVICES, service("other", clusterIP=wanted))


async def test_allocation_survives_a_restart(
    server: Server, clock: Clock, rng: Stream, log: Logger
) -> None:
    made = [await server.made(SERVICES, service(f"s{n}", type="NodePort")) for n in range(20)]
    again = Server(clock=clock, rng=rng, log=log, store=server.store)
    await again.application.bootstrap()
    for number, document in enumerate(made):
        assert (await again.get(f"{SERVICES}/s{number}")).body == document
        clash = service(f"t{number}", clusterIP=document["spec"]["clusterIP"])
        assert refusal(await again.create(SERVICES, clash)) == (422, ["spec.clusterIPs"])
        ports = [{"port": 80, "nodePort": node_ports(document)[0]}]
        clash = service(f"t{number}", type="NodePort", ports=ports)
        assert refusal(await again.create(SERVICES, clash)) == (422, ["spec.ports[0].nodePort"])


async def test_services_of_an_older_server_get_an_address(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    store = MemoryStore()
    body = b'{"apiVersion":"v1","kind":"Service","metadata":{"resourceVersion":"1","name":"web",'
    body += b'"namespace":"default","uid":"u"},"spec":{"type":"ClusterIP","ports":[{"port":80}]}}'
    await store.put(storage.key(SERVICE, "default", "web"), lambda _revision: body)
    server = Server(clock=clock, rng=rng, log=log, store=store)
    await server.application.bootstrap()
    spec = (await server.get(f"{SERVICES}/web")).body["spec"]
    assert IPv4Address(spec["clusterIP"]) in DEFAULT_NETWORK


async def test_full_range_is_an_error() -> None:
    allocator = ServiceAllocator(MemoryStore(), IPv4Network("127.0.200.0/31"))
    with pytest.raises(InternalError, match="range is full"):
        allocator.assign(storage.key(SERVICE, "default", "web"), service())


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "ClusterIP", "NodePort", "ExternalName", "restart"]),
        st.integers(0, 6),
    ),
    max_size=40,
)


async def started(store: MemoryStore, network: IPv4Network) -> Server:
    server = Server(
        clock=LoopClock(EPOCH),
        rng=Stream(1),
        log=Logger("test"),
        store=store,
        service_network=network,
    )
    await server.application.bootstrap()
    return server


@settings(max_examples=60, deadline=None)
@given(OPERATIONS)
async def test_nothing_is_ever_held_twice(operations: list[tuple[str, int]]) -> None:
    """In a range of six addresses, whatever is created, changed, deleted and restarted."""
    store, network = MemoryStore(), IPv4Network("127.0.200.0/29")
    server = await started(store, network)
    for verb, number in operations:
        path = f"{SERVICES}/s{number}"
        if verb == "restart":
            server = await started(store, network)
        elif verb == "delete":
            await server.delete(path)
        elif verb == "create":
            await server.create(SERVICES, service(f"s{number}", type="NodePort"))
        else:
            await server.patch(path, {"spec": {"type": verb, "externalName": "a.b"}})
        held = [item["spec"] for item in (await server.get(SERVICES)).body["items"]]
        addresses = [spec["clusterIP"] for spec in held if spec["type"] != "ExternalName"]
        numbers = [spec["ports"][0]["nodePort"] for spec in held if spec["type"] == "NodePort"]
        assert len(addresses) == len({*addresses})
        assert len(numbers) == len({*numbers})
        assert all(IPv4Address(address) in network for address in addresses)
