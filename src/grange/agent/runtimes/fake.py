"""A runtime without processes: programs are scripts of what happens when, in virtual time.

It passes the same contract as the real one. ``FakeMachine`` is what outlives a runtime, as the
processes and files of a real machine do.
"""

import asyncio
import signal as signals
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network

from grange.agent import container_logs
from grange.agent.addresses import AddressPool, AddressTakenError
from grange.agent.container_runtime import (
    COMPLETED,
    ERROR,
    EXIT_NOT_FOUND,
    START_ERROR,
    STATUS_UNKNOWN,
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
    nothing_listens,
)
from grange.agent.container_streams import (
    STDOUT,
    ContainerStream,
    Output,
    PortConnection,
    StreamEnd,
    StreamOptions,
)
from grange.agent.image_store import ImageInfo, ImagePullError, PullProgress, RegistryCredentials
from grange.agent.memory_streams import MemoryConnection, MemoryStream, Reply, Responder
from grange.agent.node_disk import FileSystemStats, PodStorage
from grange.base.clock import Clock

_FOLLOW_INTERVAL_S = 0.1

POD_NETWORK = IPv4Network("127.9.0.0/16")


@dataclass(frozen=True, slots=True)
class Script:
    """What a program does.

    Attributes:
        duration_s: ends by itself after so long; None never does.
        exit_code: with which it ends by itself.
        term_s: how long after SIGTERM it ends; None ignores the signal.
        term_exit_code: with which it then ends; None as killed by the signal.
        output: lines and when they are written, in seconds after the start.
        listens: addresses and ports that it listens on.
        cpu: CPUs that it keeps busy.
        memory_bytes: memory that it holds.
        files: what it writes to its pod's temporary directory as it starts, by name; to a volume where
            a name begins with the volume's.
        respond: what it does with input; None ignores it.
    """

    duration_s: float | None = None
    exit_code: int = 0
    term_s: float | None = 0.0
    term_exit_code: int | None = None
    output: tuple[tuple[float, str], ...] = ()
    listens: tuple[tuple[str, int], ...] = ()
    cpu: float = 0.0
    memory_bytes: int = 0
    files: tuple[tuple[str, bytes], ...] = ()
    respond: Responder | None = None


@dataclass(slots=True)
class _Live:
    """A run and what may still happen to it."""

    run: Run
    script: Script
    program: Program
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Pod:
    setup: PodSetup
    sandbox: Sandbox
    runs: dict[ContainerID, _Live] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    name_files: NameFiles | None = None


class FakeImages:
    """A machine's images and the registry that others come from; see ``ImageStore``.

    Args:
        clock: time.
        pull_s: how long a pull takes.

    Attributes:
        pull_s: the same.
        registry: images by the names under which they can be pulled.
        here: those that the machine has.
        passwords: that the registry asks for, by name of the image.
        pulls: what was asked for, in order, with the user name that was given.
        failure: the registry refuses everything for this reason; empty for none.
        transferred: how far the transfers are; None where that is not known.
    """

    def __init__(self, clock: Clock, pull_s: float = 1.0) -> None:
        self._clock = clock
        self.pull_s = pull_s
        self.registry: dict[str, ImageInfo] = {}
        self.here: dict[str, ImageInfo] = {}
        self.passwords: dict[str, str] = {}
        self.pulls: list[tuple[str, str]] = []
        self.failure = ""
        self.transferred: PullProgress | None = None

    async def progress(self) -> PullProgress | None:
        """How far the transfers are."""
        return self.transferred

    async def find(self, reference: str) -> ImageInfo | None:
        """The image of that name, if the machine has it."""
        if " " in reference:
            raise ImagePullError("invalid reference format", is_invalid_name=True)
        return self.here.get(reference)

    async def pull(self, reference: str, credentials: RegistryCredentials | None) -> None:
        """Bring an image of the registry to the machine."""
        self.pulls.append((reference, credentials.username if credentials else ""))
        await self._clock.sleep(self.pull_s)
        if self.failure:
            raise ImagePullError(self.failure)
        wanted = self.passwords.get(reference, "")
        if wanted and (credentials is None or credentials.password != wanted):
            raise ImagePullError("pull access denied")
        if reference not in self.registry:
            raise ImagePullError("not found")
        self.here[reference] = self.registry[reference]


