"""Flows of datagrams, connections of endpoints that are gone, and the policy ``Local``."""

from tests.unit.agent.test_service_routes import NETWORK, READY, WEB, service, slice_of

from grange.agent.service_proxy.draining import GRACE_S, Draining
from grange.agent.service_proxy.flow_table import IDLE_S, FlowTable
from grange.agent.service_proxy.routes import Endpoint, Frontend, Route, routes

FRONT = Frontend("127.9.128.7", 80)
END = Endpoint("127.9.0.1", 8080)


def client(number: int) -> tuple[str, int]:
    return ("127.0.0.1", number)


def test_idle_flow_ends_and_a_used_one_stays() -> None:
    table: FlowTable[str] = FlowTable()
    table.add(client(1), "a", 0.0)
    table.add(client(2), "b", 0.0)
    assert table.get(client(1), 30.0) == "a"
    assert list(table.expire(IDLE_S)) == ["b"]
    assert list(table.expire(30.0 + IDLE_S)) == ["a"]
    assert len(table) == 0


def test_flows_are_bounded() -> None:
    table: FlowTable[str] = FlowTable(limit=2)
    assert table.add(client(1), "a", 0.0) is None
    assert table.add(client(2), "b", 1.0) is None
    table.get(client(1), 2.0)
    assert table.add(client(3), "c", 3.0) == "b"
    assert table.add(client(3), "d", 4.0) == "c"
    assert sorted(table.select(lambda _: True)) == ["a", "d"]


def test_connections_of_a_gone_endpoint_have_a_grace() -> None:
    draining = Draining()
    there = {FRONT: Route(WEB, (), known=frozenset((END,)))}
    gone = {FRONT: Route(WEB, ())}
    links = {(FRONT, END)}
    assert draining.overdue(links, there, 0.0) == frozenset()
    assert draining.next_s(0.0) is None
    assert draining.overdue(links, gone, 10.0) == frozenset()
    assert draining.next_s(15.0) == GRACE_S - 5.0
    assert draining.overdue(links, gone, 10.0 + GRACE_S) == links


def test_endpoint_that_comes_back_keeps_its_connections() -> None:
    draining = Draining()
    there = {FRONT: Route(WEB, (END,), known=frozenset((END,)))}
    links = {(FRONT, END)}
    draining.overdue(links, {FRONT: Route(WEB, ())}, 0.0)
    assert draining.overdue(links, there, GRACE_S) == frozenset()
    assert draining.overdue(links, {FRONT: Route(WEB, ())}, GRACE_S + 1) == frozenset()


def test_connections_of_a_deleted_service_end_at_once() -> None:
    assert Draining().overdue({(FRONT, END)}, {}, 0.0) == {(FRONT, END)}


def test_local_policy_leaves_out_other_machines() -> None:
    here = slice_of(("127.9.0.1", READY), ("127.9.0.2", READY))
    here.endpoints[0]["nodeName"], here.endpoints[1]["nodeName"] = "a", "b"
    [route] = routes([service(internalTrafficPolicy="Local")], [here], NETWORK, {"a"}).values()
    assert route.endpoints == (END,)
    [route] = routes([service(internalTrafficPolicy="Local")], [here], NETWORK, {"c"}).values()
    assert route.endpoints == ()
    [route] = routes([service()], [here], NETWORK, {"a"}).values()
    assert len(route.endpoints) == 2


def test_udp_and_tcp_of_one_number_are_two() -> None:
    ports = [
        {"name": "a", "port": 53, "protocol": "UDP"},
        {"name": "b", "port": 53, "protocol": "TCP"},
        {"name": "c", "port": 53, "protocol": "SCTP"},
    ]
    found = routes([service(ports=ports)], [], NETWORK)
    assert sorted(item.protocol for item in found) == ["TCP", "UDP"]
