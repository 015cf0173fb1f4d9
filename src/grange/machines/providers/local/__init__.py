"""The provider ``local``: a machine is a process on this computer that outlives a crash of the control plane.

Owns: the processes of machines (``machine_process``), their directories, the provider over them, and the
    end of all of them with the control plane (``machine_halt``).
Never: knows what the process does; the command comes from the settings of this process, not from pools,
    because the right to write a pool is not the right to run programs here.
Concurrency: one thread does all calls in order.
Start reading at: ``local_provider``.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from grange.api.quantity import QuantityError, parse
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.providers import ProviderTools
from grange.machines.providers.local.local_provider import LocalProvider, computer_capacity
from grange.machines.providers.local.machine_programs import MachineCommands
from grange.machines.providers.provider import MisconfiguredError

TYPES: Mapping[str, Mapping[str, str]] = {
    "large": {"cpu": "4", "memory": "4Gi", "price": "0.04"},
    "medium": {"cpu": "2", "memory": "2Gi", "price": "0.02"},
    "small": {"cpu": "1", "memory": "1Gi", "price": "0.01"},
}
"""Types of pools that name none; the prices are made up."""


def create(config: Mapping[str, Any], tools: ProviderTools) -> LocalProvider:
    """A provider over the directory and the command of the settings.

    Raises:
        MisconfiguredError: the configuration is malformed, or this process cannot run machines.
    """
    unknown = sorted({*config} - {"types", "capacity"})
    if unknown:
        raise MisconfiguredError(f"spec.providerConfig.{unknown[0]}: unknown; remove it")
    directory, command = tools.settings.get("directory"), tools.settings.get("command")
    if not directory or not command:
        raise MisconfiguredError(
            "spec.provider: this process has no directory or command for machines; use another one"
        )
    types = _mapping(config.get("types") or TYPES, "types")
    kinds = {name: _kind(name, _mapping(types[name], f"types.{name}")) for name in sorted(types)}
    capacity = _quantities(
        {**computer_capacity(), **_mapping(config.get("capacity", {}), "capacity")}, "capacity"
    )
    commands = MachineCommands(
        list(command),
        list(tools.settings.get("cleanup", ())),
        frozenset(tools.settings.get("kept", ())),
        dict(tools.settings.get("environment", {})),
    )
    return LocalProvider(Path(directory), tools.cluster, commands, kinds, capacity)


def _kind(name: str, entry: Mapping[str, Any]) -> InstanceType:
    path = f"types.{name}"
    if not {"cpu", "memory"} <= {*entry}:
        raise MisconfiguredError(f"spec.providerConfig.{path}: no cpu or memory; add both")
    try:
        price = Decimal(str(entry.get("price", 0)))
    except InvalidOperation:
        price = Decimal(-1)
    if not (price.is_finite() and price >= 0):
        raise MisconfiguredError(f"spec.providerConfig.{path}.price: no price; use a decimal")
    room = {key: value for key, value in entry.items() if key != "price"}
    capacity = {"pods": "110", **_quantities(room, path)}
    return InstanceType(name, capacity, offerings=(Offering(price=price),))


def _mapping(value: object, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise MisconfiguredError(f"spec.providerConfig.{path}: no object; use an object")
    return dict(value)


def _quantities(given: Mapping[str, Any], path: str) -> dict[str, str]:
    for key, value in given.items():
        try:
            parse(str(value))
        except QuantityError as error:
            where = f"spec.providerConfig.{path}.{key}"
            raise MisconfiguredError(f"{where}: {error}; use a quantity") from error
    return {key: str(value) for key, value in given.items()}
