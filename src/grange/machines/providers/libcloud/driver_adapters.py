"""How drivers differ: what marks an instance as one of a cluster, where user data go, what a zone is.

A driver that is not known here marks instances by their names, which all of them have.
"""

import hashlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

from libcloud.compute.base import Node, NodeImage, NodeLocation, NodeSize

from grange.machines.providers.libcloud.driver_lanes import DriverCalls
from grange.machines.providers.libcloud.libcloud_config import LibcloudConfig
from grange.machines.providers.provider import MisconfiguredError

CLUSTER, MACHINE, TYPE, ZONE, PRICE = "cluster", "machine", "type", "zone", "price"
_NAME_MAX = 63
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_PROCESSORS = ("vcpus", "cpus", "cpu", "vcpu_count", "core")


@dataclass(frozen=True, slots=True)
class InstanceOrder:
    """What is to be created.

    Attributes:
        size, image: of the library.
        marks: cluster, machine, type, zone and price.
        user_data: may be empty.
    """

    size: NodeSize
    image: NodeImage
    marks: Mapping[str, str]
    user_data: str


class NamedInstances:
    """Marks instances by their names, ``MACHINE-gCLUSTERHASH``: any driver can.

    Args:
        config: of the pool.

    Attributes:
        options: arguments of the driver that a pool may replace.
    """

    options: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, config: LibcloudConfig) -> None:
        self._config = config

    def type_name(self, size: NodeSize) -> str:
        """The name of a type."""
        return str(size.id)

    def processors(self, size: NodeSize) -> int:
        """How many a type has; 0: not known."""
        own = self._config.processors.get(self.type_name(size))
        if own is not None:
            return own
        extra = size.extra or {}
        for name in _PROCESSORS:
            found = getattr(size, name, None) or extra.get(name)
            if isinstance(found, int | float) and found >= 1:
                return int(found)
        return 0

    def zones(self, size: NodeSize) -> Sequence[str]:
        """Where a type can be had; the empty zone: where the driver has it by default."""
        return self._config.zones or ("",)

    def arguments(self, calls: DriverCalls, order: InstanceOrder) -> dict[str, Any]:
        """The arguments of the creation.

        Raises:
            MisconfiguredError: the driver cannot take them.
        """
        machine = order.marks[MACHINE]
        name = f"{machine}-{cluster_mark(order.marks[CLUSTER])}"
        if len(name) > _NAME_MAX or not _NAME.fullmatch(name):
            raise MisconfiguredError(
                f"machine {machine}: {name} is no host name of at most {_NAME_MAX} characters; "
                "give the pool a shorter name without dots"
            )
        made = {**self._config.arguments, "name": name, "size": order.size, "image": order.image}
        if order.marks[ZONE]:
            made["location"] = _location(calls, order.marks[ZONE])
        if order.user_data:
            argument = self._config.user_data_argument
            if not argument:
                raise MisconfiguredError(
                    "spec.providerConfig.userDataArgument: is missing, and machines have user data; name "
                    f"the argument of driver {self._config.driver} for it, or set spec.bootstrap to None"
                )
            made[argument] = order.user_data
        return _checked(calls, made)

    def marks(self, node: Node, cluster: str) -> Mapping[str, str] | None:
        """The marks of an instance; None where it is not of the cluster."""
        machine, _, mark = str(node.name or "").rpartition("-")
        if not machine or mark != cluster_mark(cluster):
            return None
        return {CLUSTER: cluster, MACHINE: machine}

    def is_ending(self, _: Node) -> bool:
        """Whether it is on its way out, beyond what its state shows."""
        return False

    def fault(self, node: Node) -> str:
        """Why it has failed."""
        return str((node.extra or {}).get("fault") or "no reason is given")


