"""What a machine is launched with: its order as a request to the provider."""

from typing import NamedTuple, Protocol

from grange.api.kinds.machine import Machine, MachineOffering
from grange.api.kinds.nodepool import NodePoolSpec
from grange.machines.controller import machine_nodes
from grange.machines.providers.provider import LaunchRequest
from grange.machines.scaling.pod_needs import machine_gib


class BootSecrets(NamedTuple):
    """What only the machine may know; never logged.

    Attributes:
        user_data: what it executes at its first start.
        join_token: with which it joins.
    """

    user_data: str = ""
    join_token: str = ""


class Bootstrap(Protocol):
    """Prepares the joining of machines."""

    async def prepare(self, machine: Machine, pool: NodePoolSpec) -> BootSecrets:
        """What the machine is given; asked again for the same machine, it may be something else.

        Raises:
            MisconfiguredError: the pool's user data are malformed: nothing is launched.
            ApiError: a token could not be stored.
        """

    async def finish(self, machine: Machine) -> None:
        """The machine has joined or will not: what was stored for it is not needed any more.

        Raises:
            ApiError: it is left over.
        """


class NoBootstrap:
    """Machines join by themselves."""

    async def prepare(self, machine: Machine, pool: NodePoolSpec) -> BootSecrets:
        """Nothing but the pool's user data."""
        return BootSecrets(user_data=pool.user_data)

    async def finish(self, machine: Machine) -> None:
        """There is nothing."""


def launch_request(machine: Machine, secrets: BootSecrets) -> LaunchRequest:
    """The order of a machine; its name is the token."""
    spec = machine.spec
    ordered = MachineOffering(spec.instance_type, spec.placement.zone, spec.spot)
    return LaunchRequest(
        token=machine.metadata.name,
        offerings=spec.candidates or (ordered,),
        image=spec.boot_image,
        user_data=secrets.user_data,
        join_token=secrets.join_token,
        volume_gib=machine_gib(machine),
        private_ip_only=spec.resources.private_ip_only,
        labels=machine_nodes.labels(machine),
        tags={"grange.dev/node-pool": spec.pool},
    )
