"""Creating a container: fetch what it refers to, prepare the pod, build its environment, start it."""

import pwd
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address

from grange.agent import (
    container_env,
    container_limits,
    env_files,
    host_paths,
    image_program,
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
    Mount,
    PodRuntime,
    PodSetup,
    Program,
    Run,
    RuntimeFailedError,
    Sandbox,
)
from grange.agent.errors import CREATE_ERROR, NotCreatableError, NotWantedError
from grange.agent.image_puller import ImagePuller
from grange.agent.image_store import ImageInfo
from grange.agent.lifecycle import ManagedContainer
from grange.agent.references import Fetcher, Sources
from grange.agent.service_variables import service_variables
from grange.agent.users import RunAsUser
from grange.api.kinds.pod import Container, EphemeralContainer, Pod, uses_images
from grange.api.kinds.replicationcontroller import REPLICATIONCONTROLLER
from grange.api.kinds.service import Service
from grange.api.meta import controller_of
from grange.api.pod_addresses import POD_IP
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.client.client import Client


def _primary_group(uid: int) -> int:
    """Of a user of this machine; the number of the user where the machine does not know it."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return uid


@contextmanager
def _not_creatable() -> Iterator[None]:
    """Failures of the runtime and of the API are reasons why a container cannot be created now."""
    try:
        yield
    except RuntimeFailedError as error:
        raise NotCreatableError(str(error), CREATE_ERROR) from error
    except ApiError as error:
        raise NotCreatableError(f"the API cannot be asked: {error}", CREATE_ERROR) from error


class ContainerStarter:
    """Creates the containers of pods of one node.

    Args:
        client: for ConfigMaps and Secrets.
        runtime: what runs containers.
        config: of the node.
        services: the Services of a namespace, once they are known.
        names: writes the files by which a pod resolves names; None where pods have none.
        puller: brings images; None where the node has none.
        clock: time.
    """

    def __init__(
        self,
        client: Client,
        runtime: PodRuntime,
        config: NodeConfig,
        services: Callable[[str], Awaitable[Iterable[Service]]],
        names: PodNames | None = None,
        puller: ImagePuller | None = None,
        *,
        clock: Clock,
    ) -> None:
        self._puller = puller
        self._fetcher = Fetcher(client, clock)
        self._runtime = runtime
        self._config = config
        self._services = services
        self._names = names

    async def create(
        self, pod: Pod, container: ManagedContainer, is_wanted: Callable[[], bool]
    ) -> tuple[Sandbox, Run]:
        """Begin the container's next run; the pod is prepared (again) with what it refers to now.

        Args:
            pod: whose.
            container: which of its containers.
            is_wanted: whether the pod is still to run; asked after all that takes time.

        Raises:
            NotWantedError: it is not, and nothing was started.
            NotCreatableError: something is missing, or the runtime or the API cannot do it now.
        """
        image: ImageInfo | None = None
        with _not_creatable():
            image_program.check_runtime_class(pod, has_images=self._puller is not None)
            if self._puller is not None and self._is_from_images(pod):
                image = await self._puller.ensure(pod, container.spec)
            else:
                container_env.check_program(container.spec)
            found = await self._fetcher.fetch(pod, container.spec)
            sandbox = await self._prepare(pod, found, from_images=image is not None)
            found = replace(found, files=await self._env_files(pod, container.spec))
            mounts = volumes.mounts(pod, container.spec)
            own = service_variables(pod, await self._services(pod.metadata.namespace))
            own |= pod_progress.variables(pod, sandbox)
            # A container of an image has its mounts at their paths, also where others have links.
            own |= {"GRANGE_ROOT": ""} if image is not None else _paths(container, sandbox, mounts)
            facts = self._facts(sandbox.address, own, from_image=image is not None)
            env = container_env.build(pod, container.spec, found, facts)
            mounts = volumes.expanded(mounts, env, container.name)
            if image is not None:
                program = image_program.program_of(pod, container.spec, env, image)
            else:
                program = self._program(pod, container.spec, env)
            if isinstance(container.spec, EphemeralContainer):
                program = replace(program, joins=container.spec.target_container_name)
            if not is_wanted():
                raise NotWantedError(f"pod {pod.key}: deleted before {container.name} was started")
            target = lifecycle.next_id(pod.metadata.uid, container)
            run = await self._runtime.start(target, program, mounts)
        return sandbox, run

    async def renew(self, pod: Pod) -> None:
        """Write the volumes of a prepared pod again, with fresh tokens.

        Raises:
            NotCreatableError: something is missing, or the runtime or the API cannot do it now.
        """
        with _not_creatable():
            found = await self._fetcher.fetch(pod, None)
            await self._prepare(pod, found, from_images=self._is_from_images(pod))

    async def _env_files(
        self, pod: Pod, container: Container
    ) -> dict[tuple[str, str], bytes | None]:
        uid, limit = pod.metadata.uid, env_files.SIZE_MAX
        return {
            (volume, path): await self._runtime.read_volume(uid, volume, path, limit)
            for volume, path in env_files.of_container(pod, container)
        }

    def _is_from_images(self, pod: Pod) -> bool:
        """A pod that is prepared stays what it is, whatever the node has learned meanwhile."""
        known = self._runtime.pods(pod.metadata.uid)
        return known[0].setup.from_images if known else uses_images(pod)

    async def _prepare(self, pod: Pod, found: Sources, *, from_images: bool) -> Sandbox:
        meta, config = pod.metadata, self._config
        plans = volumes.plan(pod, found, self._facts())
        host_paths.check(plans, config.host_paths)
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
                host_network=pod.spec.host_network,
                is_replica=_is_replica(pod),
                from_images=from_images,
                privileged=security_context.is_privileged(pod),
                shared_processes=security_context.shared_processes(pod),
                host_ipc=pod.spec.host_ipc,
            )
        )
        if self._names is not None:
            await self._names.write(pod, sandbox.address)
        return sandbox

    def _program(self, pod: Pod, container: Container, env: dict[str, str]) -> Program:
        """The program of a container that is a process of the machine."""
        config = self._config
        own = RunAsUser(config.user, config.group)
        command = container_env.command_of(container, env)
        return Program(
            command,
            env,
            container.working_dir,
            written=container_env.written_program(container, command),
            search=container_env.written_path(container, env, config.environment),
            user=users.user_of(pod, container, own, _primary_group),
            confinement=security_context.confinement_of(pod, container, own),
            limits=container_limits.limits_of(container),
            message_path=container.termination_message_path,
            stdin=container.stdin,
            stdin_once=container.stdin_once,
            tty=container.tty,
        )

    def forget(self, pod_uid: str) -> None:
        """The pod of this uid is over."""
        self._fetcher.forget(pod_uid)
        if self._puller is not None:
            self._puller.forget(pod_uid)
        if self._names is not None:
            self._names.forget(pod_uid)

    def _facts(
        self, pod_ip: str = "", own: dict[str, str] | None = None, *, from_image: bool = False
    ) -> EnvContext:
        base = self._config.environment
        return EnvContext(
            pod_ip=pod_ip,
            host_ip=self._config.host_ip,
            node_name=self._config.name,
            allocatable=self._config.capacity,
            base=image_program.environment_of(base) if from_image else base,
            own=own or {},
        )


def _paths(
    container: ManagedContainer, sandbox: Sandbox, mounts: Iterable[Mount]
) -> dict[str, str]:
    """Where a process of the machine finds what a container has at the paths of its mounts."""
    root = sandbox.root(container.name)
    return {
        "GRANGE_ROOT": root,
        "HOME": root,
        "TMPDIR": sandbox.tmp,
        **volumes.variables(sandbox.volumes, mounts),
        **service_account.variables(container.spec, sandbox.volumes),
    }


def _is_replica(pod: Pod) -> bool:
    """Whether it is one of several pods of one template that serve alike."""
    owner = controller_of(pod.metadata)
    return owner is not None and owner.kind == REPLICATIONCONTROLLER.kind


def _wanted_address(pod: Pod) -> str:
    text = pod.metadata.annotations.get(POD_IP, "")
    try:
        return str(IPv4Address(text)) if text else ""
    except ValueError as error:
        raise NotCreatableError(
            f'metadata.annotations["{POD_IP}"]: "{text}" is not an IPv4 address; '
            "create the pod with one, or without the annotation"
        ) from error
