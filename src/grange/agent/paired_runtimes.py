"""Two runtimes as one: pods from images go to one, the others are processes of the machine."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from ipaddress import IPv4Network
from types import TracebackType
from typing import Self

from grange.agent.container_runtime import (
    CommandResult,
    ContainerID,
    ContainerLimits,
    ContainerUsage,
    ListeningSocket,
    LogQuery,
    Mount,
    NameFiles,
    PodRecord,
    PodSetup,
    Program,
    Run,
    RuntimeFailedError,
    Sandbox,
)
from grange.agent.container_streams import ContainerStream, PortConnection, StreamOptions
from grange.agent.image_store import ImageStore
from grange.agent.node_disk import FileSystemStats, PodStorage
from grange.agent.node_runtime import NodeRuntime
from grange.base.log import Logger
from grange.base.tasks import Nursery


class PairedDisk:
    """The disk of two runtimes that keep their data below one directory.

    Args:
        runtimes: both, or the one that there is.
    """

    def __init__(self, runtimes: Sequence[NodeRuntime]) -> None:
        self._runtimes = runtimes

    async def stats(self) -> FileSystemStats:
        """What is left of it."""
        return await self._runtimes[0].disk.stats()

    async def usage(self, uids: Collection[str]) -> Mapping[str, PodStorage]:
        """What pods use, each of the runtime that has it."""
        found = [await runtime.disk.usage(uids) for runtime in self._runtimes]
        return {uid: storage for part in found for uid, storage in part.items()}

    async def discard(self, pod_uid: str) -> None:
        """Delete what the programs of a pod wrote."""
        for runtime in self._runtimes:
            await runtime.disk.discard(pod_uid)


class PairedRuntimes:
    """Runs each pod by the runtime that it was prepared with.

    Args:
        processes: for pods that name programs of the machine.
        containers: for pods from images.
        log: where it is logged that the second cannot be used.
        needed: refuse to open without the second; else the first works alone.
    """

    def __init__(
        self, processes: NodeRuntime, containers: NodeRuntime, *, log: Logger, needed: bool
    ) -> None:
        self._processes = processes
        self._given = containers
        self._containers: NodeRuntime | None = None
        self._log = log
        self._needed = needed
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Open both; see ``NodeRuntime``."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._processes)
            try:
                self._containers = await stack.enter_async_context(self._given)
            except RuntimeFailedError as error:
                if self._needed:
                    raise
                self._log.info("pods run as processes only", why=str(error))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close both; containers that run go on."""
        await self._stack.aclose()

    async def stop_all(self, grace_s: float) -> None:
        """End every container of both."""
        async with Nursery("stop pods") as nursery:
            for runtime in self._both():
                nursery.start(runtime.stop_all(grace_s))

    # --- what they are -------------------------------------------------------------------------

    @property
    def isolation(self) -> str:
        """Of processes: containers are isolated in any case."""
        return self._processes.isolation

    @property
    def network(self) -> str:
        """Of processes; containers get the same, unless their runtime refuses it."""
        return self._processes.network

    @property
    def has_name_files(self) -> bool:
        """Whether any container has files of names to itself."""
        return any(runtime.has_name_files for runtime in self._both())

    @property
    def limits(self) -> str:
        """Of processes: containers are held to their limits in any case."""
        return self._processes.limits

    @property
    def pod_network(self) -> IPv4Network:
        """The range of the addresses of processes."""
        return self._processes.pod_network

    @property
    def images(self) -> ImageStore | None:
        """The images that pods can be made from."""
        return self._containers.images if self._containers is not None else None

    # --- the seam, see ``PodRuntime`` ----------------------------------------------------------

    @property
    def logs(self) -> "PairedRuntimes":
        """What the containers wrote."""
        return self

    def read(self, target: ContainerID, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """The log of one attempt."""
        return self._of(target.pod_uid).logs.read(target, query)

    @property
    def disk(self) -> PairedDisk:
        """Where containers of both write."""
        return PairedDisk(self._both())

    async def prepare(self, setup: PodSetup) -> Sandbox:
        """Prepare a pod by the runtime that it asks for; one that is prepared keeps its runtime."""
        if not self._processes.pods(setup.uid) and setup.from_images:
            if self._containers is None:
                raise RuntimeFailedError("the container runtime cannot be used now")
            return await self._containers.prepare(setup)
        return await self._of(setup.uid).prepare(setup)

    async def start(self, target: ContainerID, program: Program, mounts: tuple[Mount, ...]) -> Run:
        """Start an attempt."""
        return await self._of(target.pod_uid).start(target, program, mounts)

    async def signal(self, target: ContainerID, number: int) -> None:
        """Send a signal."""
        await self._of(target.pod_uid).signal(target, number)

    async def resize(self, target: ContainerID, limits: ContainerLimits, cpu_milli: int) -> None:
        """Let a running container have other limits."""
        await self._of(target.pod_uid).resize(target, limits, cpu_milli)

    async def run(
        self, target: ContainerID, command: tuple[str, ...], timeout_s: float
    ) -> CommandResult:
        """Run a command in a container."""
        return await self._of(target.pod_uid).run(target, command, timeout_s)

    async def exec(
        self, target: ContainerID, command: tuple[str, ...], options: StreamOptions
    ) -> ContainerStream:
        """Begin a command in a container."""
        return await self._of(target.pod_uid).exec(target, command, options)

    async def attach(self, target: ContainerID, options: StreamOptions) -> ContainerStream:
        """The streams of a container's main process."""
        return await self._of(target.pod_uid).attach(target, options)

    async def connect(self, pod_uid: str, port: int) -> PortConnection:
        """Connect to a port of a pod."""
        return await self._of(pod_uid).connect(pod_uid, port)

    async def remove(self, pod_uid: str) -> None:
        """Kill what is left of a pod and delete it."""
        await self._of(pod_uid).remove(pod_uid)

    def pods(self, uid: str | None = None) -> list[PodRecord]:
        """The pods of both, or one of them."""
        return [record for runtime in self._both() for record in runtime.pods(uid)]

    async def usage(self) -> list[ContainerUsage]:
        """What every running container has used."""
        return [item for runtime in self._both() for item in await runtime.usage()]

    async def listeners(self) -> list[ListeningSocket]:
        """The TCP ports that containers listen on."""
        return [item for runtime in self._both() for item in await runtime.listeners()]

    async def read_file(self, pod_uid: str, name: str, limit: int) -> bytes | None:
        """A file of a pod's temporary directory."""
        return await self._of(pod_uid).read_file(pod_uid, name, limit)

    async def read_volume(self, pod_uid: str, volume: str, path: str, limit: int) -> bytes | None:
        """A file of a pod's volume."""
        return await self._of(pod_uid).read_volume(pod_uid, volume, path, limit)

    async def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """What a container left as its message."""
        return await self._of(target.pod_uid).read_message(target, path, limit)

    async def write_name_files(self, pod_uid: str, files: NameFiles) -> None:
        """Change the files by which a pod resolves names."""
        await self._of(pod_uid).write_name_files(pod_uid, files)

    def watch(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call back after every end of a run of a pod."""
        return self._of(pod_uid).watch(pod_uid, changed)

    # --- which of the two ----------------------------------------------------------------------

    def _both(self) -> list[NodeRuntime]:
        both = (self._processes, self._containers)
        return [runtime for runtime in both if runtime is not None]

    def _of(self, pod_uid: str) -> NodeRuntime:
        """Whose the pod is; that of processes for a pod that neither knows."""
        if self._containers is not None and self._containers.pods(pod_uid):
            return self._containers
        return self._processes
