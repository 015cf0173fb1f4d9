"""The seam to whatever runs containers: plain values in, plain values out.

A *container* is identified by its pod's UID and its name; every start of it is an *attempt* and
leaves a ``Run``. Attempts count up from zero and never repeat, so that the number of the newest one
is the restart count even for an agent that has just taken the pod over.

The contract (tests/contract/test_runtime.py):

- ``start`` of a program that cannot be executed is an answer, not an error: an ended ``Run`` with
  reason ``StartError`` and a message that names the program and where it was looked for.
- When a run ends, everything it started has ended as well, and its watcher is called afterwards.
- ``signal`` and ``remove`` of what is gone do nothing.
- What was running stays known to the next runtime over the same data: ``pods`` lists it.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol

from grange.agent.container_streams import ContainerStream, PortConnection, StreamOptions
from grange.agent.node_disk import NodeDisk
from grange.api.pod_fields import Feature
from grange.base.errors import GrangeError

COMPLETED = "Completed"
ERROR = "Error"
START_ERROR = "StartError"
STATUS_UNKNOWN = "ContainerStatusUnknown"
CGROUP, NO_LIMITS = Feature.LIMITS.value[1], "none"
"""What holds containers to their limits, as Nodes show it and as fields need it."""
EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126
EXIT_KILLED = 137


class RuntimeFailedError(GrangeError):
    """The runtime itself could not do it (disk full, no processes left): try again later."""


class ContainerID(NamedTuple):
    """One attempt of one container."""

    pod_uid: str
    container: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.pod_uid}/{self.container}/{self.attempt}"


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """A file of a volume.

    Attributes:
        path: relative to the volume, with ``/``; never absolute, never with ``..``.
        content: the bytes.
        mode: permission bits.
    """

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What a volume is made of.

    Attributes:
        name: as in ``spec.volumes``.
        files: given files; empty for an empty directory.
        exact: the volume holds these files and nothing else; what was there before goes.
        host_path: a path of the machine to use as it is; empty for a directory of the pod.
        host_path_type: Kubernetes' check on it: "", Directory, DirectoryOrCreate, File, ….
        in_memory: an empty directory that uses memory and no disk.
    """

    name: str
    files: tuple[VolumeFile, ...] = ()
    exact: bool = False
    host_path: str = ""
    host_path_type: str = ""
    in_memory: bool = False


class SharedProcesses(Enum):
    """Whose processes a container sees besides its own."""

    NONE = "none"
    POD = "pod"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class PodSetup:
    """What a runtime needs before a pod's first container.

    Attributes:
        uid, namespace, name, node_name: of the pod.
        volumes: every volume of the pod.
        shared: programs of other users than the runtime's own have to reach its directories.
        address: that the pod needs; without effect where it is not in the runtime's range.
        hostname: that its programs see where they are isolated; empty for its name.
        fs_group: group that the pod's own volumes belong to; None for the runtime's.
        host_network: it asks for the machine's network.
        is_replica: it is one of several that are alike, and may want the same port.
        runtime_handler: which of its ways of running containers the runtime uses; empty for its own.
        from_images: its containers are made from images.
        privileged: one of its containers, from images, asks for all rights.
        shared_processes: whose processes its containers see, where they are made from images.
        host_ipc: its containers, where they are made from images, have the machine's IPC.
    """

    uid: str
    namespace: str
    name: str
    node_name: str
    volumes: tuple[VolumePlan, ...] = ()
    shared: bool = False
    address: str = ""
    hostname: str = ""
    fs_group: int | None = None
    host_network: bool = False
    is_replica: bool = False
    runtime_handler: str = ""
    from_images: bool = False
    privileged: bool = False
    shared_processes: SharedProcesses = SharedProcesses.NONE
    host_ipc: bool = False


@dataclass(frozen=True, slots=True)
class NameFiles:
    """How the containers of a pod resolve names.

    Attributes:
        hosts: the content of ``/etc/hosts``.
        resolver: the content of ``/etc/resolv.conf``.
    """

    hosts: str
    resolver: str


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A prepared pod.

    Attributes:
        uid: of the pod.
        address: the pod's own IP address.
        directory: everything of the pod is below it.
        volumes: volume name to the path of its directory (or file).
    """

    uid: str
    address: str
    directory: str
    volumes: Mapping[str, str] = field(default_factory=dict)

    @property
    def tmp(self) -> str:
        """For temporary files; shared by the pod's containers."""
        return f"{self.directory}/tmp"  # noqa: S108  below the pod's own directory

    def root(self, container: str) -> str:
        """The container's own directory: where it starts, and where its mounts appear."""
        return f"{self.directory}/containers/{container}/root"


@dataclass(frozen=True, slots=True)
class Mount:
    """A volume in a container; ``path`` is as the manifest gives it.

    Attributes:
        volume: its name.
        path: where it appears.
        sub_path: the part of the volume that does; empty for all of it.
        read_only: whether the program may not write to it.
        expression: its variables are to be replaced to give the ``sub_path``; empty for none.
    """

    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False
    expression: str = ""


