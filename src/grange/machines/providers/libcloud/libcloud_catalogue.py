"""What can be bought, and which image a pool means."""

from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase

from libcloud.compute.base import NodeImage, NodeSize

from grange.api import names
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.providers.libcloud.driver_adapters import NamedInstances
from grange.machines.providers.libcloud.libcloud_config import LibcloudConfig
from grange.machines.providers.provider import MisconfiguredError

_PODS = "110"
_USABLE_MEMORY = 925
"""Thousandths of the memory of a type that its machine has for pods: firmware and system take the rest."""


def usable_sizes(
    sizes: Iterable[NodeSize], adapter: NamedInstances, config: LibcloudConfig
) -> dict[str, tuple[NodeSize, InstanceType]]:
    """What can be ordered, by the name of the type.

    A size is left out whose price, processors or memory are not known, which is switched off, or whose
    name no label can have.

    Args:
        sizes: of the driver.
        adapter: of the driver.
        config: of the pool.
    """
    found: dict[str, tuple[NodeSize, InstanceType]] = {}
    for size in sizes:
        name, processors = adapter.type_name(size), adapter.processors(size)
        price = config.prices.get(name, _known_price(size))
        zones = adapter.zones(size)
        if price is None or not (processors and size.ram and zones):
            continue
        if names.check_label_value(name) or (size.extra or {}).get("disabled"):
            continue
        memory_mib = int(size.ram)
        capacity = {"cpu": str(processors), "memory": f"{memory_mib}Mi", "pods": _PODS}
        usable = f"{memory_mib * _USABLE_MEMORY // 1000}Mi"
        kind = InstanceType(
            name,
            capacity,
            {**capacity, "memory": usable},
            {"kubernetes.io/os": "linux", "kubernetes.io/arch": config.architecture},
            offerings=tuple(Offering(zone, price=price) for zone in sorted(zones)),
        )
        found[name] = size, kind
    return {name: found[name] for name in sorted(found)}


def matching_image(images: Iterable[NodeImage], spec: Mapping[str, str]) -> str:
    """The id of the newest image that matches.

    Raises:
        MisconfiguredError: none does, or the description is not one.
    """
    for key in spec:
        if key not in {"id", "name"}:
            raise MisconfiguredError(f"spec.bootImage.{key}: unknown; use id or name")
    if not spec:
        raise MisconfiguredError("spec.bootImage: is missing; give the id or name of an image")
    matches = [one for one in images if _matches(one, spec)]
    if not matches:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(spec.items()))
        raise MisconfiguredError(f"spec.bootImage: no image for {shown}; change it")
    return str(max(matches, key=_made).id)


def _matches(image: NodeImage, spec: Mapping[str, str]) -> bool:
    known = {str(image.id), str((image.extra or {}).get("slug") or "")}
    if "id" in spec and spec["id"] not in known:
        return False
    return "name" not in spec or fnmatchcase(str(image.name), spec["name"])


def _made(image: NodeImage) -> tuple[str, str]:
    extra = image.extra or {}
    return str(extra.get("created_at") or extra.get("created") or ""), str(image.id)


def _known_price(size: NodeSize) -> Decimal | None:
    """Per hour; None where it is not known: drivers give 0 for that."""
    try:
        price = Decimal(str(size.price))
    except InvalidOperation:
        return None
    return price if price.is_finite() and price > 0 else None
