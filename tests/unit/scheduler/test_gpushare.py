"""Pods share GPUs: which device, what is left, and what a successor knows of it."""

from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.support.scheduler_world import World, world

from grange.api import gpus
from grange.api.gpus import ANNOTATION, GPU_MILLI
from grange.api.kinds.pod import Pod
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.placement import devices
from grange.placement.node_usage import NONE_HELD
from grange.scheduler.component_config import configure


def milli(amount: int) -> dict[str, Any]:
    return {"requests": {GPU_MILLI: amount}}


async def gpu_nodes(made: World, *names: str, each: int = 2) -> None:
    capacity = {"cpu": "8", "memory": "8Gi", "pods": 20, GPU_MILLI: each * 1000}
    await made.add_nodes(*names, capacity=capacity)


def held(pod: Pod) -> tuple[str, str]:
    return pod.spec.node_name, pod.metadata.annotations.get(ANNOTATION, "")


async def test_shares_fill_a_device_and_whole_devices_stay_whole(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.start_scheduler()
        await gpu_nodes(made, "n")
        for name, amount in (("a", 600), ("b", 300), ("c", 1000)):
            await made.add_pods(name, **milli(amount))
            await made.settle()
        assert [held(await made.pod(name)) for name in "abc"] == [
            ("n", "0"),
            ("n", "0"),
            ("n", "1"),
        ]
        await made.add_pods("d", **milli(200))
        await made.settle()
        # A hundred are left of the node and of one device; two hundred of none.
        assert "Insufficient grange.dev/gpu-milli" in await made.message("d")


async def test_what_is_left_of_two_devices_is_no_share_of_one(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        await made.start_scheduler()
        await gpu_nodes(made, "n")
        await made.add_pods("a", **milli(600))
        await made.add_pods("b", **milli(600))
        await made.settle()
        assert {held(await made.pod(name)) for name in "ab"} == {("n", "0"), ("n", "1")}
        await made.add_pods("c", **milli(500))
        await made.settle()
        assert "1 node(s) had no GPU with enough left" in await made.message("c")
        await made.delete("a")
        await made.settle(12.0)
        assert (await made.pods())["c"] == "n"


@pytest.mark.parametrize("each", [0, 1, 4])
async def test_a_share_above_a_device_is_reported_as_impossible(
    each: int, clock: Clock, rng: Stream, log: Logger
) -> None:
    """Whatever the nodes have: more of them would be of no use, so that is not what is missing."""
    async with world(clock, rng, log) as made:
        await made.start_scheduler()
        await gpu_nodes(made, "n", each=each)
        await made.add_nodes("plain")
        await made.add_pods("odd", **milli(1500))
        await made.settle()
        assert await made.message("odd") == (
            "0/2 nodes are available: grange.dev/gpu-milli must be less than 1000 or a multiple of it."
            " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
        )


async def test_a_successor_knows_the_devices_from_the_pods(
    clock: Clock, rng: Stream, log: Logger
) -> None:
    async with world(clock, rng, log) as made:
        first = await made.start_scheduler()
        await gpu_nodes(made, "n")
        await made.add_pods("a", **milli(700))
        await made.add_pods("whole", **milli(1000))
        await made.settle()
        second = await made.start_scheduler()
        await made.settle()
        usages = [one.cache.snapshot().nodes["n"].usage for one in (first, second)]
        assert usages[0].devices == usages[1].devices
        assert usages[0].devices.used == (700, 1000)


async def test_fgd_chooses_the_device_too(clock: Clock, rng: Stream, log: Logger) -> None:
    """For a workload of 700s a device with 700 left is precious; the tightest fit would spoil it."""
    found = configure(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [
                {
                    "plugins": {"multiPoint": {"enabled": [{"name": "FGD"}]}},
                    "pluginConfig": [
                        {"name": "FGD", "args": {"workload": [{"gpuMilli": 700}]}},
                    ],
                }
            ],
        }
    )
    async with world(clock, rng, log) as made:
        await made.start_scheduler(found.config, profile=found.profiles)
        await gpu_nodes(made, "n")
        for name, amount in (("a", 300), ("b", 200)):
            await made.add_pods(name, **milli(amount))
            await made.settle()
        await made.add_pods("c", **milli(100))
        await made.settle()
        where = {name: held(await made.pod(name))[1] for name in "abc"}
        assert where["a"] != where["b"]
        assert where["c"] == where["b"]


# --- the algebra ---------------------------------------------------------------------------------

WANT = st.sampled_from([1, 250, 500, 999, 1000, 2000, 3000])


@given(st.lists(WANT, max_size=12))
def test_discharging_undoes_charging_in_any_order(wants: list[int]) -> None:
    usage, pods = NONE_HELD, []
    left: devices.Free = (1000,) * 4
    for want in wants:
        if devices.fits(left, want):
            chosen = devices.best_fit(left, want)
            pods.append((want, chosen))
            usage = devices.changed(usage, want, chosen, 1)
            left = devices.taken(left, want, chosen)
            assert min(left) >= 0
    for want, chosen in pods[::2] + pods[1::2]:
        usage = devices.changed(usage, want, chosen, -1)
    assert usage == NONE_HELD


def test_an_annotation_that_cannot_be_is_ignored() -> None:
    for text in ("", "x", "-1", "0,1", "0,0", "99", "0," * 70, "٣"):
        assert gpus.parse(text, 500) == ()
    assert gpus.parse("3", 500) == (3,)
    assert gpus.parse("0,2", 2000) == (0, 2)
    assert gpus.parse("0,0", 2000) == ()
    assert gpus.parse("0", 2000) == ()
