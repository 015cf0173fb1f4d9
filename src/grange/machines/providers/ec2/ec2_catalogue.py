"""What can be bought: types, the zones that have them, and their prices."""

from collections.abc import Iterable, Mapping, Set as AbstractSet
from decimal import Decimal, InvalidOperation
from typing import Any

from grange.machines.catalogue import InstanceType, Offering
from grange.machines.providers.ec2.ec2_prices import baseline_milli, known_price

_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
_DEVICES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
_PODS = "110"
_USABLE_MEMORY = 925
"""Thousandths of the memory of a type that its machine has for pods: firmware and system take the rest."""

SpotPrices = Mapping[tuple[str, str], Decimal]
"""The last price by type and zone."""


def spot_prices(history: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Decimal]:
    """The newest price of each type and zone."""
    newest: dict[tuple[str, str], tuple[Any, Decimal]] = {}
    for entry in history:
        try:
            price = Decimal(str(entry["SpotPrice"]))
        except InvalidOperation:
            continue
        key = entry["InstanceType"], entry["AvailabilityZone"]
        if price > 0 and (key not in newest or entry["Timestamp"] > newest[key][0]):
            newest[key] = entry["Timestamp"], price
    return {key: price for key, (_, price) in newest.items()}


def instance_types(
    described: Iterable[Mapping[str, Any]],
    zones: Mapping[str, AbstractSet[str]],
    spot: SpotPrices,
    prices: Mapping[str, Decimal],
) -> list[InstanceType]:
    """The types that can be bought, by name.

    A type whose price is not known is left out: it would look cheap.

    Args:
        described: types as the API describes them.
        zones: where a type can be had, by its name.
        spot: their prices on the spot market.
        prices: on demand, per hour, which replace the known ones.
    """
    found = []
    for kind in described:
        name = kind["InstanceType"]
        price = prices.get(name, known_price(name))
        markets = kind.get("SupportedUsageClasses", ("on-demand",))
        offerings = []
        for zone in sorted(zones.get(name, ())):
            if price is not None and "on-demand" in markets:
                offerings.append(Offering(zone, spot=False, price=price))
            if (name, zone) in spot and "spot" in markets:
                offerings.append(Offering(zone, spot=True, price=spot[name, zone]))
        if offerings:
            found.append(_instance_type(kind, tuple(offerings)))
    return sorted(found, key=lambda one: one.name)


def _instance_type(kind: Mapping[str, Any], offerings: tuple[Offering, ...]) -> InstanceType:
    name, processors = kind["InstanceType"], kind["VCpuInfo"]["DefaultVCpus"]
    memory_mib = kind["MemoryInfo"]["SizeInMiB"]
    capacity = {"cpu": str(processors), "memory": f"{memory_mib}Mi", "pods": _PODS}
    for device in kind.get("GpuInfo", {}).get("Gpus", ()):
        resource = _DEVICES.get(str(device.get("Manufacturer", "")).upper())
        if resource is not None:
            capacity[resource] = str(int(capacity.get(resource, "0")) + device["Count"])
    allocatable = {**capacity, "memory": f"{memory_mib * _USABLE_MEMORY // 1000}Mi"}
    architectures = kind.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    known = [_ARCHITECTURES[one] for one in architectures if one in _ARCHITECTURES]
    labels = {"kubernetes.io/os": "linux", **({"kubernetes.io/arch": known[0]} if known else {})}
    burstable = bool(kind.get("BurstablePerformanceSupported"))
    return InstanceType(
        name,
        capacity,
        allocatable,
        labels,
        burstable=burstable,
        baseline_milli=baseline_milli(name, processors) if burstable else 0,
        offerings=offerings,
    )