@dataclass(frozen=True, slots=True)
class Confinement:
    """The rights of a program, where they are not those of the runtime itself.

    Attributes:
        groups: further groups of its user.
        capabilities: bit mask of the capabilities that it may have; None for the runtime's own.
        no_new_privileges: neither it nor what it executes gains rights, e.g. by a set-user-ID file.
        read_only_root: only volumes and temporary files are writable; without effect where programs
            are not isolated by namespaces.
    """

    groups: tuple[int, ...] = ()
    capabilities: int | None = None
    no_new_privileges: bool = False
    read_only_root: bool = False


class ContainerLimits(NamedTuple):
    """What a container may use at most; zero for no limit.

    Attributes:
        cpu_milli: thousandths of a CPU.
        memory_bytes: of all its processes.
    """

    cpu_milli: int = 0
    memory_bytes: int = 0


UNLIMITED = ContainerLimits()


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """What a program from an image needs beyond its command.

    Attributes:
        reference: the image, as the manifest names it.
        arguments: instead of the image's own; empty for those.
        cpu_milli: requested, in thousandths of a CPU; its weight among others.
        security: the container's security context, with what the pod's gives where it gives nothing.
    """

    reference: str
    arguments: tuple[str, ...] = ()
    cpu_milli: int = 0
    security: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """What to execute.

    Attributes:
        command: program and arguments; empty only for the one that an image names.
        env: the whole environment.
        working_dir: absolute, or relative to the container's root; empty for the root.
        written: the program as the manifest has it, for messages: its ``$(NAME)`` may stand for a
            secret. Empty where nothing was expanded.
        search: ``PATH`` as messages may have it; empty for the one of the environment.
        user: user and group to run as; None for the runtime's own.
        confinement: its rights beyond that.
        limits: what it may use at most, where the runtime can enforce that.
        message_path: where it may leave a message about its end, as the manifest has it; empty for
            nowhere.
        image: what its files come from; None for the machine's.
        stdin: it has an input that can be attached to; else its input is empty.
        stdin_once: that input ends with the first attached stream that has one.
        tty: it has a terminal.
        joins: name of the pod's container whose processes and view it shares; empty for its own.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    working_dir: str = ""
    written: str = ""
    search: str = ""
    user: tuple[int, int] | None = None
    confinement: Confinement = Confinement()
    limits: ContainerLimits = UNLIMITED
    message_path: str = ""
    image: ImageProgram | None = None
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    joins: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt: running, or how it ended.

    Attributes:
        id: which attempt.
        started_at: wall time of the start.
        finished_at: wall time of the end; None while it runs.
        exit_code: as a shell reports it (128 + signal for a killed program).
        signal: the signal that ended it; zero for none.
        reason: Completed, Error, OOMKilled, StartError or ContainerStatusUnknown; empty while it
            runs.
        message: for people; empty where the reason suffices. Of a running one: why nothing
            newer is known of it.
        pid: process id, for messages; zero where there is none.
        runtime_id: the runtime's name for the container, with its scheme; empty for none.
        image_id: of the image that it was made from; empty for none.
        interrupted: it ended because its node was stopped, whatever its program did.
    """

    id: ContainerID
    started_at: datetime
    finished_at: datetime | None = None
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    pid: int = 0
    runtime_id: str = ""
    image_id: str = ""
    interrupted: bool = False

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.finished_at is None


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod as the runtime knows it.

    Attributes:
        setup: what it was prepared with (without the contents of volumes after a take-over).
        sandbox: what ``prepare`` answered.
        runs: the newest attempts of each container, oldest first; at least the last one, and the
            one before it where there was one.
    """

    setup: PodSetup
    sandbox: Sandbox
    runs: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command inside a container ended.

    Attributes:
        exit_code: as a shell reports it.
        output: the first bytes of standard output and standard error together, decoded.
        timed_out: whether it was killed for taking too long.
    """

    exit_code: int
    output: str = ""
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What a running container has used.

    Attributes:
        id: which attempt.
        cpu_s: seconds of CPU since its start, of all its processes.
        memory_bytes: its working set now.
    """

    id: ContainerID
    cpu_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which part of a log to read.

    Attributes:
        follow: go on until the run has ended and everything was read.
        since: only lines not older.
        tail_lines: only so many last lines; None for all.
        timestamps: put the time before every line.
        limit_bytes: stop after so many bytes; None for no limit.
    """

    follow: bool = False
    since: datetime | None = None
    tail_lines: int | None = None
    timestamps: bool = False
    limit_bytes: int | None = None


class ListeningSocket(NamedTuple):
    """A TCP port that a container listens on.

    Attributes:
        pod_uid, container: whose it is.
        address: of the machine; ``0.0.0.0`` or ``::`` for all.
        port: its number.
    """

    pod_uid: str
    container: str
    address: str
    port: int


