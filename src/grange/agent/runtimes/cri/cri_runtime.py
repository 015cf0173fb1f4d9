"""Pods by a container runtime of the machine: the agent's side.

The idea to hold: the container runtime owns sandboxes, containers and images, and remembers them;
labels name the pod, the container and the data directory that they belong to. An agent that starts
over the same data directory lists them and goes on as if it had started them.
"""

import signal
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from ipaddress import IPv4Network
from typing import Any, Self

from grange.agent import pod_directory, pod_watchers, port_connection
from grange.agent.addresses import AddressPool, AddressTakenError, NoAddressLeftError, default_range
from grange.agent.attempt_logs import FileLogs
from grange.agent.container_runtime import (
    CGROUP,
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
from grange.agent.container_streams import StreamOptions
from grange.agent.file_disk import FileDisk
from grange.agent.runtimes.cri import (
    cri_client,
    cri_commands,
    cri_requests,
    cri_sandboxes,
    cri_status,
    cri_streams,
    process_namespaces,
)
from grange.agent.runtimes.cri.bind_notifier import BindNotifier, ShimLauncher
from grange.agent.runtimes.cri.container_watch import ContainerWatch
from grange.agent.runtimes.cri.cri_client import CriClient, CriError, GrpcCriClient
from grange.agent.runtimes.cri.cri_config import CriConfig
from grange.agent.runtimes.cri.cri_files import CriFiles
from grange.agent.runtimes.cri.cri_images import CriImages
from grange.agent.runtimes.cri.cri_pod import CriAttempt, CriPod
from grange.agent.runtimes.cri.cri_streams import CriStream
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.base.tasks import Child, Nursery

_STOP_LIMIT_S = 30 * 86_400  # SIGTERM alone: when it has been long enough is the agent's decision


class CriRuntime(AbstractAsyncContextManager["CriRuntime"]):
    """Runs containers from images. Entering takes over what an earlier runtime left running.

    Leaving ends no container. ``stop_all`` ends them first.

    Args:
        config: where and how.
        clock, log: time and the agent's logger.
        offload: for the disk.
        client: to the container runtime; by default over its socket.
        launcher: of seccomp agents; None leaves containers all addresses of the machine.
    """

    def __init__(
        self,
        config: CriConfig,
        *,
        clock: Clock,
        log: Logger,
        offload: Offload,
        client: CriClient | None = None,
        launcher: ShimLauncher | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._offload = offload
        self._given = client
        self._owner = cri_requests.owner_of(config.data_dir)
        self._files = CriFiles(config.data_dir)
        self.disk = FileDisk(config.data_dir, self._files.root, "logs", offload)
        self._network = config.network or default_range(str(config.data_dir))
        self._addresses = AddressPool(self._network)
        self._pods: dict[str, CriPod] = {}
        self._stack = AsyncExitStack()
        self._nursery: Nursery | None = None
        self._children: list[Child[None]] = []
        self._client: CriClient | None = None
        self._name = "cri"
        self._watch = ContainerWatch(
            self._pods.values,
            self._read_status,
            config,
            self._files,
            clock=clock,
            log=log,
            offload=offload,
        )
        self._notifier = BindNotifier(launcher, self._owner, self._files, log=log, offload=offload)
        self._logs = FileLogs(
            directory=self._files.attempt_logs,
            finished=lambda target: not self._is_running(target),
            clock=clock,
            offload=offload,
        )

    # --- opening, taking over, closing ---------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect and take over.

        Raises:
            RuntimeFailedError: the container runtime cannot be used.
        """
        client = self._given or GrpcCriClient(self._config.socket, self._clock)
        self._client = client
        try:
            self._stack.push_async_callback(client.close)
            self._name = await cri_client.identify(client, self._config)
            await self._take_over(client)
        except CriError as error:
            await self._close()
            raise RuntimeFailedError(
                f"container runtime {self._config.socket}: {error.message}"
            ) from error
        except BaseException:
            await self._close()
            raise
        self._nursery = await self._stack.enter_async_context(Nursery("cri"))
        self._start_child(self._watch.run(client), "list containers")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def _close(self) -> None:
        for pod in self._pods.values():
            if pod.seccomp_agent is not None:
                pod.seccomp_agent.close()
        self._pods.clear()  # they belong to the next runtime now
        self._nursery = None
        for child in self._children:  # whichever task closes: the nursery's owner is not cancelled
            child.cancel()
        self._children.clear()
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()
        self._client = None

    async def _take_over(self, client: CriClient) -> None:
        mine = {"filter": {"label_selector": {cri_requests.OWNER: self._owner}}}
        sandboxes = (await client.call("ListPodSandbox", mine)).get("items") or []
        for item in sorted(sandboxes, key=lambda item: int(item.get("created_at", 0))):
            await self._adopt(client, item)
        for item in (await client.call("ListContainers", mine)).get("containers") or []:
            target = cri_status.target_of(item.get("labels") or {}, item.get("metadata") or {})
            pod = self._pods.get(target.pod_uid)
            if pod is None or int(item.get("state", 0)) == cri_status.CREATED:
                gone = await cri_sandboxes.remove_unstarted(client, str(item.get("id", "")))
                if pod is None or gone:
                    continue
            attempt = CriAttempt(target, str(item.get("id", "")))
            self._notifier.adopt(pod, attempt, item.get("annotations") or {})
            await self._read_status(attempt)
            pod.attempts.setdefault(target.container, []).append(attempt)
        for pod in self._pods.values():
            for attempts in pod.attempts.values():
                attempts.sort(key=lambda item: item.target.attempt)
        for uid in await self._offload.run(self._files.pods):
            if uid not in self._pods:
                await self._offload.run(partial(self._files.remove_pod, uid))
        await self._offload.run(partial(self._notifier.prune, frozenset(self._pods)))

    async def _adopt(self, client: CriClient, item: dict[str, Any]) -> None:
        meta, notes = item.get("metadata") or {}, item.get("annotations") or {}
        sandbox_id, uid = str(item.get("id", "")), str(meta.get("uid", ""))
        address = str(notes.get(cri_requests.ADDRESS, ""))
        before = self._pods.get(uid)
        if before is not None:  # it died, and its successor was made
            await cri_sandboxes.remove(client, before.sandbox_id)
        elif not uid or not address or not self._addresses.adopt(uid, address):
            await cri_sandboxes.remove(client, sandbox_id)
            return
        setup = PodSetup(
            uid,
            str(meta.get("namespace", "")),
            str(meta.get("name", "")),
            str(notes.get(cri_requests.NODE, "")),
            from_images=True,
        )
        sandbox = await self._offload.run(lambda: self._files.found(uid, address))
        number = int(meta.get("attempt", 0))
        self._pods[uid] = CriPod(setup, sandbox, sandbox_id, number)

    # --- the seam ------------------------------------------------------------------------------

    @property
    def logs(self) -> FileLogs:
        """What the containers wrote."""
        return self._logs

    @property
    def images(self) -> CriImages:
        """The images of the runtime."""
        return CriImages(self._opened())

    @property
    def isolation(self) -> str:
        """What separates pods from each other and from the machine, for the Node."""
        return "namespaces"

    @property
    def network(self) -> str:
        """What a program gets that listens on all addresses, for the Node."""
        return "shared"

    @property
    def has_name_files(self) -> bool:
        """Containers have ``/etc/hosts`` and ``/etc/resolv.conf`` to themselves."""
        return True

    @property
    def limits(self) -> str:
        """What holds containers to their limits, for the Node."""
        return CGROUP

    @property
    def pod_network(self) -> IPv4Network:
        """The range of the pods' addresses."""
        return self._network

    async def prepare(self, setup: PodSetup) -> Sandbox:
        """Give the pod its sandbox, address and directories; see ``PodRuntime``."""
        client = self._opened()
        known = self._pods.get(setup.uid)
        if known is not None:
            async with known.lock:
                return await self._prepare_again(client, known, setup)
        address = self._allocate(setup)
        sandbox_id = ""
        try:
            sandbox = await self._offload.run(lambda: self._files.make_pod(setup, address))
            sandbox_id = await self._run_sandbox(client, setup, address, 0)
        except BaseException as error:
            if setup.uid not in self._pods:
                self._addresses.release(setup.uid)
            if isinstance(error, CriError):
                raise _failed(f"pod {setup.uid}", error) from error
            raise
        self._pods[setup.uid] = CriPod(setup, sandbox, sandbox_id)
        return sandbox

    async def _prepare_again(self, client: CriClient, pod: CriPod, setup: PodSetup) -> Sandbox:
        """Bring the volumes up to date; a sandbox that has died is replaced, with its containers."""
        if pod.ending:
            raise RuntimeFailedError(f"pod {setup.uid} is coming to its end")
        address = pod.sandbox.address
        try:
            if not await cri_sandboxes.is_ready(client, pod.sandbox_id):
                await cri_sandboxes.remove(client, pod.sandbox_id)
                for attempt in pod.all_attempts():
                    self._end_lost(pod, attempt)
                number = pod.sandbox_attempt + 1
                pod.sandbox_id = await self._run_sandbox(client, setup, address, number)
                pod.sandbox_attempt = number
        except CriError as error:
            raise _failed(f"pod {setup.uid}", error) from error
        pod.sandbox = await self._offload.run(lambda: self._files.make_pod(setup, address))
        pod.setup = setup
        return pod.sandbox

    async def start(self, target: ContainerID, program: Program, mounts: tuple[Mount, ...]) -> Run:
        """Create and start a container; see ``PodRuntime``."""
        client = self._opened()
        pod = self._pods.get(target.pod_uid)
        if pod is None or pod.ending:
            raise RuntimeFailedError(f"pod {target.pod_uid} is not prepared")
        async with pod.lock:
            attempt = pod.attempt(target)
            if attempt is not None and attempt.run is not None:
                return attempt.run
            if attempt is None:
                attempt = CriAttempt(target)
                pod.attempts.setdefault(target.container, []).append(attempt)
            try:
                return await self._start(client, pod, attempt, program, mounts)
            except CriError as error:
                raise _failed(str(target), error) from error
            finally:
                if not attempt.container_id:
                    pod.attempts[target.container].remove(attempt)

    async def _start(
        self,
        client: CriClient,
        pod: CriPod,
        attempt: CriAttempt,
        program: Program,
        mounts: tuple[Mount, ...],
    ) -> Run:
        target = attempt.target
        if not attempt.container_id:
            await self._offload.run(lambda: self._files.make_logs(target))
            found = await self._offload.run(
                lambda: self._files.mounts(target, pod.sandbox, mounts, program.message_path)
            )
            request = {
                "pod_sandbox_id": pod.sandbox_id,
                "config": cri_requests.container_config(
                    target,
                    program,
                    [cri_requests.mount_of(mount, source) for mount, source in found],
                    owner=self._owner,
                    setup=pod.setup,
                    joined=pod.container_id_of(program.joins),
                ),
                "sandbox_config": self._sandbox_config(
                    pod.setup, pod.sandbox.address, pod.sandbox_attempt
                ),
            }
            await self._notifier.create(client, pod, attempt, request)
        try:
            await client.call("StartContainer", {"container_id": attempt.container_id})
            self._notifier.confirm(pod.setup, attempt)
        except CriError as error:
            if error.code in {cri_client.UNAVAILABLE, cri_client.TIMED_OUT}:
                raise  # it may have been started: the next try finds out
            if await self._notifier.remove_refused(client, attempt, error):
                return await self._start(client, pod, attempt, program, mounts)
            self._log.debug("container not started", target=str(target), error=error.message)
        await self._read_status(attempt)
        if attempt.run is None:
            raise RuntimeFailedError(f"{target}: the container was not started")
        await self._keep_two(client, pod, target.container)
        return attempt.run

    async def signal(self, target: ContainerID, number: int) -> None:
        """Ask the container to stop, or kill it; see ``PodRuntime``.

        The interface has no signals but these: SIGTERM is the stop signal of the image.
        """
        pod = self._pods.get(target.pod_uid)
        attempt = pod.attempt(target) if pod is not None else None
        if pod is None or attempt is None or not attempt.is_running or self._nursery is None:
            return
        if number == signal.SIGTERM and attempt.is_stopping:
            return
        attempt.is_stopping = True
        limit_s = 0 if number == signal.SIGKILL else _STOP_LIMIT_S
        self._start_child(self._stop(pod, attempt, limit_s), f"stop {target}")

    async def resize(self, target: ContainerID, limits: ContainerLimits, cpu_milli: int) -> None:
        """Change the weight and the limits of a running container; see ``PodRuntime``."""
        await cri_commands.resize(self._opened(), self._running(target), limits, cpu_milli)

    async def run(
        self, target: ContainerID, command: tuple[str, ...], timeout_s: float
    ) -> CommandResult:
        """Run a command in a running container; see ``PodRuntime``.

        The interface counts whole seconds: a command has one at least.
        """
        client, limit = self._opened(), self._config.command_output_bytes
        return await cri_commands.run(client, self._running(target), command, timeout_s, limit)

    async def exec(
        self, target: ContainerID, command: tuple[str, ...], options: StreamOptions
    ) -> CriStream:
        """Begin a command in a running container; see ``PodRuntime``."""
        asked = cri_requests.exec_request(self._running(target).container_id, command, options)
        return await self._stream("Exec", asked, options, command[0])

    async def attach(self, target: ContainerID, options: StreamOptions) -> CriStream:
        """The streams of a main process; see ``PodRuntime``."""
        asked = cri_requests.attach_request(self._running(target).container_id, options)
        return await self._stream("Attach", asked, options, "")

    async def connect(self, pod_uid: str, port: int) -> port_connection.SocketConnection:
        """Connect to a port of a pod; see ``PodRuntime``."""
        pod = self._pods.get(pod_uid)
        if pod is None:
            raise RuntimeFailedError(f"pod {pod_uid} does not run here")
        own = [item for item in await self.listeners() if item.pod_uid == pod_uid]
        return await port_connection.connect(pod.sandbox.address, port, own, self._clock)

    async def _stream(
        self, call: str, request: dict[str, Any], options: StreamOptions, program: str
    ) -> CriStream:
        client = self._opened()
        return await cri_streams.opened(
            client, call, request, CriStream(options, program), self._nursery, self._clock
        )

    def _running(self, target: ContainerID) -> CriAttempt:
        pod = self._pods.get(target.pod_uid)
        attempt = pod.attempt(target) if pod is not None else None
        if attempt is None or not attempt.is_running:
            raise RuntimeFailedError(f"{target} is not running")
        return attempt

    async def remove(self, pod_uid: str) -> None:
        """Kill what is left of the pod and delete it; see ``PodRuntime``."""
        client = self._opened()
        pod = self._pods.get(pod_uid)
        if pod is None:
            return
        pod.ending = True
        async with pod.lock:
            try:
                await cri_sandboxes.remove(client, pod.sandbox_id)
            except CriError as error:
                raise _failed(f"pod {pod_uid}", error) from error
            for attempt in pod.all_attempts():
                self._end_lost(pod, attempt)
            self._notifier.remove(pod)
            await self._offload.run(lambda: self._files.remove_pod(pod_uid))
        self._pods.pop(pod_uid, None)
        self._addresses.release(pod_uid)

    def pods(self, uid: str | None = None) -> list[PodRecord]:
        """The pods that are prepared, or one of them; see ``PodRuntime``."""
        if uid is None:
            return [pod.record() for pod in self._pods.values()]
        found = self._pods.get(uid)
        return [found.record()] if found is not None else []

    async def usage(self) -> list[ContainerUsage]:
        """What running containers have used; see ``PodRuntime``."""
        mine = {cri_requests.OWNER: self._owner}
        found = await cri_commands.usage(self._opened(), mine)
        return [item for item in found if self._is_running(item.id)]

    async def listeners(self) -> list[ListeningSocket]:
        """The TCP ports that containers listen on; see ``PodRuntime``."""
        return await process_namespaces.listeners(
            self._opened(), self._pods.values(), self._offload
        )

    async def read_file(self, pod_uid: str, name: str, limit: int) -> bytes | None:
        """A file of the pod's temporary directory; see ``PodRuntime``."""
        if pod_uid not in self._pods:
            return None
        return await self._offload.run(lambda: self._files.read_file(pod_uid, name, limit))

    async def read_volume(self, pod_uid: str, volume: str, path: str, limit: int) -> bytes | None:
        """A file of a pod's volume; see ``PodRuntime``."""
        top = self._files.pod(pod_uid)
        return await self._offload.run(lambda: pod_directory.read_volume(top, volume, path, limit))

    async def read_message(self, target: ContainerID, path: str, limit: int) -> bytes | None:
        """What a container left there; see ``PodRuntime``."""
        if target.pod_uid not in self._pods:
            return None
        return await self._offload.run(lambda: self._files.read_message(target, path, limit))

    async def write_name_files(self, pod_uid: str, files: NameFiles) -> None:
        """Change the pod's files of names; see ``PodRuntime``."""
        if pod_uid in self._pods:
            await self._offload.run(lambda: self._files.write_name_files(pod_uid, files))

    def watch(self, pod_uid: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call back after every end of a run; see ``PodRuntime``."""
        pod = self._pods.get(pod_uid)
        return (lambda: None) if pod is None else pod_watchers.add(pod.watchers, changed)

    async def stop_all(self, grace_s: float) -> None:
        """End every container: SIGTERM, then SIGKILL after the grace; nothing starts after that.

        Records and logs stay for the next runtime.
        """
        client = self._opened()
        pods = list(self._pods.values())
        for pod in pods:
            pod.ending = True
            for attempt in pod.all_attempts():
                await self.signal(attempt.target, signal.SIGTERM)
        try:
            async with self._clock.timeout(grace_s):
                for pod in pods:
                    for attempt in pod.all_attempts():
                        if attempt.is_running:
                            await attempt.ended.wait()
        except TimeoutError:
            self._log.info("killing containers that do not stop", waited_s=grace_s)
        for pod in pods:
            try:
                await client.call("StopPodSandbox", {"pod_sandbox_id": pod.sandbox_id})
                self._notifier.remove(pod)
            except CriError as error:
                self._log.error("cannot stop a pod", pod=pod.setup.name, error=error.message)

    # --- sandboxes -----------------------------------------------------------------------------

    def _opened(self) -> CriClient:
        if self._client is None:
            raise RuntimeFailedError("the runtime is closed")
        return self._client

    def _start_child(self, work: Coroutine[object, object, None], name: str) -> None:
        if self._nursery is None:
            work.close()
            return
        self._children = [child for child in self._children if not child.done()]
        self._children.append(self._nursery.start(work, name=name))

    def _allocate(self, setup: PodSetup) -> str:
        try:
            return self._addresses.allocate(setup.uid, setup.address)
        except (NoAddressLeftError, AddressTakenError) as error:
            raise RuntimeFailedError(str(error)) from error

    def _sandbox_config(self, setup: PodSetup, address: str, attempt: int) -> dict[str, Any]:
        return cri_requests.sandbox_config(
            setup,
            owner=self._owner,
            attempt=attempt,
            address=address,
            logs=self._files.logs(setup.uid),
        )

    async def _run_sandbox(
        self, client: CriClient, setup: PodSetup, address: str, attempt: int
    ) -> str:
        request = {
            "config": self._sandbox_config(setup, address, attempt),
            "runtime_handler": setup.runtime_handler,
        }
        return str((await client.call("RunPodSandbox", request)).get("pod_sandbox_id", ""))

    # --- containers ----------------------------------------------------------------------------

    def _is_running(self, target: ContainerID) -> bool:
        pod = self._pods.get(target.pod_uid)
        attempt = pod.attempt(target) if pod is not None else None
        return attempt is not None and not attempt.ended.is_set()

    async def _read_status(self, attempt: CriAttempt) -> bool:
        """Ask how a container is; True if it has ended since the last time.

        Raises:
            CriError: the runtime cannot be asked.
        """
        request = {"container_id": attempt.container_id}
        try:
            answer = await self._opened().call("ContainerStatus", request)
        except CriError as error:
            if error.code != cri_client.NOT_FOUND:
                raise
            return attempt.take(cri_status.lost(attempt.target, attempt.run, self._clock.now()))
        status = answer.get("status") or {}
        return attempt.take(cri_status.run_of(attempt.target, status, self._name))

    def _end_lost(self, pod: CriPod, attempt: CriAttempt) -> None:
        if attempt.is_running and attempt.take(
            cri_status.lost(attempt.target, attempt.run, self._clock.now())
        ):
            pod.wake()

    async def _stop(self, pod: CriPod, attempt: CriAttempt, limit_s: int) -> None:
        request = {"container_id": attempt.container_id, "timeout": limit_s}
        wait_s = limit_s + self._config.kill_limit_s
        try:
            await self._opened().call("StopContainer", request, wait_s)
            if await self._read_status(attempt):
                pod.wake()
        except CriError as error:
            attempt.is_stopping = False
            if attempt.is_running and error.code != cri_client.NOT_FOUND:
                self._log.warning(
                    "container not stopped", target=str(attempt.target), error=error.message
                )
        except RuntimeFailedError:
            return  # closed meanwhile

    async def _keep_two(self, client: CriClient, pod: CriPod, container: str) -> None:
        """Remove attempts that cannot be queried any more."""
        attempts = pod.attempts[container]
        for attempt in attempts[:-2]:
            try:
                await client.call("RemoveContainer", {"container_id": attempt.container_id})
            except CriError as error:
                self._log.debug("container not removed", error=error.message)
            await self._offload.run(partial(self._files.remove_logs, attempt.target))
        del attempts[:-2]


def _failed(what: str, error: CriError) -> RuntimeFailedError:
    return RuntimeFailedError(f"{what}: the container runtime failed: {error.message}")
