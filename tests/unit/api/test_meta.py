"""The envelope, and what the views of pods and nodes know of themselves."""

from grange.api import codec
from grange.api.kinds import node, pod
from grange.api.kinds.pod import Pod
from grange.api.meta import Condition, ObjectKey, ObjectMeta, OwnerReference, controller_of
from grange.api.selectors import Labels


def test_keys_read_as_people_write_them() -> None:
    view = Pod(metadata=ObjectMeta(name="web", namespace="default"))
    assert view.key == ObjectKey("default", "web")
    assert str(view.key) == "default/web"
    assert str(ObjectKey("", "n1")) == "n1"


def test_the_controller_is_the_owner_that_controls() -> None:
    plain = OwnerReference(api_version="v1", kind="Pod", name="a", uid="1")
    controls = OwnerReference(api_version="v1", kind="Pod", name="b", uid="2", controller=True)
    assert controller_of(ObjectMeta(owner_references=[plain, controls])) is controls
    assert controller_of(ObjectMeta(owner_references=[plain])) is None


def test_pods_know_whether_they_are_ready_and_finished() -> None:
    ready = Pod(status=pod.PodStatus(conditions=[Condition(type="Ready", status="True")]))
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
    status = node.NodeStatus(conditions=[Condition(type="Ready", status="True")])
    assert node.is_ready(node.Node(status=status))
    assert not node.is_ready(node.Node())


def test_selectors_are_equal_to_selectors_only() -> None:
    assert Labels.parse("a=b") != "a=b"