class FakeDisk:
    """A disk that tests fill; see ``NodeDisk``.

    Attributes:
        left: of the disk.
        used: what pods use of it, by UID; what they discard becomes available.
        failure: why it cannot be measured; empty where it can.
    """

    def __init__(self) -> None:
        self.left = FileSystemStats(2**40, 2**39)
        self.used: dict[str, PodStorage] = {}
        self.failure = ""

    async def stats(self) -> FileSystemStats:
        """What tests left of it."""
        if self.failure:
            raise OSError(5, self.failure)
        return self.left

    async def usage(self, uids: Collection[str]) -> Mapping[str, PodStorage]:
        """What tests let pods use."""
        return {uid: self.used.get(uid, PodStorage()) for uid in uids}

    async def discard(self, pod_uid: str) -> None:
        """Give back what the pod uses."""
        used = self.used.pop(pod_uid, PodStorage()).total
        self.left = self.left._replace(available=self.left.available + used)


class FakeMachine:
    """Pods and their scripted programs; any number of runtimes may look at it, one at a time.

    Args:
        scripts: program name (the first word of the command) to script; a program that is not
            here is not found.
        commands: answers to ``run`` by the first word of the command, or functions from the
            container's program to the answer; others are not found.
        responders: commands for ``exec`` that react to input, by their first word.

    Attributes:
        streams: streams and connections that are open.
        images: what it has of images; None for a machine without.
        disk: what it has of disk.
        limits: of each attempt.
        resize_refusal: why no limits can be changed; empty where they can.
    """

    def __init__(
        self,
        scripts: Mapping[str, Script] | None = None,
        commands: Mapping[str, CommandResult | Callable[[Program], CommandResult]] | None = None,
        responders: Mapping[str, Responder] | None = None,
    ) -> None:
        self.scripts = dict(scripts or {})
        self.commands = dict(commands or {})
        self.responders = dict(responders or {})
        self.streams: list[MemoryStream | MemoryConnection] = []
        self.pods: dict[str, _Pod] = {}
        self.addresses = AddressPool(POD_NETWORK)
        self.watchers: dict[object, tuple[str, Callable[[], None]]] = {}
        self.images: FakeImages | None = None
        self.disk = FakeDisk()
        self.refusal = ""
        self.resize_refusal = ""
        self.limits: dict[ContainerID, ContainerLimits] = {}
        self.starts: list[ContainerID] = []
        self.signals: list[tuple[ContainerID, int]] = []
        self.programs: list[Program] = []
        self.environments: dict[ContainerID, Mapping[str, str]] = {}

    def lose(self, target: ContainerID, now: datetime) -> None:
        """The run ends for an unknown reason."""
        self.end(target, now, 137, signals.SIGKILL, STATUS_UNKNOWN)

    def silence(self, target: ContainerID, message: str) -> None:
        """The run goes on and is not reported on any more."""
        live = self.pods[target.pod_uid].runs[target]
        live.run = replace(live.run, message=message)

    def end(
        self, target: ContainerID, now: datetime, exit_code: int, number: int = 0, reason: str = ""
    ) -> None:
        """The run ends now, if it has not ended; watchers are called."""
        pod = self.pods.get(target.pod_uid)
        live = pod.runs.get(target) if pod is not None else None
        if live is None or not live.run.running:
            return
        if live.timer is not None:
            live.timer.cancel()
        live.run = replace(
            live.run,
            finished_at=now,
            exit_code=exit_code,
            signal=number,
            reason=reason or (COMPLETED if exit_code == 0 else ERROR),
        )
        for uid, changed in list(self.watchers.values()):
            if uid == target.pod_uid:
                changed()


