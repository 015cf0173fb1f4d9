"""Pods as processes of this machine: the server's side.

The idea to hold: the server owns no process. Shims do (see ``shim``), and a shim reports that it has
ended by closing its connection. A server that starts over the same data connects to the shims that
it finds and goes on as if it had started them.
"""

import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Self

from grange.agent import (
    memory_streams,
    pod_directory,
    pod_watchers,
    port_connection,
    runtime_choices,
)
from grange.agent.addresses import (
    AddressPool,
    AddressTakenError,
    NoAddressLeftError,
    default_range,
)
from grange.agent.attempt_logs import FileLogs
from grange.agent.container_runtime import (
    CGROUP,
    EXIT_NOT_FOUND,
    NO_LIMITS,
    CommandResult,
    ContainerID,
    ContainerLimits,
    ContainerUsage,
    ListeningSocket,
    Mount,
    NameFiles,
    PodRecord,
    PodSetup,
    Program,
    Run,
    RuntimeFailedError,
    Sandbox,
)
from grange.agent.container_streams import ContainerStream, PortConnection, StreamEnd, StreamOptions
from grange.agent.file_disk import FileDisk
from grange.agent.runtimes.process import (
    cgroups,
    container_usage,
    data_lock,
    listeners,
    networks,
    pod_networks,
    prepared_pod,
    programs,
    shim_connection,
    views,
)
from grange.agent.runtimes.process.attempt_follower import AttemptFollower
from grange.agent.runtimes.process.cgroups import ControlGroups
from grange.agent.runtimes.process.command_runner import CommandRunner
from grange.agent.runtimes.process.files import Layout, PodFile
from grange.agent.runtimes.process.launcher import Launcher
from grange.agent.runtimes.process.orphans import Undertaker, kill_exact
from grange.agent.runtimes.process.prepared_pod import PreparedPod
from grange.agent.runtimes.process.process_config import ProcessConfig
from grange.agent.runtimes.process.shim_connection import ContainerRun
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload

__all__ = ["ProcessConfig", "ProcessRuntime"]

_START_LIMIT_S = 30.0  # a shim answers within milliseconds unless the machine is drowning
_TERM = "xterm"  # of commands with a terminal, where the container has no other


