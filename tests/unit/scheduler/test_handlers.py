"""Events may be missed, merged or repeated; cache and queue follow what is true."""

from typing import Any

import msgspec
import pytest
from tests.support.scheduler_cluster import PROFILE, pool_of

from grange.api.kinds.pod import ContainerStatus, Pod, PodStatus
from grange.base.log import Logger
from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import Action, Subject, pod_update
from grange.scheduler.cycle import Cycle
from grange.scheduler.event_handlers import EventHandlers
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import SubQueue
from grange.sim import builders

OURS = frozenset({"default-scheduler"})


class Scene:
    def __init__(self, log: Logger) -> None:
        self.cache, self.queue = Cache(), SchedulingQueue(PROFILE)
        self.handlers = EventHandlers(
            Cycle(PROFILE, self.cache), self.queue, OURS, now=lambda: 0.0, log=log
        )

    @property
    def state(self) -> tuple[int, int]:
        """Pods in the cache and in the queue."""
        return self.cache.pod_count, len(self.queue)


@pytest.fixture
def scene(log: Logger) -> Scene:
    return Scene(log)


def pod(node: str = "", **options: Any) -> Pod:
    return builders.pod("p", nodeName=node, **options)


def finished(node: str) -> Pod:
    found = pod(node)
    return msgspec.structs.replace(
        found, status=msgspec.structs.replace(found.status, phase="Failed")
    )


def test_a_pod_goes_from_queue_to_cache_when_it_is_bound(scene: Scene) -> None:
    scene.handlers.pod_added(pod())
    assert scene.state == (0, 1)
    scene.handlers.pod_updated(pod(), pod("n"))
    assert scene.state == (1, 0)
    scene.handlers.pod_deleted(pod("n"))
    assert scene.state == (0, 0)


def test_repeated_events_change_nothing(scene: Scene) -> None:
    for _ in range(2):
        scene.handlers.pod_added(pod())
    assert scene.state == (0, 1)
    for _ in range(2):
        scene.handlers.pod_added(pod("n"))
    assert scene.state == (1, 0)
    for _ in range(2):
        scene.handlers.pod_deleted(pod("n"))
    assert scene.state == (0, 0)


def test_events_may_start_in_the_middle(scene: Scene) -> None:
    """An update of a pod, or the deletion of a node, that was never reported."""
    scene.handlers.pod_updated(pod("n"), pod("n", labels={"k": "v"}))
    assert scene.state == (1, 0)
    scene.handlers.node_deleted(builders.node("absent"))
    scene.handlers.node_updated(builders.node("n"), builders.node("n"))
    assert scene.cache.node_tree.list() == ["n"]
    scene.handlers.pod_deleted(builders.pod("never-seen"))
    assert scene.state == (1, 0)


def test_a_finished_pod_is_nowhere(scene: Scene) -> None:
    scene.handlers.pod_added(finished("n"))
    assert scene.state == (0, 0)
    scene.handlers.pod_added(pod("n"))
    scene.handlers.pod_updated(pod("n"), finished("n"))
    assert scene.state == (0, 0)
    scene.handlers.pod_updated(pod(), finished(""))
    assert scene.state == (0, 0)


def test_a_pod_on_its_way_out_is_not_queued(scene: Scene) -> None:
    found = pod()
    leaving = msgspec.structs.replace(
        found,
        metadata=msgspec.structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z"),
    )
    scene.handlers.pod_added(leaving)
    assert scene.state == (0, 0)
    scene.handlers.pod_added(found)
    scene.handlers.pod_updated(found, leaving)
    assert scene.state == (0, 0)


def test_an_assumed_pod_is_not_queued_by_its_own_updates(scene: Scene) -> None:
    scene.cache.assume_pod(pod("n"))
    scene.handlers.pod_updated(pod(), pod(labels={"k": "v"}))
    assert scene.state == (1, 0)
    scene.handlers.pod_deleted(pod())
    assert scene.state == (0, 0)


def test_the_deletion_of_a_pod_calls_those_that_wait_for_room(scene: Scene) -> None:
    scene.handlers.pod_added(builders.pod("waiting", requests={"cpu": 1}))
    waiting = scene.queue.pop(0.0)
    assert waiting is not None
    scene.handlers.pod_added(pod("n"))
    scene.queue.mark_unschedulable(waiting, frozenset({"NodeResourcesFit"}), 0.0)
    scene.handlers.pod_updated(pod("n"), finished("n"))
    assert pool_of(scene.queue, waiting.uid) is SubQueue.BACKOFF


def test_node_is_charged_for_a_resize_until_it_is_over(scene: Scene) -> None:
    def running(asked: str, allocated: str, pending: str = "") -> Pod:
        found = pod("n", requests={"cpu": asked})
        conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}]
        body = {
            "containerStatuses": [
                {"name": found.spec.containers[0].name, "allocatedResources": {"cpu": allocated}}
            ],
            "conditions": conditions if pending else [],
        }
        return msgspec.structs.replace(found, status=msgspec.convert(body, PodStatus))

    def charged() -> int:
        info = scene.cache.info(pod().metadata.uid)
        assert info is not None
        return info.request.resources.cpu_milli

    steps = [
        (running("1", "1"), 1000),
        (running("1", "2"), 2000),  # shrinking: the node has not given it back yet
        (running("8", "2"), 8000),
        (running("8", "2", "Infeasible"), 2000),
        (running("2", "2"), 2000),
    ]
    before = pod("n", requests={"cpu": "1"})
    scene.handlers.pod_added(before)
    for after, cpu in steps:
        scene.handlers.pod_updated(before, after)
        assert charged() == cpu
        before = after


def test_end_of_a_resize_calls_those_that_wait_for_room(scene: Scene) -> None:
    old = pod("n", requests={"cpu": "1"})
    status = ContainerStatus(old.spec.containers[0].name, allocated_resources={"cpu": "2"})
    shrinking = msgspec.structs.replace(old, status=PodStatus(container_statuses=(status,)))
    event = pod_update(PodInfo.of(shrinking), PodInfo.of(old), Subject.ASSIGNED_POD)
    assert event is not None
    assert event.action & Action.POD_SCALE_DOWN
    assert pod_update(PodInfo.of(old), PodInfo.of(shrinking), Subject.ASSIGNED_POD) is None


def test_amounts_that_make_no_sense_leave_the_rest_alone(
    scene: Scene, records: list[tuple[str, dict[str, object]]]
) -> None:
    """The server refuses them; where one slips through it is logged, and nothing else suffers."""
    scene.handlers.node_added(builders.node("odd", capacity={"cpu": "lots"}))
    scene.handlers.pod_added(pod(requests={"cpu": "much"}))
    scene.handlers.node_added(builders.node("fine"))
    assert scene.cache.node_tree.list() == ["fine"]
    assert scene.state == (0, 0)
    assert [event for event, _ in records] == ["node left as it was", "pod left out"]
    scene.handlers.node_updated(builders.node("odd"), builders.node("odd"))
    assert scene.cache.node_tree.list() == ["fine", "odd"]
