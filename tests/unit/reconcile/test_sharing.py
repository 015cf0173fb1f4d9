"""Pods of one template share their containers, and no reader notices."""

from typing import Any

import msgspec
from hypothesis import given, strategies as st

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, PodStatus
from grange.reconcile.interning import Sharing
from grange.sim import builders


def read(name: str, cpu: str, **options: Any) -> Pod:
    """A pod as it comes from the wire: nothing in it is shared."""
    document = builders.pod_document(name, requests={"cpu": cpu}, **options)
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def test_equal_containers_become_one_object() -> None:
    sharing = Sharing()
    one, two = sharing.slim(read("a", "1")), sharing.slim(read("b", "1"))
    assert two.spec.containers is one.spec.containers
    assert two.kind is one.kind
    assert two == read("b", "1")


def test_different_values_stay_apart_if_alike_at_first() -> None:
    sharing = Sharing()
    plain = sharing.slim(read("a", "1"))
    with_port = sharing.slim(read("b", "1", host_ports=[80]))
    assert with_port.spec.containers != plain.spec.containers
    assert with_port == read("b", "1", host_ports=[80])


def test_change_shares_with_what_it_replaces() -> None:
    sharing = Sharing()
    old = sharing.slim(read("a", "1"))
    new = sharing.slim(read("a", "1", nodeName="n1"), old)
    assert sharing.searches == 1
    assert new.spec.containers is old.spec.containers
    assert new == read("a", "1", nodeName="n1")


def test_a_change_of_the_status_keeps_the_spec() -> None:
    sharing = Sharing()
    old = sharing.slim(read("a", "1", nodeName="n1"))
    status = PodStatus(phase="Running")
    running = msgspec.structs.replace(read("a", "1", nodeName="n1"), status=status)
    new = sharing.slim(running, old)
    assert new.spec is old.spec
    assert new == running


def test_a_binding_shares_all_else_of_the_spec() -> None:
    sharing = Sharing()
    volumes = [{"name": "data", "emptyDir": {}}]
    old = sharing.slim(read("a", "1", volumes=volumes))
    new = sharing.slim(read("a", "1", volumes=volumes, nodeName="n1"), old)
    assert new.spec.volumes is old.spec.volumes
    assert new == read("a", "1", volumes=volumes, nodeName="n1")


def test_a_change_of_the_containers_shares_with_those_of_others() -> None:
    sharing = Sharing()
    other, old = sharing.slim(read("a", "2")), sharing.slim(read("b", "1"))
    assert sharing.slim(read("b", "2"), old).spec.containers is other.spec.containers


def test_what_shares_nothing_itself_is_no_pattern() -> None:
    """An informer's first objects are stored as they came; a change of one makes up for that."""
    sharing = Sharing()
    other, old = sharing.slim(read("a", "1")), read("b", "1")
    assert sharing.slim(read("b", "1"), old).spec.containers is other.spec.containers


@given(st.lists(st.tuples(st.sampled_from("123"), st.integers(0, 2)), max_size=12))
def test_what_comes_out_equals_what_went_in(drawn: list[tuple[str, int]]) -> None:
    sharing = Sharing()
    old: Pod | None = None
    for number, (cpu, port) in enumerate(drawn):
        pod = read(f"p{number}", cpu, host_ports=[port] if port else [])
        assert sharing.slim(pod) == pod
        new = sharing.slim(pod, old)
        assert new == pod
        old = new


def test_nodes_of_one_size_share_their_amounts() -> None:
    sharing = Sharing()

    def node(name: str, cpu: Any) -> Node:
        document = builders.node_document(name, capacity={"cpu": cpu, "pods": 10})
        return msgspec.json.decode(msgspec.json.encode(document), type=Node)

    one, two = sharing.slim(node("a", 4)), sharing.slim(node("b", 4))
    assert two.status.allocatable is one.status.capacity
    assert two == node("b", 4)
    assert sharing.slim(node("c", "4")).status.allocatable == {"cpu": "4", "pods": 10}
    assert sharing.slim(node("d", 4.0)).status.allocatable["cpu"] is not one.status.capacity["cpu"]


def test_other_objects_stay_as_they_are() -> None:
    anything = object()
    assert Sharing().slim(anything) is anything