class _FakeLogs:
    """Logs made from the scripts and the time."""

    def __init__(self, machine: FakeMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock

    def _lines(self, target: ContainerID) -> tuple[list[bytes], bool]:
        pod = self._machine.pods.get(target.pod_uid)
        live = pod.runs.get(target) if pod is not None else None
        if live is None:
            return [], True
        until = live.run.finished_at or self._clock.now()
        lines = []
        for after_s, text in live.script.output:
            at = live.run.started_at + timedelta(seconds=after_s)
            if at <= until:
                lines.append(b"%s stdout F %s" % (container_logs.stamp(at), text.encode()))
        return lines, not live.run.running

    async def read(self, target: ContainerID, query: LogQuery) -> AsyncGenerator[bytes, None]:
        renderer = container_logs.Renderer(query)
        lines, complete = self._lines(target)
        position = len(lines)
        if query.tail_lines is not None:
            lines = container_logs.tail(lines, query.tail_lines)[0]
        if text := renderer.render(lines):
            yield text
        while query.follow and not complete and not renderer.full:
            await self._clock.sleep(_FOLLOW_INTERVAL_S)
            lines, complete = self._lines(target)
            if text := renderer.render(lines[position:]):
                yield text
            position = len(lines)


class FakeRuntime:
    """Runs the scripts of a machine.

    Args:
        machine: what is shared with the next runtime.
        clock: time; timers run on the running loop.
    """

    def __init__(self, machine: FakeMachine, clock: Clock) -> None:
        self._machine = machine
        self._clock = clock
        self._logs = _FakeLogs(machine, clock)

    @property
    def isolation(self) -> str:
        """Nothing runs, so nothing is separated."""
        return "none"

    @property
    def network(self) -> str:
        """Scripts listen on nothing."""
        return "shared"

    @property
    def has_name_files(self) -> bool:
        """Scripts resolve no names."""
        return False

    @property
    def limits(self) -> str:
        """Scripts use nothing."""
        return "none"

    @property
    def images(self) -> FakeImages | None:
        """The images of the machine, if it has any."""
        return self._machine.images

    @property
    def pod_network(self) -> IPv4Network:
        """The range of the pods' addresses."""
        return POD_NETWORK

    @property
    def logs(self) -> _FakeLogs:
        """What the scripts wrote."""
        return self._logs

    @property
    def disk(self) -> FakeDisk:
        """The machine's; see ``PodRuntime``."""
        return self._machine.disk

    async def prepare(self, setup: PodSetup) -> Sandbox:
        """Give the pod an address; see ``PodRuntime``."""
        if self._machine.refusal:
            raise RuntimeFailedError(self._machine.refusal)
        pod = self._machine.pods.get(setup.uid)
        volumes = {plan.name: f"/fake/{setup.uid}/volumes/{plan.name}" for plan in setup.volumes}
        try:
            address = self._machine.addresses.allocate(setup.uid, setup.address)
        except AddressTakenError as error:
            raise RuntimeFailedError(str(error)) from error
        sandbox = Sandbox(setup.uid, address, f"/fake/{setup.uid}", volumes)
        if pod is None:
            self._machine.pods[setup.uid] = _Pod(setup, sandbox)
        else:
            pod.setup, pod.sandbox = setup, sandbox
        return sandbox

    async def start(self, target: ContainerID, program: Program, mounts: tuple[Mount, ...]) -> Run:
        """Begin a script; see ``PodRuntime``."""
        if self._machine.refusal:
            raise RuntimeFailedError(self._machine.refusal)
        pod = self._machine.pods.get(target.pod_uid)
        if pod is None:
            raise RuntimeFailedError(f"pod {target.pod_uid} is not prepared")
        if target in pod.runs:
            return pod.runs[target].run
        live_names = {item.container for item, live in pod.runs.items() if live.run.running}
        if program.joins and program.joins not in live_names:
            raise RuntimeFailedError(
                f"container {program.joins} does not run: its processes cannot be shared"
            )
        now = self._clock.now().astimezone(UTC)
        word = program.command[0]
        script = self._machine.scripts.get(word)
        self._machine.starts.append(target)
        self._machine.programs.append(program)
        self._machine.environments[target] = program.env
        self._machine.limits[target] = program.limits
        if script is None:
            shown = program.written or word
            message = f'program "{shown}" not found: there is no script of that name'
            run = Run(target, now, now, EXIT_NOT_FOUND, reason=START_ERROR, message=message)
            pod.runs[target] = _Live(run, Script(), program)
        else:
            live = _Live(Run(target, now), script, program)
            pod.runs[target] = live
            pod.files.update(script.files)
            if script.duration_s is not None:
                self._end_later(live, script.duration_s, script.exit_code)
        self._keep_two(pod, target.container)
        return pod.runs[target].run

    async def signal(self, target: ContainerID, number: int) -> None:
        """Handle the signal as scripted; see ``PodRuntime``."""
        pod = self._machine.pods.get(target.pod_uid)
        live = pod.runs.get(target) if pod is not None else None
        if live is None or not live.run.running:
            return
        self._machine.signals.append((target, number))
        if number == signals.SIGKILL:
            self._machine.end(target, self._clock.now(), 137, signals.SIGKILL)
        elif live.script.term_s is not None:
            code = live.script.term_exit_code
            if code is None:
                self._end_later(live, live.script.term_s, 128 + number, number)
            else:
                self._end_later(live, live.script.term_s, code)

    async def resize(self, target: ContainerID, limits: ContainerLimits, cpu_milli: int) -> None:
        """Keep the limits; see ``PodRuntime``."""
        self._running(target)
        if self._machine.resize_refusal:
            raise RuntimeFailedError(self._machine.resize_refusal)
        self._machine.limits[target] = limits

    async def run(
        self, target: ContainerID, command: tuple[str, ...], timeout_s: float
    ) -> CommandResult:
        """Answer as configured; see ``PodRuntime``."""
        result = self._result(self._running(target), command)
        if result.timed_out:
            await self._clock.sleep(timeout_s)
        return result

    def _result(self, live: _Live, command: tuple[str, ...]) -> CommandResult:
        missing = CommandResult(EXIT_NOT_FOUND, f'program "{command[0]}" not found')
        result = self._machine.commands.get(command[0], missing)
        return result if isinstance(result, CommandResult) else result(live.program)

    def _running(self, target: ContainerID) -> _Live:
        pod = self._machine.pods.get(target.pod_uid)
        live = pod.runs.get(target) if pod is not None else None
        if live is None or not live.run.running:
            raise RuntimeFailedError(f"{target} is not running")
        return live

    async def exec(
        self, target: ContainerID, command: tuple[str, ...], options: StreamOptions
    ) -> ContainerStream:
        """Begin a responder, or answer as configured; see ``PodRuntime``."""
        live = self._running(target)
        respond = self._machine.responders.get(command[0])
        if respond is not None:
            return self._opened(target, respond)
        result = self._result(live, command)
        stream = self._opened(target, lambda _: Reply())
        if not result.timed_out:
            is_missing = result.exit_code == EXIT_NOT_FOUND
            if result.output and not is_missing:
                stream.feed(Output(STDOUT, result.output.encode()))
            stream.finish(StreamEnd(result.exit_code, result.output if is_missing else ""))
        return stream

    async def attach(self, target: ContainerID, options: StreamOptions) -> ContainerStream:
        """The program's responder; see ``PodRuntime``."""
        live = self._running(target)
        respond = live.script.respond if live.program.stdin and options.stdin else None
        return self._opened(target, respond or (lambda _: Reply()))

    async def connect(self, pod_uid: str, port: int) -> PortConnection:
        """Connect to what a script listens on; see ``PodRuntime``."""
        own = [item for item in await self.listeners() if item.pod_uid == pod_uid]
        if all(item.port != port for item in own):
            raise RuntimeFailedError(nothing_listens(port, own))
        connection = MemoryConnection(self._disconnected)
        self._machine.streams.append(connection)
        return connection

    def _disconnected(self, connection: MemoryConnection) -> None:
        if connection in self._machine.streams:
            self._machine.streams.remove(connection)

    def _opened(self, target: ContainerID, respond: Responder) -> MemoryStream:
        """Streams that end with their container."""
        stream = MemoryStream(respond, on_close=self._closed)
        live = self._running(target)

        def changed() -> None:
            if not live.run.running:
                stream.finish(StreamEnd())

        self._machine.streams.append(stream)
        self._machine.watchers[stream] = (target.pod_uid, changed)
        return stream

    def _closed(self, stream: MemoryStream) -> None:
        if stream in self._machine.streams:
            self._machine.streams.remove(stream)
        self._machine.watchers.pop(stream, None)

    async def remove(self, pod_uid: str) -> None:
        """Kill and forget; see ``PodRuntime``."""
        pod = self._machine.pods.get(pod_uid)
        if pod is None:
            return
        for target in list(pod.runs):
            self._machine.end(target, self._clock.now(), 137, signals.SIGKILL)
        self._machine.pods.pop(pod_uid, None)
        self._machine.addresses.release(pod_uid)

    def pods(self, uid: str | None = None) -> list[PodRecord]:
        """The pods of the machine, or one of them; see ``PodRuntime``."""
        return [
            PodRecord(pod.setup, pod.sandbox, tuple(live.run for live in pod.runs.values()))
            for pod in self._machine.pods.values()
            if uid is None or pod.setup.uid == uid
        ]

    async def usage(self) -> list[ContainerUsage]:
        """What the scripts of running programs use; see ``PodRuntime``."""
        now = self._clock.now()
        return [
            ContainerUsage(
                target,
                (now - live.run.started_at).total_seconds() * live.script.cpu,
                live.script.memory_bytes,
            )
            for pod in self._machine.pods.values()
            for target, live in pod.runs.items()
            if live.run.running
        ]

    async def listeners(self) -> list[ListeningSocket]:
        """What the scripts of running programs listen on; see ``PodRuntime``."""
        return [
            ListeningSocket(target.pod_uid, target.container, address, port)
            for pod in self._machine.pods.values()
            for target, live in pod.runs.items()
            if live.run.running
            for address, port in live.script.listens
        ]

    async def read_file(self, pod_uid: str, name: str, limit: int) -> bytes | None:
        """What a script wrote; see ``PodRuntime``."""
        pod = self._machine.pods.get(pod_uid)
        content = pod.files.get(name) if pod is not None else None
        return content[:limit] if content is not None else None

    async def read_volume(self, pod_uid: str, volume: str, path: str, limit: int) -> bytes | None:
        """What a script wrote under the name of the volume; see ``PodRuntime``."""
        return await self.read_file(pod_uid, f"{volume}/{path}", limit)

    async def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """What a script left under that path; see ``PodRuntime``."""
        pod = self._machine.pods.get(target.pod_uid)
        content = pod.files.get(path) if pod is not None else None
        return content[-limit:] if content is not None else None

    async def write_name_files(self, pod_uid: str, files: NameFiles) -> None:
        """Keep them; see ``PodRuntime``."""
        pod = self._machine.pods.get(pod_uid)
        if pod is not None:
            pod.name_files = files

    def watch(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call back after every end; see ``PodRuntime``."""
        token = object()
        self._machine.watchers[token] = (pod_uid, changed)

        def stop() -> None:
            self._machine.watchers.pop(token, None)

        return stop

    def _end_later(self, live: _Live, seconds: float, exit_code: int, number: int = 0) -> None:
        if live.timer is not None:
            live.timer.cancel()
        live.timer = asyncio.get_running_loop().call_later(
            seconds,
            lambda: self._machine.end(live.run.id, self._clock.now(), exit_code, number),
        )

    def _keep_two(self, pod: _Pod, container: str) -> None:
        attempts = sorted(target for target in pod.runs if target.container == container)
        for target in attempts[:-2]:
            del pod.runs[target]
