"""The envelope, and what the views of pods and nodes know of themselves."""

import gc
import re
from collections.abc import Iterator
from typing import get_type_hints

from tests.unit.api.documents import TYPICAL

from grange.api import codec
from grange.api.kinds import node, pod
from grange.api.kinds.pod import Pod
from grange.api.meta import Condition, ObjectKey, ObjectMeta, OwnerReference, View, controller_of
from grange.api.selectors import Labels


def test_keys_read_as_people_write_them() -> None:
    view = Pod(metadata=ObjectMeta(name="web", namespace="default"))
    assert view.key == ObjectKey("default", "web")
    assert str(view.key) == "default/web"
    assert str(ObjectKey("", "n1")) == "n1"


def test_the_controller_is_the_owner_that_controls() -> None:
    plain = OwnerReference(api_version="v1", kind="Pod", name="a", uid="1")
    controls = OwnerReference(api_version="v1", kind="Pod", name="b", uid="2", controller=True)
    assert controller_of(ObjectMeta(owner_references=(plain, controls))) is controls
    assert controller_of(ObjectMeta(owner_references=(plain,))) is None


def test_pods_know_whether_they_are_ready_and_finished() -> None:
    ready = Pod(status=pod.PodStatus(conditions=(Condition(type="Ready", status="True"),)))
    leaving = codec.convert(
        {**codec.to_document(ready), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Pod
    )
    assert pod.is_ready(ready)
    assert not pod.is_ready(leaving)
    assert not pod.is_ready(Pod())
    assert pod.condition(ready, "Ready") is not None
    assert pod.condition(ready, "Initialized") is None
    assert [
        pod.is_finished(Pod(status=pod.PodStatus(phase=phase))) for phase in ("Failed", "Running")
    ] == [
        True,
        False,
    ]


def test_nodes_know_whether_they_are_ready() -> None:
    status = node.NodeStatus(conditions=(Condition(type="Ready", status="True"),))
    assert node.is_ready(node.Node(status=status))
    assert not node.is_ready(node.Node())


def test_selectors_are_equal_to_selectors_only() -> None:
    assert Labels.parse("a=b") != "a=b"


def views() -> Iterator[type[View]]:
    """Every view that the kinds are made of."""
    waiting = View.__subclasses__()
    while waiting:
        view = waiting.pop()
        waiting += view.__subclasses__()
        if view.__module__.startswith("grange.api."):
            yield view


def test_views_hold_tuples_and_no_lists() -> None:
    """A list is tracked by the cyclic garbage collector as long as it lives, so that every full
    collection walks all lists of all cached objects (150 ms for 20,000 pods) and young ones are
    promoted through every generation while objects are decoded. Tuples of what the collector does
    not track are untracked at its first look, and the empty one is shared.
    """
    lists = [
        f"{view.__name__}.{name}: {hint}"
        for view in views()
        for name, hint in get_type_hints(view).items()
        if re.search(r"\b(list|set)\b", str(hint), re.IGNORECASE)
    ]
    assert {pod.Pod, pod.Container, node.Node} <= set(views())
    assert lists == []


def test_the_garbage_collector_forgets_what_a_pod_consists_of() -> None:
    view = codec.decode_view(TYPICAL, pod.Pod)
    gc.collect()
    container = view.spec.containers[0]
    held = (view.spec.containers, container.env, container.args)
    assert all(held)
    assert [gc.is_tracked(item) for item in (view, view.metadata.labels, *held)] == [False] * 5


def test_views_become_documents_with_lists() -> None:
    owner = OwnerReference(api_version="v1", kind="Pod", name="a", uid="1")
    view = Pod(metadata=ObjectMeta(name="b", owner_references=(owner,), finalizers=("f",)))
    assert codec.to_document(view)["metadata"] == {
        "name": "b",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}],
        "finalizers": ["f"],
    }
