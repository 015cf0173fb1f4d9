"""The store answers by key, by namespace and by index, in a fixed order."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings, strategies as st

from grange.api.kinds.pod import Pod, PodSpec
from grange.api.meta import ObjectKey, ObjectMeta
from grange.reconcile.indexer import Indexer


def pod(name: str, node: str = "", namespace: str = "ns", **labels: str) -> Pod:
    meta = ObjectMeta(name=name, namespace=namespace, labels=labels)
    return Pod(metadata=meta, spec=PodSpec(node_name=node))


def put(store: Indexer[Pod], obj: Pod) -> None:
    store.put(obj.key, obj, store.get(obj.key))


def names(objects: Iterable[Pod]) -> list[str]:
    return [obj.metadata.name for obj in objects]


def by_node(obj: Pod) -> tuple[str, ...]:
    return (obj.spec.node_name,) if obj.spec.node_name else ()


def test_order_is_that_of_insertion_and_survives_replacement() -> None:
    """Readers of the store must see the same order in every run of the same seed."""
    store: Indexer[Pod] = Indexer()
    for name in "cab":
        put(store, pod(name))
    put(store, pod("c", "n1"))
    assert names(store) == names(store.list()) == ["c", "a", "b"]


def test_namespace_listing_sees_later_changes() -> None:
    store: Indexer[Pod] = Indexer()
    put(store, pod("a", namespace="one"))
    assert names(store.list("one")) == ["a"]
    put(store, pod("b", namespace="one"))
    put(store, pod("c", namespace="two"))
    store.remove(ObjectKey("one", "a"))
    assert names(store.list("one")) == ["b"]
    assert names(store.list("two")) == ["c"]
    assert names(store.list("three")) == []


def test_lists_are_copies() -> None:
    store: Indexer[Pod] = Indexer()
    put(store, pod("a"))
    before = store.list()
    put(store, pod("b"))
    assert names(before) == ["a"]


def test_index_added_late_and_twice_covers_what_is_there() -> None:
    store: Indexer[Pod] = Indexer()
    put(store, pod("a", "n1"))
    store.add_index("node", by_node)
    store.add_index("node", lambda obj: ("something else",))
    put(store, pod("b", "n1"))
    assert names(store.by_index("node", "n1")) == ["a", "b"]


def test_unknown_index_is_an_error() -> None:
    with pytest.raises(KeyError):
        Indexer[Pod]().by_index("nope", "x")


def test_object_may_have_several_values_in_an_index() -> None:
    store: Indexer[Pod] = Indexer()
    store.add_index("label", lambda obj: obj.metadata.labels)
    put(store, pod("a", x="", y=""))
    put(store, pod("a", y="", z=""))
    assert [names(store.by_index("label", value)) for value in "xyz"] == [[], ["a"], ["a"]]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "remove"]), st.sampled_from("abcd"), st.sampled_from(["", "1", "2"])
    ),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS)
def test_indexes_agree_with_a_scan(steps: list[tuple[str, str, str]]) -> None:
    store: Indexer[Pod] = Indexer()
    store.add_index("node", by_node)
    for action, name, node in steps:
        if action == "put":
            put(store, pod(name, node))
        else:
            store.remove(ObjectKey("ns", name))
        for value in ("1", "2"):
            scanned = {obj.metadata.name for obj in store if obj.spec.node_name == value}
            assert set(names(store.by_index("node", value))) == scanned
        assert store.list("ns") == store.list()
