"""The part of the seam to runtimes for those that cannot look inside containers."""

from grange.agent.container_runtime import ContainerID, RuntimeFailedError
from grange.agent.container_streams import ContainerStream, PortConnection, StreamOptions

_WHY = (
    "this runtime has no streams; give the container a command and no image to run it as a process"
)


class StreamRefusal:
    """Refuses streams and connections."""

    async def exec(
        self, target: ContainerID, command: tuple[str, ...], options: StreamOptions
    ) -> ContainerStream:
        """Refuse; see ``PodRuntime``."""
        raise RuntimeFailedError(f"{target}: cannot run {command[0]}: {_WHY}")

    async def attach(self, target: ContainerID, options: StreamOptions) -> ContainerStream:
        """Refuse; see ``PodRuntime``."""
        raise RuntimeFailedError(f"{target}: cannot attach: {_WHY}")

    async def connect(self, pod_uid: str, port: int) -> PortConnection:
        """Refuse; see ``PodRuntime``."""
        raise RuntimeFailedError(f"pod {pod_uid}: cannot connect to port {port}: {_WHY}")
