"""Packing policies, for profiles that enable them: BestFit, DotProduct, GpuPacking, GpuClustering, FGD, Random.

As compared by Weng et al., "Beware of Fragmentation", USENIX ATC 2023. A policy decides and the plugins that score
to 100 break its ties, so each scores from 0 to S = 1,000,000; also because nodes of a packed cluster differ by
little.
"""

from dataclasses import replace
from zlib import crc32

from grange.api import gpus, quantity
from grange.api.gpus import DEVICES_MAX, GPU_MILLI, WHOLE
from grange.placement import devices
from grange.placement.fragmentation import PodKind, TargetWorkload
from grange.placement.loads import Load
from grange.scheduler.framework import Plugin
from grange.scheduler.node_plugin import LOAD, NAME, NodeScore
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_args import ConfigSection, PluginArgs, configurable, refusal, within
from grange.scheduler.podinfo import PodInfo

_SCALE = 1_000_000
_THIRD, _QUARTER = _SCALE // 3, _SCALE // 4
# Thousandths of CPUs and of GPUs of a large node, by which amounts are measured.
_LARGEST = (128_000, 8_000)
_MOST_GPUS = _LARGEST[1]
_SPAN = 32 * WHOLE
_NUMBER_MAX = 1_000_000
_KINDS_MAX = 10_000
_NUMBERS_MAX = 100_000_000  # keeps scores within int64
_MASK = 2**64 - 1


class _CpuAndGpuScore(NodeScore[tuple[int, int], Load]):
    """Compares CPU and GPU requests with what is left."""

    attribute = LOAD
    scale = _SCALE

    def demand(self, pod: PodInfo) -> tuple[int, int]:
        """Thousandths of CPUs and GPUs; CPU that a pod takes can leave GPUs without use, too."""
        return pod.request.resources.cpu_milli, devices.asked(pod.request)


def _left(load: Load) -> tuple[int, int]:
    offered, usage = load.allocatable, load.usage
    gpu_milli = offered.scalars.get(GPU_MILLI, 0) - usage.scalars.get(GPU_MILLI, 0)
    return offered.cpu_milli - usage.cpu_milli, gpu_milli


class _GpuScore(NodeScore[int, Load]):
    """Compares the GPU request with the devices of a node."""

    attribute = LOAD
    scale = _SCALE

    def demand(self, pod: PodInfo) -> int:
        """Thousandths of GPUs."""
        return devices.asked(pod.request)


class BestFit(_CpuAndGpuScore):
    """The node that would have least left.

    Score = S · (1 - ½ · left(cpu) / 128 CPUs - ½ · left(gpu) / 8 GPUs), where left is what the node would
    have free with the pod on it.
    """

    name = "BestFit"

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        shares = [
            _SCALE * min(max(0, left - want), most) // (2 * most)
            for left, want, most in zip(_left(value), demand, _LARGEST, strict=True)
        ]
        return _SCALE - sum(shares)


class DotProduct(_CpuAndGpuScore):
    """The node whose free resources are least in line with what the pod asks for.

    Score = S · (1 - ½ · Σ free(r) · asked(r) / largest(r)²) over CPU and GPU: the alignment of Tetris
    (Grandl et al., SIGCOMM 2014), of which the smallest fills nodes up.
    """

    name = "DotProduct"

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        products = [
            _SCALE * min(max(0, left), most) * min(want, most) // (2 * most * most)
            for left, want, most in zip(_left(value), demand, _LARGEST, strict=True)
        ]
        return _SCALE - sum(products)


class GpuPacking(_GpuScore):
    """Devices in use first, then idle ones of nodes in use, idle nodes last.

    Three bands of a third of the scale each, from the top:

    1. The pod goes to a device that is in use: the less that device has left, the better.
    2. It needs idle devices, on a node with some in use: the fewer devices are idle, the better.
    3. All devices of the node are idle: the fewer there are, the better.

    So whole devices and whole nodes stay free for large pods.
    """

    name = "GpuPacking"

    def score_value(self, demand: int, value: Load) -> int:
        left = devices.free(value.allocatable, value.usage.devices)
        in_use = [item for item in left if demand <= item < WHOLE]
        if in_use:
            return 3 * _THIRD - _THIRD * min(in_use) // WHOLE
        idle = left.count(WHOLE)
        band = 1 if idle == len(left) else 2
        return band * _THIRD - _THIRD * idle // (DEVICES_MAX + 1)


class GpuClustering(_GpuScore):
    """Pods that ask for devices alike go together.

    Pods are of a kind by the number of whole devices that they ask for, shares being one kind.
    Four bands of a quarter of the scale each, from the top: nodes with pods of this kind alone, nodes with
    this kind among others, idle nodes, nodes with other kinds alone. Within a band, the fuller the
    better. After Gandiva (Xiao et al., OSDI 2018).
    """

    name = "GpuClustering"

    def score_value(self, demand: int, value: Load) -> int:
        held = value.usage.devices
        left = min(_MOST_GPUS, sum(devices.free(value.allocatable, held)))
        band = _band([kind for kind, _ in held.tenants], gpus.tenant(demand))
        return _QUARTER * band + _QUARTER * (_MOST_GPUS - left) // _MOST_GPUS


