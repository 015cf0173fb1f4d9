"""Disk pressure and limits of storage: what a node reports, which pods it evicts, which it refuses."""

import pytest
from tests.support.agent_world import World, world
from tests.unit.agent.builders import container, document, pod

from grange.agent import eviction_ranking, eviction_thresholds
from grange.agent.eviction_ranking import PodUsage
from grange.agent.eviction_thresholds import ThresholdError
from grange.agent.node_disk import FileSystemStats, PodStorage
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream

MIB, GIB = 2**20, 2**30
DISK = FileSystemStats(100 * GIB, 50 * GIB, 1000, 500)
LOW = DISK._replace(available=GIB * 3 // 4)
Tools = tuple[Clock, Stream, Logger]


@pytest.fixture
def tools(clock: Clock, rng: Stream, log: Logger) -> Tools:
    return clock, rng, log


# --- thresholds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stats", "signal"),
    [
        ("nodefs.available<10%", DISK, ""),
        ("nodefs.available<10%", LOW, "nodefs.available"),
        ("nodefs.available<512Mi", LOW, ""),
        ("nodefs.available<0.8Gi", LOW, "nodefs.available"),
        ("nodefs.available<0.5%, nodefs.inodesFree<60%", LOW, "nodefs.inodesFree"),
        ("nodefs.inodesFree<5%", DISK._replace(inodes=0, inodes_free=0), ""),
        ("none", LOW._replace(available=0), ""),
    ],
)
def test_threshold_is_met_below_what_it_names(
    text: str, stats: FileSystemStats, signal: str
) -> None:
    met = eviction_thresholds.first_met(eviction_thresholds.parse(text), stats)
    assert (met.signal if met else "") == signal


@pytest.mark.parametrize(
    "text",
    ["", "nodefs.available", "nodefs.available<", "memory.available<1Gi", "nodefs.available<100%",
     "nodefs.available<-1", "nodefs.available<much", "nodefs.available<x%", "none,none"],
)  # fmt: skip
def test_malformed_threshold_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ThresholdError) as caught:
        eviction_thresholds.parse(text)
    assert str(caught.value).startswith(f'"{text.split(",", maxsplit=1)[0]}": ')


# --- ranking ---------------------------------------------------------------------------------------


def using(name: str, used: int, request: str = "0", priority: int = 0) -> PodUsage:
    made: Pod = pod(
        container(resources={"requests": {"ephemeral-storage": request}}),
        meta={"name": name, "uid": name},
        priority=priority,
    )
    return PodUsage(made, PodStorage(containers={"main": used}))


def test_pods_beyond_their_request_go_first_then_by_priority() -> None:
    used = [
        using("within", 5 * GIB, "6Gi", priority=-10),
        using("small", 1 * GIB),
        using("big", 3 * GIB),
        using("important", 9 * GIB, priority=100),
        using("critical", 20 * GIB, priority=2_000_000_000),
    ]
    order = []
    while (chosen := eviction_ranking.first_to_evict(used)) is not None:
        order.append(chosen.pod.metadata.name)
        used.remove(chosen)
    assert order == ["big", "small", "important", "within"]
    assert [item.pod.metadata.name for item in used] == ["critical"]


LIMITED = {"limits": {"ephemeral-storage": "1Gi"}}


