"""The provider over drivers of libcloud.

Few clouds have tokens of launches, and the library passes none. In their place:

- Instances are marked with the cluster and the machine when they are created. A launch looks for the mark first,
  and again after each error, so that "nothing was launched" was seen and not concluded.
- Launches of a machine are in one thread, one after another: one that was given up is over before the next looks.
- Tokens that were seen are remembered as long as the process runs, so a late launch after the end launches nothing.
- Two processes may still launch at once. Then each sees both instances afterwards, and the younger one is ended by
  the process that made it.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from libcloud.compute.base import Node, NodeImage, NodeSize
from libcloud.compute.types import NodeState

from grange.api.kinds.machine import MachineOffering
from grange.api.kinds.node import NodeAddress
from grange.machines.catalogue import InstanceType
from grange.machines.providers import ProviderTools
from grange.machines.providers.last_errors import LastErrors
from grange.machines.providers.libcloud.driver_adapters import (
    CLUSTER,
    MACHINE,
    PRICE,
    TYPE,
    ZONE,
    InstanceOrder,
    adapter_for,
)
from grange.machines.providers.libcloud.driver_lanes import DriverCalls, DriverLanes
from grange.machines.providers.libcloud.libcloud_catalogue import matching_image, usable_sizes
from grange.machines.providers.libcloud.libcloud_config import LibcloudConfig
from grange.machines.providers.libcloud.libcloud_errors import CREATE, DESTROY
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

_STATES: Mapping[str, InstanceState] = {
    NodeState.STARTING: InstanceState.PENDING,
    NodeState.PENDING: InstanceState.PENDING,
    NodeState.UNKNOWN: InstanceState.PENDING,
    NodeState.STOPPING: InstanceState.STOPPING,
    NodeState.STOPPED: InstanceState.STOPPED,
    NodeState.SUSPENDED: InstanceState.STOPPED,
    NodeState.PAUSED: InstanceState.STOPPED,
    NodeState.ERROR: InstanceState.ENDING,
}
"""All others run."""

_READS = "reads"
_OLDEST = datetime(1, 1, 1, tzinfo=UTC)


class LibcloudProvider:
    """Instances of one account at one cloud.

    Args:
        config: of the pool.
        tools: of this process; the setting ``endpoint`` replaces the URL of the cloud, and ``make`` what makes drivers.
    """

    def __init__(self, config: LibcloudConfig, tools: ProviderTools) -> None:
        self._config, self._tools = config, tools
        self._adapter = adapter_for(config)
        self._lanes = DriverLanes(
            config,
            tools.read_secret,
            endpoint=tools.settings.get("endpoint", ""),
            make=tools.settings.get("make"),
            defaults=self._adapter.options,
        )
        # Written by several threads, each for other keys.
        self._tokens: dict[str, None] = {}
        self._faults: dict[tuple[str, str], str] = {}
        self._failed: set[str] = set()
        self._kept = LastErrors()  # of their ends
        self._unusable = ""
        self._sizes: Mapping[str, tuple[NodeSize, InstanceType]] = {}

    @property
    def can_stop(self) -> bool:
        """Most clouds charge for instances that are switched off."""
        return False

    @property
    def can_wipe(self) -> bool:
        """There is no call for it."""
        return False

    async def catalogue(self) -> Sequence[InstanceType]:
        """The sizes whose price, processors and memory are known, by name."""
        self._check_usable()
        sizes = await self._lanes.run(_READS, self._read_sizes)
        if not sizes:
            raise MisconfiguredError(
                "spec.providerConfig.prices: no size has a known price, processors and zone; set prices, and "
                "processors where the driver does not know them"
            )
        return [kind for _, kind in sizes.values()]

    async def resolve_image(self, spec: Mapping[str, str]) -> str:
        """See ``Provider.resolve_image``."""
        return await self._lanes.run(
            _READS, lambda calls: matching_image(calls.call("list_images"), spec)
        )

    async def launch(self, request: LaunchRequest) -> Instance:
        """See ``Provider.launch``; tries the first offering only."""
        self._check_usable()
        return await self._lanes.run(
            request.token, lambda calls: self._launch(calls, request, request.offerings[0])
        )

    async def instances(self) -> Sequence[Instance]:
        """See ``Provider.instances``; instances that failed to start are ended."""
        return await self._lanes.run(_READS, self._instances)

    async def terminate(self, instance_id: str) -> None:
        """See ``Provider.terminate``."""

        def work(calls: DriverCalls) -> None:
            for node in self._own(calls):
                if str(node.id) == instance_id:
                    self._destroy(calls, node)

        await self._lanes.run(instance_id, work)

    async def stop(self, instance_id: str) -> None:
        """There is no common call for it.

        Raises:
            ProviderError: always.
        """
        raise ProviderError(f"instance {instance_id}: cannot be switched off; terminate it")

    async def start(self, instance_id: str) -> None:
        """There is no common call for it.

        Raises:
            ProviderError: always.
        """
        raise ProviderError(f"instance {instance_id}: cannot be switched on; order another")

    async def wipe(self, instance_id: str) -> None:
        """There is no call for it.

        Raises:
            ProviderError: always.
        """
        raise ProviderError(f"instance {instance_id}: cannot be wiped; terminate it")

    async def resize_volume(self, instance_id: str, gib: int) -> bool:
        """Disks keep the size of the type."""
        del instance_id, gib
        return False

    async def interruptions(self) -> AsyncGenerator[Interruption, bool | None]:
        """There are none."""
        nothing: tuple[Interruption, ...] = ()
        for notice in nothing:
            yield notice

    async def close(self) -> None:
        """End threads and connections."""
        self._lanes.close()

    # --- in threads ----------------------------------------------------------------------------------

    def _launch(
        self, calls: DriverCalls, request: LaunchRequest, offering: MachineOffering
    ) -> Instance:
        token = request.token
        found = self._find(calls, token)
        if found is not None:
            return self._instance(found)
        if token in self._tokens:
            raise InstanceGoneError(f"instance of {token} has ended; order another")
        order = self._order(calls, request, offering)
        fault = self._faults.pop((offering.instance_type, offering.zone), "")
        if fault:
            raise CapacityError(
                f"the last instance of this type failed to start: {fault}; wait or allow other types",
                offering=offering,
            )
        arguments = self._adapter.arguments(calls, order)
        try:
            made = calls.call(CREATE, **arguments)
        except ProviderError as error:
            found = self._find(calls, token)
            if found is not None:
                return self._instance(found)
            if isinstance(error, CapacityError):
                error.offering = offering
            raise
        self._tokens[token] = None
        return self._instance(self._settle(calls, made, token), offering)

    def _order(
        self, calls: DriverCalls, request: LaunchRequest, offering: MachineOffering
    ) -> InstanceOrder:
        name = offering.instance_type
        known = self._sizes.get(name) or self._read_sizes(calls).get(name)
        if known is None or offering.spot:
            market = "spot " if offering.spot else ""
            raise MisconfiguredError(f"{market}type {name!r}: cannot be ordered; use another")
        size = known[0]
        if request.private_ip_only:
            raise MisconfiguredError(
                "grange.dev/private-ip-only: cannot be promised by this provider; remove it"
            )
        if request.volume_gib > (size.disk or 0):
            raise MisconfiguredError(
                f"type {name}: has a disk of {size.disk or 0} GiB, not {request.volume_gib}; use another type"
            )
        marks = {
            CLUSTER: self._tools.cluster,
            MACHINE: request.token,
            TYPE: name,
            ZONE: offering.zone,
            PRICE: offering.price_per_hour or f"{known[1].offerings[0].price:f}",
        }
        image = NodeImage(request.image, request.image, calls.driver)
        return InstanceOrder(size, image, marks, request.user_data)

    def _settle(self, calls: DriverCalls, made: Node, token: str) -> Node:
        """The instance of a token after a creation: the oldest, if another process made one, too."""
        try:
            listed = self._listed(calls)
        except ProviderError:
            return made  # the next list shows what there is
        ours = [node for node in listed if self._machine(node) == token]
        if any(str(node.id) == str(made.id) for node in listed) and not any(
            str(node.id) == str(made.id) for node in ours
        ):
            self._destroy_unmarked(calls, made)
        first = min(ours, key=_age, default=made)
        if str(first.id) != str(made.id) and _age(first) < _age(made):
            self._destroy(calls, made)
            return first
        return made

    def _destroy_unmarked(self, calls: DriverCalls, made: Node) -> None:
        """End an instance that later lists would not show as ours.

        Raises:
            MisconfiguredError: always.
        """
        done = "was ended"
        try:
            self._destroy(calls, made)
        except ProviderError as error:
            done = f"was not ended ({error}): end it"
        self._unusable = (
            f"spec.providerConfig.driver: {self._config.driver} does not keep the mark of its instances; "
            f"instance {made.id} {done}; use another driver"
        )
        self._check_usable()

    def _check_usable(self) -> None:
        """Nothing more is launched by a driver that drops marks.

        Raises:
            MisconfiguredError: it has done so.
        """
        if self._unusable:
            raise MisconfiguredError(self._unusable)

    def _instances(self, calls: DriverCalls) -> list[Instance]:
        found = []
        for node in self._own(calls):
            instance = self._instance(node)
            self._tokens[instance.machine] = None
            if node.state == NodeState.ERROR and not self._adapter.is_ending(node):
                if instance.id not in self._failed:
                    self._failed.add(instance.id)
                    self._faults[instance.instance_type, instance.zone] = self._adapter.fault(node)
                self._end_failed(calls, node)
            found.append(instance)
        return found

    def _end_failed(self, calls: DriverCalls, node: Node) -> None:
        error = ""
        try:
            self._destroy(calls, node)
        except ProviderError as failure:  # the next list tries again
            error = f"{failure}"
        if self._kept.changed(f"{node.id}", error) and error:
            self._tools.log.warning("failed instance not ended", instance=str(node.id), error=error)

    def _destroy(self, calls: DriverCalls, node: Node) -> None:
        try:
            done = calls.call(DESTROY, node)
        except InstanceGoneError:
            return
        if done is False:
            raise ProviderError(f"instance {node.id}: its end was refused; it is tried again")

    def _read_sizes(self, calls: DriverCalls) -> Mapping[str, tuple[NodeSize, InstanceType]]:
        self._sizes = usable_sizes(calls.call("list_sizes"), self._adapter, self._config)
        return self._sizes

    def _listed(self, calls: DriverCalls) -> list[Node]:
        return [one for one in calls.call("list_nodes") if one.state != NodeState.TERMINATED]

    def _own(self, calls: DriverCalls) -> list[Node]:
        return [node for node in self._listed(calls) if self._machine(node)]

    def _find(self, calls: DriverCalls, token: str) -> Node | None:
        found = [node for node in self._own(calls) if self._machine(node) == token]
        return min(found, key=_age, default=None)

    def _machine(self, node: Node) -> str:
        return (self._adapter.marks(node, self._tools.cluster) or {}).get(MACHINE, "")

    def _instance(self, node: Node, offering: MachineOffering | None = None) -> Instance:
        """The instance of a node with our mark, or of one that was just created for an offering."""
        marks = self._adapter.marks(node, self._tools.cluster) or {}
        known_type = self._adapter.type_name(node.size) if node.size else ""
        if offering is not None:
            known_type = offering.instance_type
        state = _STATES.get(node.state, InstanceState.RUNNING)
        return Instance(
            id=str(node.id),
            machine=marks.get(MACHINE, ""),
            state=InstanceState.ENDING if self._adapter.is_ending(node) else state,
            instance_type=marks.get(TYPE) or known_type,
            zone=marks.get(ZONE) or (offering.zone if offering is not None else ""),
            price_per_hour=marks.get(PRICE, ""),
            addresses=tuple(_addresses(node)),
        )


def _age(node: Node) -> tuple[datetime, str]:
    made = node.created_at if isinstance(node.created_at, datetime) else _OLDEST
    return (made if made.tzinfo is not None else made.replace(tzinfo=UTC)), str(node.id)


def _addresses(node: Node) -> list[NodeAddress]:
    found: list[NodeAddress] = []
    for kind, listed in (("InternalIP", node.private_ips), ("ExternalIP", node.public_ips)):
        found += [NodeAddress(type=kind, address=one) for one in listed or () if _is_ip(one)]
    return found


def _is_ip(address: Any) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True
