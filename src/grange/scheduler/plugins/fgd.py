"""FGD: where the pod adds least to the fragmentation of GPUs (fragmentation gradient descent).

Score = S · (½ - (F(after) - F(before)) / 32 GPUs), F being the expected fragmentation of the node with
regard to a target workload (``placement.fragmentation``): Weng et al., "Beware of Fragmentation", USENIX
ATC 2023, §4. The device is chosen the same way. The workload is an argument: what pods usually ask for
here. Without one, pods of one whole GPU and one CPU are expected.
"""

from dataclasses import replace

from grange.api import gpus, quantity
from grange.api.gpus import WHOLE
from grange.placement import devices
from grange.placement.fragmentation import PodKind, TargetWorkload
from grange.placement.loads import Load
from grange.placement.packing import SCALE
from grange.scheduler.framework import Plugin
from grange.scheduler.node_attributes import LOAD
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.plugin_args import ConfigSection, PluginArgs, configurable, refusal, within
from grange.scheduler.podinfo import PodInfo

_SPAN = 32 * WHOLE
_NUMBER_MAX = 1_000_000
_KINDS_MAX = 10_000
_NUMBERS_MAX = 100_000_000  # keeps scores within int64


class WorkloadPod(ConfigSection, frozen=True, kw_only=True):
    """Pods of the target workload that ask for the same."""

    cpu: str | int | float = 0
    gpu_milli: int = 0
    number: int = 1

    def __post_init__(self) -> None:
        """Refuse amounts that no pod can ask for."""
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
        """Refuse a workload that is none."""
        if not 1 <= len(self.workload) <= _KINDS_MAX:
            raise ValueError(refusal("workload", f"must be 1 to {_KINDS_MAX} kinds of pods"))
        if sum(item.number for item in self.workload) > _NUMBERS_MAX:
            raise ValueError(refusal("workload", f"must be at most {_NUMBERS_MAX} pods in all"))


class FGD(NodeScore[tuple[int, int], Load]):
    """Compares CPU and GPU requests with what is left, and chooses devices."""

    name = "FGD"
    attribute = LOAD
    scale = SCALE

    def __init__(self, workload: TargetWorkload) -> None:
        self._workload = workload

    def demand(self, pod: PodInfo) -> tuple[int, int]:
        """Thousandths of CPUs and GPUs; CPU that a pod takes can leave GPUs without use, too."""
        return pod.request.resources.cpu_milli, devices.asked(pod.request)

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        """The less it adds, the better."""
        span = self._workload.number * _SPAN
        increase = min(max(self._choose(demand, value)[0], -(span // 2)), span // 2)
        return SCALE // 2 - increase * SCALE // span

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
        """The devices where it adds least."""
        return self._choose(self.demand(pod), node.load)[1]


def make(args: FGDArgs) -> Plugin:
    """The plugin for a workload."""
    kinds = [
        PodKind(quantity.milli(item.cpu), item.gpu_milli, item.number) for item in args.workload
    ]
    score = FGD(TargetWorkload(kinds))
    return replace(score.plugin(), device_allocator=score.allocate)


PLUGIN = configurable(FGDArgs, make)
