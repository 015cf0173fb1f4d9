"""Lets containers ask at bind(2) and connect(2), so that a server that listens on all addresses gets its pod's.

The container runtime installs the filter: a profile of seccomp with the action SCMP_ACT_NOTIFY names the
socket of a seccomp agent, to which it sends the descriptor of each filter. There is one seccomp agent for a pod,
a process that goes on when this one ends. The profile is the runtime's default one but for these two calls. It depends on the
capabilities of the container, so the runtime is asked for it: a container that is created, and never started, has it.
"""

import errno
import json
import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from grange.agent.container_runtime import PodSetup, RuntimeFailedError
from grange.agent.runtime_choices import ADDRESSES, NETNS, REPLICAS, SHARED
from grange.agent.runtimes.cri import cri_requests, seccomp_profile
from grange.agent.runtimes.cri.cri_client import CriClient, CriError
from grange.agent.runtimes.cri.cri_files import CriFiles
from grange.agent.runtimes.cri.cri_pod import CriAttempt, CriPod, SeccompAgent
from grange.base.log import Logger
from grange.base.offload import Offload

ASKS = "grange.dev/binds-pod-address"
"""Annotation: programs of the container have the filter."""

SOCKETS = Path("/run/grange")
"""Where seccomp agents listen: the paths of pods may be too long for a socket."""

_DEFAULT = 0
_OF_REPLICAS = (REPLICAS, NETNS)  # the runtime makes no network namespace for a pod
_LIMIT_S = 30.0
_ANSWER_MAX = 4096


class ShimLauncher(Protocol):
    """Who starts seccomp agents: the runtime of processes."""

    @property
    def network(self) -> str:
        """What a program gets that listens on all addresses."""

    def request(self, operation: str, directory: str, spec: dict[str, object]) -> socket.socket:
        """Ask for a process; the answer is the connection to it."""


