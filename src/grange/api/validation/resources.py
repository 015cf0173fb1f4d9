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
        if (milli := check_amount(f"{path}.{name}", amount, faults)) is not None:
            read[name] = milli
    return read


def check_amount(path: str, amount: str | float, faults: Faults) -> int | None:
    """Milliunits of a quantity that is not negative; None if it cannot be read."""
    try:
        found = quantity.milli(amount)
    except quantity.QuantityError as error:
        faults.invalid(path, amount, str(error))
        return None
    if found < 0:
        faults.invalid(path, amount, "must be greater than or equal to 0")
    return found