@pytest.mark.parametrize(
    ("storage", "why"),
    [
        (PodStorage({"data": MIB}, containers={"main": 1023 * MIB}), ""),
        (PodStorage({"data": MIB + 1}), 'EmptyDir volume "data" exceeds the limit "1Mi"'),
        (PodStorage(containers={"main": GIB + 1}), "total limit of containers 1Gi"),
        (PodStorage(containers={"main": 1}, shared=GIB), "total limit of containers 1Gi"),
        (PodStorage({"data": MIB}, frozenset({"data"}), {"main": GIB}), ""),
    ],
)
def test_pod_beyond_its_limits_is_found_with_the_reason(storage: PodStorage, why: str) -> None:
    limited = pod(
        container(resources=LIMITED), volumes=[{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]
    )
    assert eviction_ranking.is_limited(limited)
    assert why in (found := eviction_ranking.over_limit(PodUsage(limited, storage)))
    assert bool(found) == bool(why)


@pytest.mark.parametrize("size", ["much", "-1"])
def test_malformed_limit_of_a_stored_pod_is_none(size: str) -> None:
    made = pod(volumes=[{"name": "data", "emptyDir": {"sizeLimit": size}}])
    assert not eviction_ranking.over_limit(PodUsage(made, PodStorage({"data": GIB})))


def test_critical_pod_is_kept_beyond_its_limits() -> None:
    made = pod(container(resources=LIMITED), priority=2_000_000_000)
    assert not eviction_ranking.over_limit(PodUsage(made, PodStorage(containers={"main": 2 * GIB})))


def test_limit_of_one_container_holds_for_that_container() -> None:
    limited = pod(container(resources=LIMITED), container("other"))
    storage = PodStorage(containers={"main": 1, "other": 5 * GIB})
    assert not eviction_ranking.over_limit(PodUsage(limited, storage))
    storage = PodStorage(containers={"main": GIB + 1})
    why = eviction_ranking.over_limit(PodUsage(limited, storage))
    assert why == 'Container main exceeded its local ephemeral storage limit "1Gi". '
    assert not eviction_ranking.is_limited(pod(container("other")))


# --- the agent -------------------------------------------------------------------------------------


async def pressure(there: World) -> tuple[str, str, str]:
    found = {item.type: item for item in (await there.node()).status.conditions}["DiskPressure"]
    return found.status, found.reason, found.message


async def test_pressure_is_reported_and_ends_after_five_minutes(tools: Tools) -> None:
    async with world(*tools) as there:
        there.machine.disk.left = DISK
        await there.clock.sleep(15)
        assert await pressure(there) == ("False", "AgentHasNoDiskPressure", "the disk has room")
        there.machine.disk.left = LOW
        await there.clock.sleep(25)
        message = "nodefs.available is 768Mi, less than 1Gi"
        assert await pressure(there) == ("True", "AgentHasDiskPressure", message)
        there.machine.disk.left = DISK
        await there.clock.sleep(280)
        assert (await pressure(there))[0] == "True"
        await there.clock.sleep(40)
        assert (await pressure(there))[0] == "False"


async def test_pods_are_evicted_one_by_one_until_the_disk_has_room(tools: Tools) -> None:
    async with world(*tools) as there:
        disk = there.machine.disk
        disk.left = DISK
        await there.clock.sleep(1)
        names = ("small", "big", "bigger")
        for name, used in zip(names, (GIB // 16, GIB // 4, GIB * 3 // 8), strict=True):
            made = await there.create(document(container(program="stubborn"), name=name))
            await there.until_ready(name)
            disk.used[made.metadata.uid] = PodStorage(containers={"main": used})
        disk.left = DISK._replace(available=GIB // 2)
        await there.clock.sleep(60)
        phases = {name: (await there.pod(name)).status.phase for name in names}
        assert phases == {"small": "Running", "big": "Failed", "bigger": "Failed"}
        evicted = (await there.pod("bigger")).status
        assert evicted.reason == "Evicted"
        assert evicted.message == (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: "
            "512Mi. Container main was using 384Mi, request is 0, has larger consumption of "
            "ephemeral-storage. "
        )
        assert disk.left.available == GIB * 9 // 8
        target = await there.condition("DisruptionTarget", "big")
        assert target[:2] == ("True", "TerminationByKubelet")
        assert ("Evicted", evicted.message) in await there.events()


async def test_files_of_finished_pods_go_before_running_pods(tools: Tools) -> None:
    async with world(*tools) as there:
        disk = there.machine.disk
        disk.left = DISK
        await there.clock.sleep(1)
        for name, program in (("done", "well"), ("failed", "badly"), ("runs", "forever")):
            spec = document(container(program=program), name=name, restartPolicy="Never")
            made = await there.create(spec)
            disk.used[made.metadata.uid] = PodStorage(containers={"main": GIB // 2})
        await there.until_phase("Succeeded", "done")
        await there.until_phase("Failed", "failed")
        await there.clock.sleep(25)
        disk.left = DISK._replace(available=GIB // 2)
        await there.clock.sleep(25)
        assert disk.left.available == GIB * 3 // 2
        assert [(await there.pod(name)).status.phase for name in ("done", "failed", "runs")] == [
            "Succeeded",
            "Failed",
            "Running",
        ]
        assert (await pressure(there))[0] == "True", "for five minutes more"
        disk.left = LOW
        await there.until_phase("Failed", "runs")


async def test_node_under_pressure_takes_only_critical_pods(tools: Tools) -> None:
    async with world(*tools) as there:
        there.machine.disk.left = LOW
        await there.clock.sleep(15)
        await there.create(document(name="web"))
        await there.create(document(name="needed", priorityClassName="system-node-critical"))
        await there.until_ready("needed")
        refused = (await there.pod()).status
        assert (refused.phase, refused.reason) == ("Failed", "Evicted")
        assert refused.message == "The node had condition: [DiskPressure]. "
        await there.clock.sleep(60)
        assert (await there.pod("needed")).status.phase == "Running"


async def test_new_agent_takes_no_pods_before_it_knows_the_disk(tools: Tools) -> None:
    async with world(*tools) as there:
        there.crash_agent()
        there.machine.disk.left = LOW
        await there.create(document())
        there.start_agent()
        await there.clock.sleep(5)
        assert (await there.pod()).status.reason == "Evicted"
        assert there.machine.starts == []


async def test_pod_beyond_its_limit_is_evicted_without_pressure(tools: Tools) -> None:
    async with world(*tools) as there:
        volume = {"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}
        made = await there.create(document(volumes=[volume]))
        await there.until_ready()
        there.machine.disk.used[made.metadata.uid] = PodStorage({"data": 2 * MIB})
        await there.clock.sleep(15)
        status = (await there.pod()).status
        assert (status.phase, status.reason) == ("Failed", "Evicted")
        assert status.message == 'Usage of EmptyDir volume "data" exceeds the limit "1Mi". '
        assert (await pressure(there))[0] == "False"


async def test_disk_that_cannot_be_measured_changes_nothing(tools: Tools) -> None:
    async with world(*tools) as there:
        there.machine.disk.failure = "Input/output error"
        await there.create(document())
        await there.until_ready()
        await there.clock.sleep(60)
        assert (await there.pod()).status.phase == "Running"
        assert (await pressure(there))[0] == "False"
        there.machine.disk.failure = ""
        there.machine.disk.left = LOW
        await there.clock.sleep(25)
        assert (await pressure(there))[0] == "True"


async def test_pod_that_is_being_deleted_is_evicted_at_once(tools: Tools) -> None:
    """Its own grace would keep the disk full, and the other pods from being looked at."""
    async with world(*tools) as there:
        disk = there.machine.disk
        disk.left = DISK
        await there.clock.sleep(1)
        spec = container(program="stubborn")
        made = await there.create(document(spec, terminationGracePeriodSeconds=3600))
        await there.until_ready()
        disk.used[made.metadata.uid] = PodStorage(containers={"main": GIB})
        await there.client.delete(POD, "web", "default")
        await there.clock.sleep(30)
        assert await there.exists()
        disk.left = LOW
        assert await there.until_gone() < 15
