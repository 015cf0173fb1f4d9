"""The runtimes that an agent can use: one package in ``runtimes`` and one line of ``RUNTIMES`` each."""

from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from grange.agent.container_runtime import PodRuntime
from grange.agent.runtimes.process.process_runtime import ProcessConfig, ProcessRuntime
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload


class NodeRuntime(PodRuntime, Protocol):
    """A runtime that a program opens for its nodes."""

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


class RuntimeFactory(Protocol):
    """Makes a runtime; opening it is up to the caller."""

    def __call__(
        self, data_dir: Path, *, clock: Clock, log: Logger, offload: Offload
    ) -> NodeRuntime:
        """A runtime that keeps its data below a directory."""


def _process(data_dir: Path, *, clock: Clock, log: Logger, offload: Offload) -> NodeRuntime:
    return ProcessRuntime(ProcessConfig(data_dir=data_dir), clock=clock, log=log, offload=offload)


RUNTIMES: dict[str, RuntimeFactory] = {"process": _process}
"""By the name of ``--runtime``; it is also the scheme of ``containerID``."""