def _band(kinds: list[int], kind: int) -> int:
    if not kinds:
        return 1
    if kind not in kinds:
        return 0
    return 3 if len(kinds) == 1 else 2


class WorkloadPod(ConfigSection, frozen=True, kw_only=True):
    """Pods of the target workload that ask for the same."""

    cpu: str | int | float = 0
    gpu_milli: int = 0
    number: int = 1

    def __post_init__(self) -> None:
        try:
            quantity.milli(self.cpu)
        except quantity.QuantityError as error:
            raise ValueError(refusal("cpu", str(error))) from error
        within("number", self.number, 1, _NUMBER_MAX)
        within("gpuMilli", self.gpu_milli, 0, gpus.DEVICES_MAX * WHOLE)
        if not devices.is_possible(self.gpu_milli):
            raise ValueError(refusal("gpuMilli", f"must be less than {WHOLE} or a multiple of it"))


class FGDArgs(PluginArgs, frozen=True, kw_only=True):
    """The target workload."""

    workload: tuple[WorkloadPod, ...] = (WorkloadPod(cpu=1, gpu_milli=WHOLE),)

    def __post_init__(self) -> None:
        if not 1 <= len(self.workload) <= _KINDS_MAX:
            raise ValueError(refusal("workload", f"must be 1 to {_KINDS_MAX} kinds of pods"))
        if sum(item.number for item in self.workload) > _NUMBERS_MAX:
            raise ValueError(refusal("workload", f"must be at most {_NUMBERS_MAX} pods in all"))


class FGD(_CpuAndGpuScore):
    """The node and devices where the pod adds least to the fragmentation of GPUs.

    Score = S · (½ - (F(after) - F(before)) / 32 GPUs), F being the expected fragmentation of the node with
    regard to a target workload (``placement.fragmentation``): what pods usually ask for here. Without the
    argument, pods of one whole GPU and one CPU are expected.
    """

    name = "FGD"

    def __init__(self, workload: TargetWorkload) -> None:
        self._workload = workload

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        span = self._workload.number * _SPAN
        increase = min(max(self._choose(demand, value)[0], -(span // 2)), span // 2)
        return _SCALE // 2 - increase * _SCALE // span

    def _choose(self, demand: tuple[int, int], load: Load) -> tuple[int, tuple[int, ...]]:
        """The least increase, and the devices; they fit."""
        workload, (cpu_want, want) = self._workload, demand
        left = devices.free(load.allocatable, load.usage.devices)
        cpu = load.allocatable.cpu_milli - load.usage.cpu_milli
        before = workload.of_load(load)
        rank = workload.rank(cpu - cpu_want)
        if not want or not devices.fits(left, want):
            return workload.fragmentation(rank, left) - before, ()
        choices: dict[int, tuple[int, ...]] = {}
        if want >= WHOLE:
            choices[0] = devices.best_fit(left, want)
        else:
            for at, item in enumerate(left):
                if item >= want:
                    choices.setdefault(item, (at,))
        best: tuple[int, tuple[int, ...]] | None = None
        for chosen in choices.values():
            after = workload.fragmentation(rank, devices.taken(left, want, chosen))
            if best is None or after - before < best[0]:
                best = after - before, chosen
        return best or (0, ())

    def allocate(self, pod: PodInfo, node: NodeInfo) -> tuple[int, ...]:
        return self._choose(self.demand(pod), node.load)[1]


def _fgd(args: FGDArgs) -> Plugin:
    kinds = [
        PodKind(quantity.milli(item.cpu), item.gpu_milli, item.number) for item in args.workload
    ]
    score = FGD(TargetWorkload(kinds))
    return replace(score.plugin(), device_allocator=score.allocate)


class RandomArgs(PluginArgs, frozen=True, kw_only=True):
    """The seed."""

    seed: int = 0

    def __post_init__(self) -> None:
        within("seed", self.seed, 0, 2**32 - 1)


class Random(NodeScore[str, str]):
    """Any node, each as likely as another: the baseline of comparisons.

    Score = a hash of the seed, the pod's UID and the node's name, so that a run can be repeated. Every pod is a
    class by itself, so this is the most expensive policy for the engine.
    """

    name = "Random"
    attribute = NAME
    scale = 2**20 - 1

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def demand(self, pod: PodInfo) -> str:
        return pod.uid

    def score_value(self, demand: str, value: str) -> int:
        return _mixed(crc32(demand.encode(), self._seed) << 32 | crc32(value.encode()))


def _mixed(number: int) -> int:
    """The finaliser of MurmurHash3 over 64 bits; the top 20 of them."""
    number ^= number >> 33
    number = number * 0xFF51AFD7ED558CCD & _MASK
    number ^= number >> 33
    number = number * 0xC4CEB9FE1A85EC53 & _MASK
    return number >> 44


PLUGINS = (
    *(policy().plugin() for policy in (BestFit, DotProduct, GpuClustering, GpuPacking)),
    configurable(FGDArgs, _fgd),
    configurable(RandomArgs, lambda args: Random(args.seed).plugin()),
)