class OpenStackInstances(NamedInstances):
    """Marks by metadata; zones are availability zones."""

    # The library's own defaults are of APIs that clouds have switched off.
    options = MappingProxyType({"api_version": "2.2", "ex_force_auth_version": "3.x_password"})

    def type_name(self, size: NodeSize) -> str:
        """Flavors have names for people and ids such as UUIDs."""
        return str(size.name)

    def arguments(self, calls: DriverCalls, order: InstanceOrder) -> dict[str, Any]:
        """See the base class."""
        given = dict(self._config.arguments)
        for name, attribute in (("networks", "id"), ("ex_security_groups", "name")):
            if name in given:
                given[name] = [SimpleNamespace(**{attribute: one}) for one in given[name]]
        ours = {f"grange-{key}": value for key, value in order.marks.items()}
        made = {
            **given,
            "name": order.marks[MACHINE],
            "size": order.size,
            "image": order.image,
            "ex_metadata": {**given.get("ex_metadata", {}), **ours},
        }
        if order.user_data:
            made["ex_userdata"] = order.user_data
        if order.marks[ZONE]:
            made["ex_availability_zone"] = order.marks[ZONE]
        return _checked(calls, made)

    def marks(self, node: Node, cluster: str) -> Mapping[str, str] | None:
        """See the base class."""
        found = (node.extra or {}).get("metadata") or {}
        marks = {
            key.removeprefix("grange-"): value
            for key, value in found.items()
            if key.startswith("grange-")
        }
        return marks if marks.get(CLUSTER) == cluster and marks.get(MACHINE) else None

    def is_ending(self, node: Node) -> bool:
        """A server that is being deleted still has its former status."""
        return (node.extra or {}).get("task_state") == "deleting"

    def fault(self, node: Node) -> str:
        """See the base class."""
        found = (node.extra or {}).get("fault")
        text = found.get("message") if isinstance(found, dict) else found
        return str(text or "no reason is given")


class DigitalOceanInstances(NamedInstances):
    """Marks by tags; zones are regions."""

    def zones(self, size: NodeSize) -> Sequence[str]:
        """Where a type can be had."""
        regions = (size.extra or {}).get("regions", ())
        return [one for one in regions if not self._config.zones or one in self._config.zones]

    def arguments(self, calls: DriverCalls, order: InstanceOrder) -> dict[str, Any]:
        """See the base class."""
        given = dict(self._config.arguments)
        attributes = dict(given.get("ex_create_attr", {}))
        attributes["tags"] = [
            *attributes.get("tags", ()),
            *(f"grange-{key}:{_encoded(value)}" for key, value in order.marks.items()),
        ]
        zone = order.marks[ZONE]
        return _checked(
            calls,
            {
                **given,
                "name": order.marks[MACHINE],
                "size": order.size,
                "image": order.image,
                "location": NodeLocation(zone, zone, "", calls.driver),
                "ex_user_data": order.user_data,
                "ex_create_attr": attributes,
            },
        )

    def marks(self, node: Node, cluster: str) -> Mapping[str, str] | None:
        """See the base class."""
        marks = {}
        for tag in (node.extra or {}).get("tags") or ():
            key, found, value = str(tag).partition(":")
            if found and key.startswith("grange-"):
                marks[key.removeprefix("grange-")] = _decoded(value)
        return marks if marks.get(CLUSTER) == cluster and marks.get(MACHINE) else None


ADAPTERS: Mapping[str, type[NamedInstances]] = {
    "digitalocean": DigitalOceanInstances,
    "openstack": OpenStackInstances,
}
"""By the name of the driver."""


def adapter_for(config: LibcloudConfig) -> NamedInstances:
    """The adapter of the driver of a pool."""
    return ADAPTERS.get(config.driver, NamedInstances)(config)


def cluster_mark(cluster: str) -> str:
    """What stands for a cluster in names."""
    return "g" + hashlib.sha256(cluster.encode()).hexdigest()[:10]


def _encoded(value: str) -> str:
    """Tags have letters, digits, hyphens, colons and underscores only; no mark has an underscore."""
    return value.replace(".", "_")


def _decoded(value: str) -> str:
    return value.replace("_", ".")


def _location(calls: DriverCalls, zone: str) -> NodeLocation:
    for one in calls.call("list_locations"):
        if zone in {str(one.id), one.name}:
            return one
    raise MisconfiguredError(f"spec.providerConfig.zones: no location {zone!r}; name others")


def _checked(calls: DriverCalls, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments, if the driver has them.

    Raises:
        MisconfiguredError: it has not.
    """
    known = inspect.signature(calls.driver.create_node).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    unknown = sorted(name for name in arguments if name not in known)
    if unknown and not takes_any:
        raise MisconfiguredError(
            f"spec.providerConfig.arguments.{unknown[0]}: driver {calls.driver.name} has no such argument; "
            "remove it"
        )
    return arguments
