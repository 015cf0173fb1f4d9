"""Where the addresses of Services lead, and which endpoint a client gets."""

from ipaddress import IPv4Network
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from grange.agent.service_proxy.balancer import Balancer
from grange.agent.service_proxy.routes import (
    Endpoint,
    Frontend,
    PodIdentity,
    Route,
    is_exposed,
    routes,
)
from grange.agent.service_variables import service_variables
from grange.api.kinds.endpointslice import EndpointSlice
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.meta import ObjectKey

NETWORK = IPv4Network("127.9.128.0/17")
WEB = ObjectKey("default", "web")


def service(name: str = "web", address: str = "127.9.128.7", **spec: Any) -> Service:
    ports = spec.pop("ports", [{"name": "http", "port": 80, "targetPort": 8080}])
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterIP": address, "ports": ports, **spec},
        },
        Service,
    )


def slice_of(
    *endpoints: tuple[str, dict[str, bool]],
    name: str = "web",
    port: int = 8080,
    label: str = "http",
) -> EndpointSlice:
    return msgspec.convert(
        {
            "metadata": {
                "name": f"{name}-x",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": [address], "conditions": conditions}
                for address, conditions in endpoints
            ],
            "ports": [{"name": label, "port": port, "protocol": "TCP"}],
        },
        EndpointSlice,
    )


READY = {"ready": True, "serving": True, "terminating": False}
WAITING = {"ready": False, "serving": False, "terminating": False}
LEAVING = {"ready": False, "serving": True, "terminating": True}


def test_cluster_address_leads_to_ready_endpoints() -> None:
    slices = [slice_of(("127.9.0.2", READY), ("127.9.0.1", READY), ("127.9.0.3", WAITING))]
    first, second, waiting = (Endpoint(f"127.9.0.{n}", 8080) for n in (1, 2, 3))
    assert routes([service()], slices, NETWORK) == {
        Frontend("127.9.128.7", 80): Route(
            WEB, (first, second), known=frozenset((first, second, waiting))
        )
    }


def test_endpoints_that_terminate_are_the_last_resort() -> None:
    leaving = slice_of(("127.9.0.1", LEAVING), ("127.9.0.2", WAITING))
    [route] = routes([service()], [leaving], NETWORK).values()
    assert route.endpoints == (Endpoint("127.9.0.1", 8080),)
    both = slice_of(("127.9.0.1", LEAVING), ("127.9.0.2", READY))
    [route] = routes([service()], [both], NETWORK).values()
    assert route.endpoints == (Endpoint("127.9.0.2", 8080),)


def placed(address: str, node: str, protocol: str = "TCP") -> EndpointSlice:
    """A slice with one endpoint, which is a pod on a node."""
    target = {"kind": "Pod", "namespace": "default", "name": "p", "uid": f"u-{node}"}
    document = msgspec.json.decode(msgspec.json.encode(slice_of((address, READY))))
    document["endpoints"][0] |= {"nodeName": node, "targetRef": target}
    document["ports"][0]["protocol"] = protocol
    return msgspec.convert(document, EndpointSlice)


def leads_to(*slices: EndpointSlice, **more: Any) -> tuple[Endpoint, ...]:
    [route] = routes([service(**more)], slices, NETWORK, ("here",)).values()
    assert route.known >= set(route.endpoints)
    return route.endpoints


def test_pods_on_other_machines_are_reached_by_their_nodes() -> None:
    far = Endpoint("127.9.0.1", 8080, "far", PodIdentity("default", "p", "u-far"))
    here, plain = Endpoint("127.9.0.1", 8080), Endpoint("10.1.2.3", 8080)
    # Machines with the same range give the same addresses.
    assert leads_to(placed("127.9.0.1", "far"), placed("127.9.0.1", "here")) == (here, far)
    assert leads_to(placed("10.1.2.3", "far")) == (plain,)
    assert leads_to(placed("127.9.0.1", "far"), internalTrafficPolicy="Local") == ()


def test_datagrams_reach_pods_on_other_machines() -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "UDP"}]
    slices = placed("127.9.0.1", "far", "UDP"), placed("127.9.0.2", "here", "UDP")
    far = Endpoint("127.9.0.1", 8080, "far", PodIdentity("default", "p", "u-far"))
    assert leads_to(*slices, ports=ports) == (far, Endpoint("127.9.0.2", 8080))


