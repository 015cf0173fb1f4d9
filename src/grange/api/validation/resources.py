"""Rules of resource requirements."""

from collections.abc import Mapping
from typing import Any

from grange.api import names, quantity
from grange.api.validation.causes import Faults


def check_resources(resources: dict[str, Any], path: str, faults: Faults) -> None:
    """Requests and limits: names, amounts, and requests within limits."""
    limits = _check_amounts(resources.get("limits") or {}, f"{path}.limits", faults)
    requests = _check_amounts(resources.get("requests") or {}, f"{path}.requests", faults)
    for name, wanted in requests.items():
        most = limits.get(name)
        if most is not None and wanted > most:
            shown = resources["requests"][name]
            message = f"must be less than or equal to {name} limit of {resources['limits'][name]}"
            faults.invalid(f"{path}.requests.{name}", shown, message)


def check_amounts(amounts: Mapping[str, Any], path: str, faults: Faults) -> None:
    """A resource list (capacity, allocatable, overhead): names and amounts."""
    _check_amounts(amounts, path, faults)


def _check_amounts(amounts: Mapping[str, Any], path: str, faults: Faults) -> dict[str, int]:
    """Milliunits by name, of those that can be read."""
    read: dict[str, int] = {}
    for name, amount in amounts.items():
        faults.named(f"{path}.{name}", name, names.check_qualified_name(name))
        try:
            read[name] = quantity.milli(amount)
        except quantity.QuantityError as error:
            faults.invalid(f"{path}.{name}", amount, str(error))
            continue
        if read[name] < 0:
            faults.invalid(f"{path}.{name}", amount, "must be greater than or equal to 0")
    return read