class ProcessRuntime(AbstractAsyncContextManager["ProcessRuntime"]):
    """Runs containers as processes. Entering takes over what an earlier runtime left running.

    Leaving ends no container: they go on under their shims. ``stop_all`` ends them first, for a
    server that shall leave nothing behind.

    Args:
        config: where and how.
        clock, log: time and the agent's logger.
        offload: for the disk.
    """

    def __init__(
        self, config: ProcessConfig, *, clock: Clock, log: Logger, offload: Offload
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._offload = offload
        self._layout = Layout(config.data_dir)
        self._disk = FileDisk(config.data_dir, self._layout.root, "containers", offload)
        self._network = config.network or default_range(str(config.data_dir))
        self._addresses = AddressPool(self._network)
        last = str(self._network.broadcast_address)  # which no pod gets
        self._networks = pod_networks.PodNetworks(str(config.data_dir), last)
        self._pods: dict[str, PreparedPod] = {}
        self._commands = CommandRunner(self.request, clock, kill_limit_s=config.kill_limit_s)
        self._undertaker = Undertaker(self._layout, clock=clock, log=log)
        self._follower = AttemptFollower(
            self._layout,
            self._undertaker,
            clock=clock,
            log=log,
            offload=offload,
            abandon=self._commands.abandon,
        )
        self._lock_fd = -1
        self._launcher: Launcher | None = None
        self._sight = views.sight((config.data_dir, *config.hidden), config.shown)
        self._tier = runtime_choices.NO_ISOLATION
        self._programs_network = runtime_choices.SHARED
        self._groups: ControlGroups | None = None
        self._logs = FileLogs(
            directory=self._layout.attempt,
            finished=lambda target: not self._is_running(target),
            clock=clock,
            offload=offload,
        )

    # --- opening, taking over, closing ---------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Take over.

        A shim that does not answer in time holds nothing up: its container counts as running, as
        the record on disk has it, until the shim answers.

        Raises:
            RuntimeFailedError: another server is using the data directory, or it is not writable.
        """
        try:
            config = self._config
            self._lock_fd = await data_lock.acquire(
                config.data_dir, config.lock_limit_s, self._clock
            )
            self._groups = await self._offload.run(lambda: cgroups.of_data_dir(config.data_dir))
            self._undertaker.groups = self._groups
            for uid in await self._offload.run(self._layout.pods):
                await self._adopt_pod(uid)
            await self._follower.await_answers(self._attempts(), config.answer_limit_s)
        except OSError as error:
            await self._close()
            raise RuntimeFailedError(
                f"cannot take over {error.filename or self._layout.root}: {error.strerror}"
            ) from error
        except BaseException:
            await self._close()
            raise
        self._launcher = Launcher(self._lock_fd, config.data_dir)
        try:
            await self._prune_groups()
            await self._offload.run(lambda: self._networks.prune(self._pods))
            self._tier = await self._offload.run(
                lambda: views.choose(
                    config.isolation, lambda spec: self.request("run", "", spec), config.data_dir
                )
            )
            self._programs_network = await self._offload.run(
                lambda: networks.choose(
                    config.programs_network,
                    lambda: self.request("probe bind", "", {}),
                    lambda: pod_networks.refusal(
                        self._networks, str(self._network.network_address)
                    ),
                )
            )
        except BaseException:
            await self._close()
            raise
        return self

    async def _prune_groups(self) -> None:
        if (groups := self._groups) is not None:
            running = [attempt.target for attempt in self._running()]
            await self._offload.run(lambda: groups.prune(running))

    def _running(self) -> list[ContainerRun]:
        return [attempt for attempt in self._attempts() if not attempt.ended.is_set()]

    def _attempts(self) -> list[ContainerRun]:
        return [attempt for pod in self._pods.values() for attempt in pod.all_attempts()]

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        await self._commands.close()
        for attempt in self._attempts():
            attempt.disconnect()
        self._pods.clear()  # they belong to the next runtime now
        launcher, self._launcher = self._launcher, None
        if launcher is not None:
            launcher.close()
        if self._groups is not None:
            self._groups.close()  # stays where containers go on
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    async def _adopt_pod(self, uid: str) -> None:
        record = await self._offload.run(lambda: self._layout.read_pod(uid))
        if record is None or not self._addresses.adopt(uid, record.address):
            # Half made when the power went, or damaged: nothing there can be trusted.
            targets = self._layout.attempts(uid)
            await self._offload.run(lambda: self._undertaker.kill(targets))
            await self._offload.run(lambda: self._layout.remove_pod(uid))
            return
        pod = PreparedPod(
            PodSetup(record.uid, record.namespace, record.name, record.node_name),
            self._sandbox(record),
        )
        self._pods[uid] = pod
        for target in await self._offload.run(lambda: self._layout.attempts(uid)):
            await self._follower.adopt(pod, target)

    # --- the seam ------------------------------------------------------------------------------

    @property
    def logs(self) -> FileLogs:
        """What the containers wrote."""
        return self._logs

    @property
    def disk(self) -> FileDisk:
        """Where containers write."""
        return self._disk

    @property
    def isolation(self) -> str:
        """What separates pods from each other and from the machine, for the Node."""
        return self._tier

    @property
    def network(self) -> str:
        """What a program gets that listens on all addresses, for the Node."""
        return self._programs_network

    @property
    def has_name_files(self) -> bool:
        """Whether containers have files ``/etc/hosts`` and ``/etc/resolv.conf`` to themselves."""
        return self._has_views

    @property
    def limits(self) -> str:
        """What holds containers to their limits, for the Node."""
        return CGROUP if self._groups is not None else NO_LIMITS

    @property
    def pod_network(self) -> IPv4Network:
        """The range of the pods' addresses."""
        return self._network

    @property
    def images(self) -> None:
        """Programs are the machine's: there are no images."""

    async def prepare(self, setup: PodSetup) -> Sandbox:
        """Give the pod its address and directories; see ``PodRuntime``."""
        while True:
            try:
                return await self._prepare(setup)
            except pod_networks.RouteTakenError as error:
                self._addresses.exclude(error.address)

    async def _prepare(self, setup: PodSetup) -> Sandbox:
        known = self._pods.get(setup.uid)
        try:
            address = self._addresses.allocate(setup.uid, setup.address)
        except (NoAddressLeftError, AddressTakenError) as error:
            raise RuntimeFailedError(str(error)) from error
        try:
            record = await self._offload.run(
                lambda: self._layout.make_pod(setup, address, has_names=self._has_views)
            )
            if known is None or not known.ending:
                await self._make_network(setup, address, known)
        except RuntimeFailedError:
            if known is None:  # nothing would remove what was made so far, secrets included
                self._addresses.release(setup.uid)
                await self._offload.run(lambda: self._layout.remove_pod(setup.uid))
            raise
        if known is not None and known.ending:
            raise RuntimeFailedError(f"pod {setup.uid} is coming to its end")
        if known is not None:
            known.setup = setup
            known.sandbox = self._sandbox(record)
            return known.sandbox
        pod = PreparedPod(setup, self._sandbox(record))
        self._pods[setup.uid] = pod
        return pod.sandbox

    async def _make_network(self, setup: PodSetup, address: str, known: PreparedPod | None) -> None:
        """Give the pod its network, unless containers of it run: those keep what they have."""
        if self._programs_network != runtime_choices.NETNS or setup.host_network:
            return
        attempts = known.all_attempts() if known is not None else ()
        if self._networks.path(setup.uid) or any(not one.ended.is_set() for one in attempts):
            return
        await self._offload.run(lambda: self._networks.make(setup.uid, address))

    async def start(self, target: ContainerID, program: Program, mounts: tuple[Mount, ...]) -> Run:
        """Start an attempt; see ``PodRuntime``."""
        pod = self._pods.get(target.pod_uid)
        if pod is None or pod.ending:
            raise RuntimeFailedError(f"pod {target.pod_uid} is not prepared")
        attempt = self._attempt(target)
        if attempt is None:
            attempt = ContainerRun(target, program)
            kept = pod.attempts.setdefault(target.container, [])
            kept.append(attempt)
            try:
                await self._begin(pod, attempt, program, mounts)
            except BaseException:
                kept.remove(attempt)
                raise
            del kept[:-2]
        try:
            async with self._clock.timeout(_START_LIMIT_S):
                await attempt.changed.wait()
        except TimeoutError as error:
            raise RuntimeFailedError(f"{target}: its process did not start in time") from error
        if attempt.run is None:
            pod.attempts[target.container].remove(attempt)
            raise RuntimeFailedError(f"{target}: cannot start a process: {attempt.refusal}")
        return attempt.run

    async def signal(self, target: ContainerID, number: int) -> None:
        """Send a signal to the attempt's process group; see ``PodRuntime``."""
        attempt = self._attempt(target)
        if attempt is not None and attempt.connection is not None:
            attempt.connection.signal(number)

    async def resize(self, target: ContainerID, limits: ContainerLimits, cpu_milli: int) -> None:
        """Change the limits of a running container; see ``PodRuntime``."""
        program = self._running_container(target)[2]
        groups = self._groups
        if groups is None or not (any(limits) or any(program.limits)):
            return
        if not any(program.limits):
            raise RuntimeFailedError(
                "it was started without limits, and has them from its next start"
            )
        await self._offload.run(lambda: groups.change(target, limits))

    async def run(
        self, target: ContainerID, command: tuple[str, ...], timeout_s: float
    ) -> CommandResult:
        """Run a command in a running container; see ``PodRuntime``."""
        spec = self._command(target, command)
        if isinstance(spec, str):
            return CommandResult(EXIT_NOT_FOUND, spec)
        spec["timeout_s"] = timeout_s
        spec["output_limit"] = self._config.command_output_bytes
        return await self._commands.run(target, spec, timeout_s)

    async def exec(
        self, target: ContainerID, command: tuple[str, ...], options: StreamOptions
    ) -> ContainerStream:
        """Begin a command in a running container; see ``PodRuntime``."""
        spec = self._command(target, command, tty=options.tty)
        if isinstance(spec, str):
            return memory_streams.ended(StreamEnd(EXIT_NOT_FOUND, spec))
        return await self._commands.exec(target, spec, options)

    async def attach(self, target: ContainerID, options: StreamOptions) -> ContainerStream:
        """The streams of the container's main process; see ``PodRuntime``."""
        program = self._running_container(target)[2]
        return await self._commands.attach(target, self._layout.attempt(target), program, options)

    async def connect(self, pod_uid: str, port: int) -> PortConnection:
        """Connect to a port of a pod; see ``PodRuntime``."""
        pod = self._pods.get(pod_uid)
        if pod is None:
            raise RuntimeFailedError(f"pod {pod_uid} is not prepared")
        own = [item for item in await self.listeners() if item.pod_uid == pod_uid]
        opens = pod_networks.opener(self._networks.path(pod_uid), self._offload)
        return await port_connection.connect(pod.sandbox.address, port, own, self._clock, opens)

    async def remove(self, pod_uid: str) -> None:
        """Kill what is left of the pod and delete it; see ``PodRuntime``.

        Raises:
            RuntimeFailedError: a process does not die (it is stuck in the kernel); try again.
        """
        pod = self._pods.get(pod_uid)
        if pod is None:
            return
        pod.ending = True
        await self._kill([pod])
        if any(not attempt.ended.is_set() for attempt in pod.all_attempts()):
            raise RuntimeFailedError(f"pod {pod_uid}: a process does not die")
        await self._commands.close(pod_uid)
        await self._offload.run(lambda: self._networks.remove([pod_uid]))
        await self._offload.run(lambda: self._layout.remove_pod(pod_uid))
        self._pods.pop(pod_uid, None)
        self._addresses.release(pod_uid)

    def pods(self, uid: str | None = None) -> list[PodRecord]:
        """The pods that are prepared, or one of them; see ``PodRuntime``."""
        if uid is None:
            return [pod.record() for pod in self._pods.values()]
        found = self._pods.get(uid)
        return [found.record()] if found is not None else []

    async def usage(self) -> list[ContainerUsage]:
        """What every running container has used; see ``PodRuntime``."""
        running = {item.shim[0]: item.target for item in self._running() if item.shim[0]}
        return await self._offload.run(lambda: container_usage.of_containers(running, self._groups))

    async def listeners(self) -> list[ListeningSocket]:
        """The TCP ports that containers listen on; see ``PodRuntime``."""
        return await self._offload.run(lambda: listeners.find(self._layout.root))

    async def read_file(self, pod_uid: str, name: str, limit: int) -> bytes | None:
        """A file of the pod's temporary directory; see ``PodRuntime``."""
        if pod_uid not in self._pods:
            return None
        return await self._offload.run(lambda: self._layout.read_file(pod_uid, name, limit))

    async def read_volume(self, pod_uid: str, volume: str, path: str, limit: int) -> bytes | None:
        """A file of a pod's volume; see ``PodRuntime``."""
        if pod_uid not in self._pods:
            return None
        top = self._layout.pod(pod_uid)
        return await self._offload.run(lambda: pod_directory.read_volume(top, volume, path, limit))

    async def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """What a program left at its message path; see ``PodRuntime``."""
        if target.pod_uid not in self._pods:
            return None
        return await self._offload.run(lambda: self._layout.read_message(target, path, limit))

    async def write_name_files(self, pod_uid: str, files: NameFiles) -> None:
        """Change how isolated containers resolve names; see ``PodRuntime``."""
        pod = self._pods.get(pod_uid)
        if pod is not None and not pod.ending:
            await self._offload.run(lambda: self._layout.write_name_files(pod_uid, files))

    def watch(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call back after every end of a run; see ``PodRuntime``."""
        pod = self._pods.get(pod_uid)
        return (lambda: None) if pod is None else pod_watchers.add(pod.watchers, changed)

    async def stop_all(self, grace_s: float) -> None:
        """End every container: SIGTERM, then SIGKILL after the grace; nothing starts after that.

        Records and logs stay for the next runtime.
        """
        pods = list(self._pods.values())
        for pod in pods:
            pod.ending = True
        await prepared_pod.end(self._clock, pods, signal.SIGTERM, grace_s)
        await self._kill(pods)
        await self._offload.run(lambda: self._networks.remove([pod.setup.uid for pod in pods]))

    # --- inside --------------------------------------------------------------------------------

    @property
    def _has_views(self) -> bool:
        return self._tier == runtime_choices.NAMESPACES

    def _sandbox(self, record: PodFile) -> Sandbox:
        directory = str(self._layout.pod(record.uid))
        return Sandbox(record.uid, record.address, directory, dict(record.volumes))

    def _attempt(self, target: ContainerID) -> ContainerRun | None:
        pod = self._pods.get(target.pod_uid)
        for attempt in pod.attempts.get(target.container, ()) if pod else ():
            if attempt.target == target:
                return attempt
        return None

    def _is_running(self, target: ContainerID) -> bool:
        attempt = self._attempt(target)
        return attempt is not None and not attempt.ended.is_set()

    async def _begin(
        self, pod: PreparedPod, attempt: ContainerRun, program: Program, mounts: tuple[Mount, ...]
    ) -> None:
        target = attempt.target
        volumes = dict(pod.sandbox.volumes)
        mounted = self._has_views and not program.joins
        directory = await self._offload.run(
            lambda: self._layout.make_attempt(target, program, mounts, volumes, own_view=mounted)
        )
        if pod.ending:
            raise RuntimeFailedError(f"pod {target.pod_uid} is coming to its end")
        cwd = self._cwd(pod, target, program)
        found = programs.locate(program, cwd, own_view=self._has_views)
        if isinstance(found, str):
            now = self._clock.now().timestamp()
            state = shim_connection.refused(
                {"started_at": now, "finished_at": now}, EXIT_NOT_FOUND, found
            )
            try:
                await self._offload.run(lambda: self._layout.write_state(target, state))
            except OSError as error:
                raise RuntimeFailedError(f"{target}: {error.strerror}") from error
            attempt.take(state)
            attempt.finish()
            return
        own = self._networks.path(target.pod_uid)
        spec = programs.specification(program, found, cwd, self._layout.attempt(target), own)
        spec["log_max_bytes"] = self._config.log_max_bytes
        spec["log_files"] = self._config.log_files
        spec["id"] = str(target)
        if not own and networks.binds_its_address(self._programs_network, pod.setup):
            spec["address"] = pod.sandbox.address
        if joined := pod.joined_process(program.joins):
            spec["join"] = joined
        elif self._has_views:
            root = pod.sandbox.root(target.container)
            where = self._layout.pod(target.pod_uid)
            spec["view"] = views.of_container(
                where, root, pod.setup, program, mounts, volumes, self._sight
            )
        if self._tier == runtime_choices.LANDLOCK:
            where = self._layout.pod(target.pod_uid)
            spec["restrict"] = views.restriction(where, self._sight.hidden, alone=not program.joins)
        groups = self._groups
        if groups is not None and any(program.limits):
            spec["groups"] = await self._offload.run(lambda: groups.make(target, program.limits))
        self._follower.listen(pod, attempt, self.request("start", str(directory), spec))

    def _running_container(self, target: ContainerID) -> tuple[PreparedPod, ContainerRun, Program]:
        pod, attempt = self._pods.get(target.pod_uid), self._attempt(target)
        if pod is None or attempt is None or attempt.ended.is_set() or attempt.program is None:
            raise RuntimeFailedError(f"{target} is not running")
        return pod, attempt, attempt.program

    def _command(
        self, target: ContainerID, command: tuple[str, ...], *, tty: bool = False
    ) -> dict[str, object] | str:
        """What a shim needs to run a command in a container, or why there is no such command."""
        pod, attempt, of_container = self._running_container(target)
        program = replace(of_container, command=command, written="", stdin=False, tty=False)
        if tty:
            program = replace(program, env={"TERM": _TERM, **program.env})
        cwd = self._cwd(pod, target, program)
        found = programs.locate(program, cwd, own_view=attempt.is_isolated)
        if isinstance(found, str):
            return found
        own = self._networks.path(target.pod_uid)
        spec = programs.specification(program, found, cwd, self._layout.attempt(target), own)
        if attempt.address:
            spec["address"] = attempt.address
        if attempt.is_isolated and attempt.run is not None:
            spec["join"] = attempt.run.pid
        elif self._tier == runtime_choices.LANDLOCK:  # it may signal the container's program
            where = self._layout.pod(target.pod_uid)
            spec["restrict"] = views.restriction(where, self._sight.hidden, alone=False)
        if self._groups is not None and any(program.limits):
            spec["groups"] = self._groups.directories(target)
        return spec

    def request(
        self,
        operation: str,
        directory: str,
        spec: dict[str, object],
        descriptors: Sequence[int] = (),
    ) -> socket.socket:
        """Ask the launcher for a process; see ``Launcher.request``."""
        if self._launcher is None:
            raise RuntimeFailedError("the runtime is closed")
        return self._launcher.request(operation, directory, spec, descriptors)

    def _cwd(self, pod: PreparedPod, target: ContainerID, program: Program) -> Path:
        return Path(pod.sandbox.root(target.container), program.working_dir)

    async def _kill(self, pods: list[PreparedPod]) -> None:
        """SIGKILL whatever runs, and then shims that do not react, as stopped processes cannot."""
        await prepared_pod.end(self._clock, pods, signal.SIGKILL, self._config.kill_limit_s)
        left = [item for pod in pods for item in pod.all_attempts() if not item.ended.is_set()]
        for attempt in left:
            if kill_exact(*attempt.shim):
                self._log.warning(
                    "killed a supervisor that did not react", target=str(attempt.target)
                )
        if left:
            await prepared_pod.end(self._clock, pods, signal.SIGKILL, self._config.kill_limit_s)