def nothing_listens(port: int, own: Iterable[ListeningSocket]) -> str:
    """Why a port of a pod cannot be connected to.

    Args:
        port: that was asked for.
        own: what the pod listens on.
    """
    ports = ", ".join(str(number) for number in sorted({item.port for item in own}))
    others = f"it listens on {ports}" if ports else "it listens on no port"
    return f"port {port}: nothing in the pod listens on it; {others}"


class ContainerLogs(Protocol):
    """Reads what containers wrote."""

    def read(self, target: ContainerID, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """The log of one attempt in pieces; ends at once where there is none."""


class PodRuntime(Protocol):
    """Runs containers. See the module's docstring for the contract."""

    @property
    def logs(self) -> ContainerLogs:
        """What the containers wrote."""

    @property
    def disk(self) -> NodeDisk:
        """Where containers write."""

    async def prepare(self, setup: PodSetup) -> Sandbox:
        """Give the pod its address and directories; again for the same UID answers the same.

        Raises:
            RuntimeFailedError: it cannot be done now; the message has the reason.
        """

    async def start(self, target: ContainerID, program: Program, mounts: tuple[Mount, ...]) -> Run:
        """Start an attempt of a prepared pod's container; the same attempt is never started twice.

        Raises:
            RuntimeFailedError: nothing was started; try again later.
        """

    async def signal(self, target: ContainerID, number: int) -> None:
        """Send a signal to the attempt's process group; SIGKILL ends everything it started."""

    async def resize(self, target: ContainerID, limits: ContainerLimits, cpu_milli: int) -> None:
        """Let a running container have other limits; nothing happens where limits are not enforced.

        Args:
            target: the attempt.
            limits: what it may use at most from now on.
            cpu_milli: requested, in thousandths of a CPU; its weight among others.

        Raises:
            RuntimeFailedError: the container does not run, or cannot have these limits now.
        """

    async def run(
        self, target: ContainerID, command: tuple[str, ...], timeout_s: float
    ) -> CommandResult:
        """Run a command in a running container, in its directory and with its environment.

        Cancellation kills the command.

        Raises:
            RuntimeFailedError: the container does not run, or the command could not be run at all.
        """

    async def exec(
        self, target: ContainerID, command: tuple[str, ...], options: StreamOptions
    ) -> ContainerStream:
        """Begin a command in a running container, in its directory and with its environment.

        A command that cannot be executed is an answer: a stream that has ended, with a message.

        Raises:
            RuntimeFailedError: the container does not run, or the command could not be run at all.
        """

    async def attach(self, target: ContainerID, options: StreamOptions) -> ContainerStream:
        """The streams of the container's main process: its output from now on, and its input.

        Raises:
            RuntimeFailedError: the container does not run, or cannot be attached to.
        """

    async def connect(self, pod_uid: str, port: int) -> PortConnection:
        """Connect to a TCP port that the pod's programs listen on, be it on loopback only.

        Raises:
            RuntimeFailedError: nothing of the pod listens there; the message names what it does listen on.
        """

    async def remove(self, pod_uid: str) -> None:
        """Kill what is left of the pod, wait for it, free its address and delete its files."""

    def pods(self, uid: str | None = None) -> list[PodRecord]:
        """The pods that are prepared, those taken over from an earlier runtime included.

        Args:
            uid: only this one, so that asking for one does not cost as much as asking for all.
        """

    async def usage(self) -> list[ContainerUsage]:
        """What every running container has used."""

    async def listeners(self) -> list[ListeningSocket]:
        """The TCP ports that containers listen on, as far as it can be found out."""

    async def read_file(self, pod_uid: str, name: str, limit: int) -> bytes | None:
        """The first bytes of a regular file in the pod's temporary directory; links are not followed.

        Args:
            pod_uid: of a prepared pod.
            name: of the file, without a directory.
            limit: bytes to read at most.

        Returns:
            The content; None where there is no such file or pod.
        """

    async def read_volume(self, pod_uid: str, volume: str, path: str, limit: int) -> bytes | None:
        """The first bytes of a regular file in a volume that is the pod's own; links are not followed.

        Args:
            pod_uid: of a prepared pod.
            volume: its name.
            path: of the file in it.
            limit: bytes to read at most.

        Returns:
            The content; None where there is no such file, volume or pod.
        """

    async def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """The last bytes of what the newest attempt of a container left at its ``message_path``.

        Args:
            target: the attempt.
            path: as its program was given it.
            limit: bytes to read at most.

        Returns:
            The content; None where there is no such regular file.
        """

    async def write_name_files(self, pod_uid: str, files: NameFiles) -> None:
        """Change the files of a prepared pod in place: containers that run see it, too.

        Nothing happens where containers have no such files to themselves, or the pod is gone.

        Raises:
            RuntimeFailedError: they cannot be written now.
        """

    def watch(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call back on the loop after every end of a run of the pod; returns how to stop that."""
