"""The runtimes that an agent can use: one package in ``runtimes`` and one line of ``RUNTIMES`` each."""

from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from grange.agent.container_runtime import PodRuntime
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.agent.runtimes.process.views import NO_ISOLATION
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

SHARED, ADDRESSES = "shared", "addresses"
NETWORKS = (SHARED, ADDRESSES)
"""What ``--network`` may be."""


class NodeRuntime(PodRuntime, Protocol):
    """A runtime that a program opens for its nodes."""

    @property
    def isolation(self) -> str:
        """What separates pods from each other and from the machine."""

    @property
    def has_name_files(self) -> bool:
        """Whether containers have files ``/etc/hosts`` and ``/etc/resolv.conf`` to themselves."""

    @property
    def limits(self) -> str:
        """What holds containers to their limits, for the Node."""

    @property
    def pod_network(self) -> IPv4Network | None:
        """The range of the pods' addresses, for the Nodes' ``podCIDR``; None: it is not known."""

    async def __aenter__(self) -> Self:
        """Take over what an earlier runtime on the same data left running.

        Raises:
            RuntimeFailedError: it cannot be used; the message has the reason.
        """

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close; containers that run go on."""

    async def stop_all(self, grace_s: float) -> None:
        """End every container: SIGTERM, then SIGKILL after the grace."""


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What a program asks of the runtime that it opens.

    Attributes:
        data_dir: the runtime keeps its data below it.
        isolation: one of ``ISOLATION``.
        network: one of ``NETWORKS``.
        hidden: files of the user that isolated pods may not see.
    """

    data_dir: Path
    isolation: str = NO_ISOLATION
    network: str = SHARED
    hidden: tuple[Path, ...] = ()


class RuntimeFactory(Protocol):
    """Makes a runtime; opening it is up to the caller."""

    def __call__(
        self, options: RuntimeOptions, *, clock: Clock, log: Logger, offload: Offload
    ) -> NodeRuntime:
        """A runtime that does what the options ask for, or refuses to be opened."""


def _process(
    options: RuntimeOptions, *, clock: Clock, log: Logger, offload: Offload
) -> NodeRuntime:
    config = ProcessConfig(
        data_dir=options.data_dir,
        isolation=options.isolation,
        own_addresses=options.network == ADDRESSES,
        hidden=options.hidden,
    )
    return ProcessRuntime(config, clock=clock, log=log, offload=offload)


RUNTIMES: dict[str, RuntimeFactory] = {"process": _process}
"""By the name of ``--runtime``; it is also the scheme of ``containerID``."""