class BindNotifier:
    """Creates containers that ask.

    Args:
        launcher: of seccomp agents; None lets no container ask.
        owner: of the data directory.
        files: of the pods.
        log: where it is logged that the container runtime refuses.
        offload: for disk and connections.
    """

    def __init__(
        self,
        launcher: ShimLauncher | None,
        owner: str,
        files: CriFiles,
        *,
        log: Logger,
        offload: Offload,
    ) -> None:
        self._launcher = launcher
        self._owner = owner
        self._files = files
        self._log = log
        self._offload = offload
        self._defaults: dict[str, dict[str, Any] | None] = {}
        self._refusing: set[str] = set()

    async def create(
        self, client: CriClient, pod: CriPod, attempt: CriAttempt, request: dict[str, Any]
    ) -> None:
        """Create a container, which asks if its pod's programs get the pod's address.

        Args:
            client: to the container runtime.
            pod: of the container.
            attempt: is given the container's id, and the seccomp agent that answers it.
            request: for CreateContainer.

        Raises:
            CriError: the container runtime refuses or fails.
            RuntimeFailedError: no process can be started, or the disk is full.
        """
        security = request["config"]["linux"]["security_context"]
        if not attempt.refusal and self._applies(pod.setup, security):
            profile = await self._default_profile(client, pod.setup, request)
            if profile is not None:
                attempt.seccomp_agent = await self._agent_of(pod)
                asking = seccomp_profile.asking(profile, str(self._socket(pod.setup.uid)))
                write = partial(self._files.write_profile, pod.setup.uid, asking)
                path = await self._offload.run(write)
                try:
                    await _create(client, attempt, cri_requests.with_profile(request, path, ASKS))
                except CriError as error:
                    if not self._withdraw(attempt, error):
                        raise
                else:
                    return
        await _create(client, attempt, request)

    def _applies(self, setup: PodSetup, security: dict[str, Any]) -> bool:
        """Privileged containers have no profile, and one that a container asks for stays as it is."""
        seccomp = security.get("seccomp") or {}
        network = self._launcher.network if self._launcher is not None else SHARED
        return (
            setup.runtime_handler not in self._refusing
            and not security["privileged"]
            and seccomp.get("profile_type") == _DEFAULT
            and not setup.host_network
            and (network == ADDRESSES or (network in _OF_REPLICAS and setup.is_replica))
        )

    async def _default_profile(
        self, client: CriClient, setup: PodSetup, request: dict[str, Any]
    ) -> dict[str, Any] | None:
        """What the runtime makes of the container's request; None if it has no profile."""
        capabilities = request["config"]["linux"]["security_context"].get("capabilities")
        key = json.dumps([setup.runtime_handler, capabilities], sort_keys=True)
        if key not in self._defaults:
            created = await client.call("CreateContainer", request)
            asked = {"container_id": created.get("container_id", "")}
            try:
                answer = await client.call("ContainerStatus", asked | {"verbose": True})
            finally:
                await client.call("RemoveContainer", asked)
            self._defaults[key] = _profile_of(answer)
            if self._defaults[key] is None:
                self._refuse(setup, "it shows no default profile")
        return self._defaults[key]

    async def remove_refused(self, client: CriClient, attempt: CriAttempt, error: CriError) -> bool:
        """Remove a container that was not started, perhaps because the runtime cannot let it ask.

        Returns:
            Whether that may be the reason. It does not ask when it is created again.

        Raises:
            CriError: the container runtime fails.
        """
        if not self._withdraw(attempt, error):
            return False
        await client.call("RemoveContainer", {"container_id": attempt.container_id})
        attempt.container_id = ""
        return True

    def _withdraw(self, attempt: CriAttempt, error: CriError) -> bool:
        asked = attempt.seccomp_agent is not None and not attempt.is_unanswered
        if not asked or "seccomp" not in error.message.lower():
            return False
        attempt.seccomp_agent, attempt.refusal = None, error.message
        return True

    def confirm(self, setup: PodSetup, attempt: CriAttempt) -> None:
        """A container was started: if it was refused before, then because it asked.

        Later containers of this kind of runtime do not ask.
        """
        if attempt.refusal:
            self._refuse(setup, attempt.refusal)

    def _refuse(self, setup: PodSetup, why: str) -> None:
        self._refusing.add(setup.runtime_handler)
        self._log.warning(
            "containers listen on all addresses of the machine: the container runtime cannot let them ask "
            "for their pod's; it needs runc 1.1 with libseccomp 2.5",
            error=why,
        )

    def adopt(self, pod: CriPod, attempt: CriAttempt, annotations: dict[str, str]) -> None:
        """Connect a container that was found to the seccomp agent of its pod."""
        if annotations.get(ASKS) != "true":
            return
        if pod.seccomp_agent is None:
            pod.seccomp_agent = SeccompAgent(_connected(self._socket(pod.setup.uid)))
        attempt.seccomp_agent = pod.seccomp_agent

    async def _agent_of(self, pod: CriPod) -> SeccompAgent:
        found = pod.seccomp_agent
        if found is None or not found.is_alive():
            found = pod.seccomp_agent = await self._offload.run(partial(self._start, pod))
        return found

    def _start(self, pod: CriPod) -> SeccompAgent:
        uid = pod.setup.uid
        path = self._socket(uid)
        try:
            SOCKETS.mkdir(mode=0o700, exist_ok=True)
            path.unlink(missing_ok=True)  # of one that was killed
        except OSError as error:
            raise RuntimeFailedError(f"cannot listen at {path}: {error.strerror}") from error
        ports = str(self._files.ports(uid).resolve())
        spec: dict[str, object] = {
            "socket": str(path),
            "address": pod.sandbox.address,
            "ports": ports,
        }
        if self._launcher is None:
            raise RuntimeFailedError("there is no launcher of seccomp agents")
        connection = self._launcher.request("answer binds", "", spec)
        try:
            connection.settimeout(_LIMIT_S)
            answer = json.loads(connection.recv(_ANSWER_MAX) or '{"unforked": 0}')
        except OSError as error:
            connection.close()
            raise RuntimeFailedError(f"the seccomp agent at {path} did not start") from error
        if "unforked" in answer:
            connection.close()
            why = os.strerror(answer["unforked"] or errno.ECHILD)
            raise RuntimeFailedError(f"cannot start a seccomp agent at {path}: {why}")
        connection.settimeout(0.0)
        return SeccompAgent(connection)

    def remove(self, pod: CriPod) -> None:
        """Let go of a pod in which no container is started any more: its seccomp agent ends."""
        with suppress(OSError):  # of one that did not start, too
            self._socket(pod.setup.uid).unlink()
        if pod.seccomp_agent is not None:
            pod.seccomp_agent.close()

    def prune(self, uids: frozenset[str]) -> None:
        """Remove sockets of pods that are gone. Blocks.

        Args:
            uids: of the pods that there are.
        """
        with suppress(OSError):
            for path in sorted(SOCKETS.glob(f"{self._owner}-*")):
                if path.name.partition("-")[2] not in uids:
                    path.unlink()

    def _socket(self, uid: str) -> Path:
        return SOCKETS / f"{self._owner}-{uid}"


async def _create(client: CriClient, attempt: CriAttempt, request: dict[str, Any]) -> None:
    created = await client.call("CreateContainer", request)
    attempt.container_id = str(created.get("container_id", ""))


def _profile_of(answer: dict[str, Any]) -> dict[str, Any] | None:
    try:
        info = json.loads((answer.get("info") or {}).get("info", "{}"))
        found = info["runtimeSpec"]["linux"]["seccomp"]
    except (ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, dict) else None


def _connected(path: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(0.0)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        return None
    return connection
