"""The provider over hosts. Each host is a zone, so that an order is for one host and its token holds there."""

import ipaddress
import re
from collections.abc import AsyncGenerator, Mapping, Sequence

from grange.api.kinds.node import NodeAddress
from grange.base.tasks import Nursery
from grange.machines.catalogue import InstanceType
from grange.machines.providers import ProviderTools
from grange.machines.providers.cloud_config import cloud_config_script
from grange.machines.providers.provider import (
    CapacityError,
    Instance,
    InstanceGoneError,
    InstanceState,
    Interruption,
    LaunchRequest,
    MisconfiguredError,
    ProviderError,
)
from grange.machines.providers.ssh import host_scripts
from grange.machines.providers.ssh.host_connections import HostConnections, HostUnreachable
from grange.machines.providers.ssh.ssh_config import SshConfig, SshHost

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_STATES = {
    "pending": InstanceState.PENDING,
    "running": InstanceState.RUNNING,
    "ending": InstanceState.ENDING,
}


class SshProvider:
    """Hosts, each for one machine at a time.

    Args:
        config: of the pool.
        tools: of this process.
    """

    def __init__(self, config: SshConfig, tools: ProviderTools) -> None:
        if not _NAME.fullmatch(tools.cluster):
            raise MisconfiguredError(f"cluster {tools.cluster!r}: cannot be in a path; use another")
        self._config, self._cluster = config, tools.cluster
        self._hosts = {host.name: host for host in config.hosts}
        self._connections = HostConnections(config, tools.read_secret, tools.clock)
        self._last: dict[str, Instance | None] = {}

    @property
    def can_stop(self) -> bool:
        """Hosts stay on."""
        return False

    @property
    def can_wipe(self) -> bool:
        """By the commands of the pool."""
        return True

    async def catalogue(self) -> Sequence[InstanceType]:
        """The types that hosts are, by name."""
        return [kind for kind in self._config.types.values() if kind.offerings]

    async def resolve_image(self, spec: Mapping[str, str]) -> str:
        """No image: hosts have their system.

        Raises:
            MisconfiguredError: the pool names one.
        """
        if spec:
            raise MisconfiguredError("spec.bootImage: hosts have their system; remove it")
        return ""

    async def launch(self, request: LaunchRequest) -> Instance:
        """See ``Provider.launch``; tries the host of the first offering only."""
        if not _NAME.fullmatch(request.token):
            raise MisconfiguredError(f"machine {request.token!r}: no name of a machine; rename it")
        offering = request.offerings[0]
        host = self._hosts.get(offering.zone)
        if host is None or host.type != offering.instance_type:
            raise MisconfiguredError(
                f"offering {offering.instance_type} in zone {offering.zone!r}: no host; order another"
            )
        arguments = [request.token, host.type, self._price(host)]
        try:
            answer = await self._run(
                host, host_scripts.LAUNCH, arguments, _script(request.user_data)
            )
        except HostUnreachable as error:
            raise CapacityError(str(error), offering=offering) from error
        if answer == "busy":
            raise CapacityError(
                f"host {host.name}: has another machine; wait or add hosts",
                offering=offering,
            )
        found = await self._look(host) if answer == "claimed" else None
        if found is None or found.machine != request.token:
            raise InstanceGoneError(f"instance of {request.token} has ended; order another")
        return found

    async def instances(self) -> Sequence[Instance]:
        """See ``Provider.instances``; a host that cannot be reached has what it had before.

        Raises:
            ProviderError: a host was never reached, so it may have any machine.
        """
        errors: dict[str, ProviderError] = {}
        async with Nursery("hosts") as nursery:
            for host in self._config.hosts:
                nursery.start(self._refresh(host, errors), name=f"host {host.name}")
        for name, error in errors.items():
            if name not in self._last:
                raise error
        return [found for name in self._hosts if (found := self._last[name]) is not None]

    async def terminate(self, instance_id: str) -> None:
        """See ``Provider.terminate``; the host cleans itself meanwhile."""
        host, token = self._parts(instance_id)
        if host is not None:
            await self._run(host, host_scripts.TERMINATE, [token, self._config.release])

    async def stop(self, instance_id: str) -> None:
        """Hosts stay on.

        Raises:
            ProviderError: always.
        """
        raise ProviderError(f"instance {instance_id}: hosts cannot be switched off; terminate it")

    async def start(self, instance_id: str) -> None:
        """Hosts stay on.

        Raises:
            ProviderError: always.
        """
        raise ProviderError(f"instance {instance_id}: hosts cannot be switched off; order another")

    async def wipe(self, instance_id: str) -> None:
        """Run the commands of the pool that remove what a holder left."""
        host, token = self._parts(instance_id)
        if host is None or "wiped" not in await self._run(
            host, host_scripts.WIPE_HOST, [token, self._config.wipe]
        ):
            raise InstanceGoneError(f"instance {instance_id} is gone; order another")

    async def resize_volume(self, instance_id: str, gib: int) -> bool:
        """Disks of hosts have their size."""
        return False

    async def interruptions(self) -> AsyncGenerator[Interruption, bool | None]:
        """There are none."""
        nothing: tuple[Interruption, ...] = ()
        for notice in nothing:
            yield notice

    async def close(self) -> None:
        """End the connections; machines stay."""
        await self._connections.close()

    async def _refresh(self, host: SshHost, errors: dict[str, ProviderError]) -> None:
        try:
            self._last[host.name] = await self._look(host)
        except ProviderError as error:
            errors[host.name] = error

    async def _look(self, host: SshHost) -> Instance | None:
        """The machine that a host is for this cluster."""
        words = (await self._run(host, host_scripts.LIST, [""])).split()
        if not words:
            return None
        cluster, _, token = words[0].partition("/")
        if cluster != self._cluster:
            return None
        return Instance(
            id=f"{host.name}/{token}",
            machine=token,
            state=_STATES[words[1]],
            instance_type=words[2] if len(words) > 2 else host.type,
            zone=host.name,
            price_per_hour=words[3] if len(words) > 3 else "",
            addresses=(NodeAddress(type=_address_type(host.address), address=host.address),),
        )

    async def _run(
        self, host: SshHost, script: str, arguments: list[str], user_data: str = ""
    ) -> str:
        words = [self._cluster, *arguments]
        return (await self._connections.run(host, script, words, user_data)).strip()

    def _parts(self, instance_id: str) -> tuple[SshHost | None, str]:
        name, _, token = instance_id.partition("/")
        return (self._hosts.get(name) if _NAME.fullmatch(token) else None), token

    def _price(self, host: SshHost) -> str:
        return f"{self._config.types[host.type].offerings[0].price:f}"


def _script(user_data: str) -> str:
    """What a host runs: a script as it is, or that of a cloud-config."""
    return user_data if user_data.startswith("#!") else cloud_config_script(user_data)


def _address_type(address: str) -> str:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return "InternalDNS"
    return "InternalIP"
