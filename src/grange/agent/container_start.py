"""Creating a container: fetch what it refers to, prepare the pod, build its environment, start it."""

import pwd

from grange.agent import environment, lifecycle, service_account, users, volumes
from grange.agent.config import NodeConfig
from grange.agent.environment import Facts
from grange.agent.errors import CREATE_ERROR, NotCreatableError
from grange.agent.lifecycle import Track
from grange.agent.references import Fetcher
from grange.agent.runtime import PodRuntime, PodSetup, Program, Run, RuntimeFailedError, Sandbox
from grange.agent.users import User
from grange.api.kinds.pod import Pod
from grange.api.status import ApiError
from grange.client.client import Client


def _primary_group(uid: int) -> int:
    """Of a user of this machine; the number of the user where the machine does not know it."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except (KeyError, OverflowError):
        return uid


class Creator:
    """Creates the containers of pods of one node.

    Args:
        client: for ConfigMaps and Secrets.
        runtime: what runs containers.
        config: of the node.
    """

    def __init__(self, client: Client, runtime: PodRuntime, config: NodeConfig) -> None:
        self._fetcher = Fetcher(client)
        self._runtime = runtime
        self._config = config

    async def create(self, pod: Pod, track: Track) -> tuple[Sandbox, Run]:
        """Begin the container's next run; the pod is prepared (again) with what it refers to now.

        Raises:
            NotCreatableError: something is missing, or the runtime or the API cannot do it now.
        """
        meta = pod.metadata
        environment.check_program(track.spec)
        config = self._config
        try:
            user = users.user_of(pod, track.spec, User(config.user, config.group), _primary_group)
            found = await self._fetcher.fetch(pod, track.spec)
            plans = volumes.plan(pod, found, self._facts())
            mounts = volumes.mounts(pod, track.spec)
            sandbox = await self._runtime.prepare(
                PodSetup(
                    meta.uid,
                    meta.namespace,
                    meta.name,
                    config.name,
                    plans,
                    shared=config.user == 0 and users.asks_for_users(pod),
                )
            )
            root = sandbox.root(track.name)
            own = {"GRANGE_ROOT": root, "HOME": root, "TMPDIR": sandbox.tmp}
            own |= volumes.variables(sandbox.volumes, mounts)
            own |= service_account.variables(track.spec, sandbox.volumes)
            env = environment.build(pod, track.spec, found, self._facts(sandbox.address, own))
            command = environment.command_of(track.spec, env)
            program = Program(
                command,
                env,
                track.spec.working_dir,
                written=environment.written_program(track.spec, command),
                search=environment.written_path(track.spec, env, config.environment),
                user=user,
            )
            run = await self._runtime.start(lifecycle.next_id(meta.uid, track), program, mounts)
        except RuntimeFailedError as error:
            raise NotCreatableError(str(error), CREATE_ERROR) from error
        except ApiError as error:
            raise NotCreatableError(f"the API cannot be asked: {error}", CREATE_ERROR) from error
        return sandbox, run

    def forget(self, pod_uid: str) -> None:
        """The pod of this uid is over."""
        self._fetcher.forget(pod_uid)

    def _facts(self, pod_ip: str = "", own: dict[str, str] | None = None) -> Facts:
        return Facts(
            pod_ip=pod_ip,
            host_ip=self._config.host_ip,
            node_name=self._config.name,
            allocatable=self._config.capacity,
            base=self._config.environment,
            own=own or {},
        )
