"""The seam to a runtime that a program opens for its nodes."""

from ipaddress import IPv4Network
from types import TracebackType
from typing import Protocol, Self

from grange.agent.container_runtime import PodRuntime
from grange.agent.image_store import ImageStore


class NodeRuntime(PodRuntime, Protocol):
    """A runtime that a program opens for its nodes."""

    @property
    def isolation(self) -> str:
        """What separates pods from each other and from the machine."""

    @property
    def network(self) -> str:
        """What a program gets that listens on all addresses, for the Node."""

    @property
    def has_name_files(self) -> bool:
        """Whether containers have files ``/etc/hosts`` and ``/etc/resolv.conf`` to themselves."""

    @property
    def limits(self) -> str:
        """What holds containers to their limits, for the Node."""

    @property
    def pod_network(self) -> IPv4Network:
        """The range of the pods' addresses, for the Nodes' ``podCIDR``."""

    @property
    def images(self) -> ImageStore | None:
        """The images that containers can be made from; None where there are none."""

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
