"""What containers use, as metrics: the newest samples of all nodes at the time of a scrape."""

from collections.abc import Callable, Iterator, Sequence

from grange.api.resource_metrics import ContainerSample, PodSample, UsageSample
from grange.base.metrics import CollectedGauge, CollectorRegistry


class UsageMetrics:
    """Shows the samples of containers.

    Args:
        samples: gives the newest ones; no node is in two of them.
        registry: where they are shown.

    Attributes:
        cpu: grange_container_cpu_cores by namespace, pod, container and node.
        memory: grange_container_memory_bytes by the same.
    """

    def __init__(
        self, samples: Callable[[], Sequence[UsageSample]], registry: CollectorRegistry
    ) -> None:
        self._samples = samples
        self.cpu = CollectedGauge(
            "grange_container_cpu_cores",
            "CPUs that a running container uses, on average over the last period of 15 s.",
            ("namespace", "pod", "container", "node"),
            read=lambda: self._read(lambda item: item.cpu_cores),
            registry=registry,
        )
        self.memory = CollectedGauge(
            "grange_container_memory_bytes",
            "The working set of a running container.",
            ("namespace", "pod", "container", "node"),
            read=lambda: self._read(lambda item: item.memory_bytes),
            registry=registry,
        )

    def _read(
        self, amount: Callable[[ContainerSample], float]
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        for sample in self._samples():
            for pod in sample.pods:
                yield from _of_pod(pod, amount)


def _of_pod(
    pod: PodSample, amount: Callable[[ContainerSample], float]
) -> Iterator[tuple[tuple[str, ...], float]]:
    for name, used in pod.containers.items():
        yield (pod.namespace, pod.name, name, pod.node), amount(used)
