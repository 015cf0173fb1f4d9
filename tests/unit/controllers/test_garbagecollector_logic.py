"""Who goes when owners go."""

from dataclasses import replace

import msgspec
import pytest

from grange.api.kinds import NAMESPACE, NODE, POD, REPLICATIONCONTROLLER
from grange.api.meta import ObjectKey, Resource
from grange.controllers.garbagecollector import logic
from grange.controllers.garbagecollector.graph import FOREGROUND, ORPHAN, Graph, GraphNode
from grange.controllers.garbagecollector.logic import Delete, KeepObject, OwnerState


def entry(
    uid: str,
    *owners: str,
    deleting: bool = False,
    finalizers: tuple[str, ...] = (),
    blocks: bool = True,
) -> GraphNode:
    references = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": owner,
            "uid": owner,
            "blockOwnerDeletion": blocks,
        }
        for owner in owners
    ]
    meta = {
        "name": uid,
        "namespace": "default",
        "uid": uid,
        "ownerReferences": references,
        "finalizers": list(finalizers),
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleting else {}),
    }
    return GraphNode.of(POD, msgspec.convert({"metadata": meta}, Resource))


def test_an_object_without_owners_is_never_looked_at() -> None:
    assert Graph().put(entry("a")) == []


def test_an_object_whose_owner_is_not_known_is_looked_at_once() -> None:
    graph = Graph()
    assert graph.put(entry("a", "missing")) == ["a"]
    assert graph.put(entry("a", "missing")) == []


def test_the_dependents_of_an_object_that_went_are_looked_at() -> None:
    graph = Graph()
    graph.put(entry("owner"))
    assert graph.put(entry("a", "owner")) == []
    assert graph.put(entry("b", "owner")) == []
    assert graph.remove("owner") == ["a", "b"]


def test_waiting_owner_is_checked_when_a_dependent_goes() -> None:
    graph = Graph()
    waiting = entry("owner", deleting=True, finalizers=(FOREGROUND,))
    assert graph.put(waiting) == ["owner"]
    assert graph.put(entry("a", "owner")) == ["a", "owner"]
    assert graph.put(entry("b", "owner")) == ["b", "owner"]
    assert [item.uid for item in graph.blockers("owner")] == ["a", "b"]
    assert graph.put(entry("b", "owner", blocks=False)) == ["b", "owner"]
    assert [item.uid for item in graph.blockers("owner")] == ["a"]
    assert graph.remove("a") == ["owner"]
    assert graph.put(entry("b")) == ["owner"]
    assert graph.dependents("owner") == []


def test_reference_with_another_name_for_its_uid_is_checked() -> None:
    graph = Graph()
    graph.put(entry("owner"))
    renamed = replace(entry("a", "owner"), key=ObjectKey("elsewhere", "a"))
    assert graph.put(renamed) == ["a"]


def test_suspects_are_those_that_need_a_look_after_a_restart() -> None:
    graph = Graph()
    for item in (
        entry("fine", "owner"),
        entry("owner"),
        entry("dangling", "gone"),
        entry("orphaning", deleting=True, finalizers=(ORPHAN,)),
    ):
        graph.put(item)
    assert graph.suspects() == ["dangling", "orphaning"]


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ({}, KeepObject()),
        ({"a": OwnerState.ALIVE}, KeepObject()),
        ({"a": OwnerState.GONE}, Delete("Background")),
        ({"a": OwnerState.GONE, "b": OwnerState.GONE}, Delete("Background")),
        (
            {"a": OwnerState.ALIVE, "b": OwnerState.GONE, "c": OwnerState.WAITING},
            KeepObject(("b", "c")),
        ),
        ({"a": OwnerState.GONE, "b": OwnerState.UNKNOWN}, KeepObject()),
        ({"a": OwnerState.ALIVE, "b": OwnerState.UNKNOWN, "c": OwnerState.GONE}, KeepObject()),
        ({"a": OwnerState.WAITING}, Delete("Foreground")),
        ({"a": OwnerState.WAITING, "b": OwnerState.GONE}, Delete("Foreground")),
    ],
)
def test_decide_follows_the_table(
    states: dict[str, OwnerState], verdict: KeepObject | Delete
) -> None:
    assert logic.decide(entry("x", *states), states, has_dependents=True) == verdict


def test_decide_leaves_what_is_on_its_way_out() -> None:
    going = entry("x", "a", deleting=True)
    assert logic.decide(going, {"a": OwnerState.GONE}, has_dependents=False) == KeepObject()


def test_decide_passes_on_what_the_finalizers_ask() -> None:
    gone = {"a": OwnerState.GONE}
    orphaning = entry("x", "a", finalizers=(ORPHAN,))
    assert logic.decide(orphaning, gone, has_dependents=True) == Delete("Orphan")
    foreground = entry("x", "a", finalizers=(FOREGROUND,))
    assert logic.decide(foreground, gone, has_dependents=True) == Delete("Foreground")


def test_a_cluster_scoped_object_cannot_have_a_namespaced_owner() -> None:
    node = GraphNode(NODE, entry("n").key, "n")
    assert not logic.is_possible_owner(REPLICATIONCONTROLLER, node)
    assert logic.is_possible_owner(NAMESPACE, node)
    assert logic.is_possible_owner(NODE, entry("pod"))
