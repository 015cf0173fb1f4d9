"""Creating a container: fetch what it refers to, prepare the pod, build its environment, start it."""

import pwd
from collections.abc import Awaitable, Callable, Iterable
from ipaddress import IPv4Address

from grange.agent import (
    container_env,
    container_limits,
    host_paths,
    lifecycle,
    pod_progress,
    security_context,
    service_account,
    users,
    volumes,
)
from grange.agent.cluster_dns.pod_files import hostname
from grange.agent.cluster_dns.pod_names import PodNames
from grange.agent.config import NodeConfig
from grange.agent.container_env import EnvContext
from grange.agent.container_runtime import (
    PodRuntime,
    PodSetup,
    Program,
    Run,
    RuntimeFailedError,
    Sandbox,
)
from grange.agent.errors import CREATE_ERROR, NotCreatableError
from grange.agent.lifecycle import ManagedContainer
from grange.agent.references import Fetcher
from grange.agent.service_variables import service_variables
from grange.agent.users import RunAsUser
from grange.api.kinds.pod import Pod
from grange.api.kinds.service import Service
from grange.api.pod_addresses import POD_IP
from grange.api.status import ApiError
from grange.client.client import Client


def _primary_group(uid: int) -> int:
    """Of a user of this machine; the number of the user where the machine does not know it."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return uid


class ContainerStarter:
    """Creates the containers of pods of one node.

    Args:
        client: for ConfigMaps and Secrets.
        runtime: what runs containers.
        config: of the node.
        services: the Services of a namespace, once they are known.
        names: writes the files by which a pod resolves names; None where pods have none.
    """

    def __init__(
        self,
        client: Client,
        runtime: PodRuntime,
        config: NodeConfig,
        services: Callable[[str], Awaitable[Iterable[Service]]],
        names: PodNames | None = None,
    ) -> None:
        self._fetcher = Fetcher(client)
        self._runtime = runtime
        self._config = config
        self._services = services
        self._names = names

    async def create(self, pod: Pod, container: ManagedContainer) -> tuple[Sandbox, Run]:
        """Begin the container's next run; the pod is prepared (again) with what it refers to now.

        Raises:
            NotCreatableError: something is missing, or the runtime or the API cannot do it now.
        """
        meta = pod.metadata
        container_env.check_program(container.spec)
        config = self._config
        try:
            user = users.user_of(
                pod, container.spec, RunAsUser(config.user, config.group), _primary_group
            )
            found = await self._fetcher.fetch(pod, container.spec)
            plans = volumes.plan(pod, found, self._facts())
            host_paths.check(plans, config.host_paths)
            mounts = volumes.mounts(pod, container.spec)
            sandbox = await self._runtime.prepare(
                PodSetup(
                    meta.uid,
                    meta.namespace,
                    meta.name,
                    config.name,
                    plans,
                    shared=config.user == 0 and users.asks_for_users(pod),
                    address=_wanted_address(pod),
                    fs_group=security_context.fs_group_of(pod) if config.user == 0 else None,
                    hostname=hostname(pod),
                )
            )
            if self._names is not None:
                await self._names.write(pod, sandbox.address)
            root = sandbox.root(container.name)
            own = {"GRANGE_ROOT": root, "HOME": root, "TMPDIR": sandbox.tmp}
            own |= pod_progress.variables(pod, sandbox)
            own |= service_variables(pod, await self._services(meta.namespace))
            own |= volumes.variables(sandbox.volumes, mounts)
            own |= service_account.variables(container.spec, sandbox.volumes)
            env = container_env.build(pod, container.spec, found, self._facts(sandbox.address, own))
            mounts = volumes.expanded(mounts, env, container.name)
            command = container_env.command_of(container.spec, env)
            program = Program(
                command,
                env,
                container.spec.working_dir,
                written=container_env.written_program(container.spec, command),
                search=container_env.written_path(container.spec, env, config.environment),
                user=user,
                confinement=security_context.confinement_of(
                    pod, container.spec, RunAsUser(config.user, config.group)
                ),
                limits=container_limits.limits_of(container.spec),
                message_path=container.spec.termination_message_path,
                stdin=container.spec.stdin,
                stdin_once=container.spec.stdin_once,
                tty=container.spec.tty,
            )
            run = await self._runtime.start(lifecycle.next_id(meta.uid, container), program, mounts)
        except RuntimeFailedError as error:
            raise NotCreatableError(str(error), CREATE_ERROR) from error
        except ApiError as error:
            raise NotCreatableError(f"the API cannot be asked: {error}", CREATE_ERROR) from error
        return sandbox, run

    def forget(self, pod_uid: str) -> None:
        """The pod of this uid is over."""
        self._fetcher.forget(pod_uid)
        if self._names is not None:
            self._names.forget(pod_uid)

    def _facts(self, pod_ip: str = "", own: dict[str, str] | None = None) -> EnvContext:
        return EnvContext(
            pod_ip=pod_ip,
            host_ip=self._config.host_ip,
            node_name=self._config.name,
            allocatable=self._config.capacity,
            base=self._config.environment,
            own=own or {},
        )


def _wanted_address(pod: Pod) -> str:
    text = pod.metadata.annotations.get(POD_IP, "")
    try:
        return str(IPv4Address(text)) if text else ""
    except ValueError as error:
        raise NotCreatableError(
            f'metadata.annotations["{POD_IP}"]: "{text}" is not an IPv4 address; '
            "create the pod with one, or without the annotation"
        ) from error