def test_api_server_is_where_the_agent_reaches_it() -> None:
    api = Endpoint("api.example", 6443)
    slices = [slice_of(("127.0.0.1", READY), name="kubernetes")]
    for there, wanted in ((api, api), (None, Endpoint("127.0.0.1", 8080))):
        found = routes([service("kubernetes")], slices, NETWORK, ("here",), there)
        assert [route.endpoints for route in found.values()] == [(wanted,)]


def test_only_ports_of_services_are_exposed() -> None:
    slices = [placed("127.9.0.1", "here"), placed("127.9.0.2", "far")]
    assert is_exposed(slices, ("here",), "u-here", 8080)
    assert not is_exposed(slices, ("here",), "u-here", 22)
    assert not is_exposed(slices, ("here",), "u-far", 8080)
    assert not is_exposed(slices, ("here",), "", 8080)
    datagrams = [placed("127.9.0.1", "here", "UDP")]
    assert not is_exposed(datagrams, ("here",), "u-here", 8080)
    assert is_exposed(datagrams, ("here",), "u-here", 8080, "UDP")
    assert not is_exposed(slices, ("here",), "u-here", 8080, "UDP")


@pytest.mark.parametrize(
    ("found", "slices"),
    [
        (service(), []),
        (service(), [slice_of(("127.9.0.1", WAITING))]),
        (service(), [slice_of(("127.9.0.1", READY), label="other")]),
        (service(), [slice_of(("127.9.0.1", READY), name="other")]),
        (service(address="None"), [slice_of(("127.9.0.1", READY))]),
        (service(address=""), [slice_of(("127.9.0.1", READY))]),
        (service(address="10.0.0.1"), [slice_of(("127.9.0.1", READY))]),
        (service(type="ExternalName"), [slice_of(("127.9.0.1", READY))]),
    ],
)
def test_nothing_is_listened_on_without_need(found: Service, slices: list[EndpointSlice]) -> None:
    assert not any(route.endpoints for route in routes([found], slices, NETWORK).values())


def test_node_ports_are_of_this_machine() -> None:
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30001}]
    found = routes(
        [service(type="NodePort", ports=ports)], [slice_of(("127.9.0.1", READY))], NETWORK
    )
    assert sorted(found) == [Frontend("127.0.0.1", 30001), Frontend("127.9.128.7", 80)]


def test_endpoints_are_taken_in_turn_and_each_once() -> None:
    endpoints = tuple(Endpoint(f"127.9.0.{n}", 80) for n in range(1, 4))
    balancer = Balancer(Route(WEB, endpoints))
    chosen = [balancer.choose("c", 0.0, frozenset()) for _ in range(6)]
    assert chosen == [*endpoints, *endpoints]
    assert balancer.choose("c", 0.0, frozenset(endpoints[:2])) == endpoints[2]
    assert balancer.choose("c", 0.0, frozenset(endpoints)) is None


def test_client_keeps_its_endpoint_until_it_is_silent() -> None:
    endpoints = tuple(Endpoint(f"127.9.0.{n}", 80) for n in range(1, 4))
    balancer = Balancer(Route(WEB, endpoints, affinity_s=60))
    first = balancer.choose("one", 0.0, frozenset())
    assert balancer.choose("two", 1.0, frozenset()) != first
    assert [balancer.choose("one", float(now), frozenset()) for now in (50, 100)] == [first, first]
    assert first is not None
    balancer.route = Route(WEB, tuple(e for e in endpoints if e != first), affinity_s=60)
    assert balancer.choose("one", 110.0, frozenset()) != first


@given(st.lists(st.integers(0, 5)), st.sets(st.integers(0, 5), min_size=1))
def test_choice_is_one_of_the_endpoints(tried: list[int], there: set[int]) -> None:
    endpoints = tuple(Endpoint(f"127.9.0.{n}", 80) for n in sorted(there))
    left = set(endpoints) - {Endpoint(f"127.9.0.{n}", 80) for n in tried}
    refused = frozenset(Endpoint(f"127.9.0.{n}", 80) for n in tried)
    chosen = Balancer(Route(WEB, endpoints)).choose("c", 0.0, refused)
    assert chosen in left if left else chosen is None


def pod(**spec: Any) -> Pod:
    document = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [], **spec},
    }
    return msgspec.convert(document, Pod)


def test_containers_find_services_by_variables() -> None:
    found = service_variables(pod(), [service("my-web"), service("none", address="None")])
    assert found == {
        "MY_WEB_SERVICE_HOST": "127.9.128.7",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_PORT": "tcp://127.9.128.7:80",
        "MY_WEB_PORT_80_TCP": "tcp://127.9.128.7:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "127.9.128.7",
    }
    assert service_variables(pod(enableServiceLinks=False), [service()]) == {}
