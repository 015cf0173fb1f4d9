"""Endpoints: the addresses behind a Service, in one object."""

from typing import Any

import msgspec

from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.podspec import PROTOCOLS, check_port_number

_SHOWN = 3


class Endpoints(Resource, frozen=True):
    """The endpoints of the Service of the same name."""

    subsets: tuple[dict[str, Any], ...] = msgspec.field(default_factory=tuple)


def check_endpoint_ports(ports: list[Document], path: str, faults: Faults) -> None:
    """Ports of endpoints: a number from 1 to 65535 and a known protocol, where they are given."""
    for index, port in enumerate(ports):
        if (number := port.get("port")) is not None:
            check_port_number(number, f"{path}[{index}].port", faults)
        protocol = port.get("protocol", "TCP")
        if protocol not in PROTOCOLS:
            faults.not_supported(f"{path}[{index}].protocol", protocol, PROTOCOLS)


def _default(document: Document) -> None:
    for subset in document.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    for index, subset in enumerate(document.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            faults.required(path, "must specify `addresses` or `notReadyAddresses`")
        check_endpoint_ports(subset.get("ports") or [], f"{path}.ports", faults)
    return faults.causes


def _addresses(document: Document, now: float) -> cells.Cell:
    shown: list[str] = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in document.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or [{"port": "*"}]
    ]
    more = len(shown) - _SHOWN
    text = ",".join(shown[:_SHOWN]) + (f" + {more} more..." if more > 0 else "")
    return text or cells.NONE


ENDPOINTS = KindInfo(
    group="",
    version="v1",
    kind="Endpoints",
    plural="endpoints",
    view=Endpoints,
    schema="io.k8s.api.core.v1.Endpoints",
    short_names=("ep",),
    has_status=False,
    columns=(Column("Endpoints", _addresses, description="Addresses that are ready."),),
    default=_default,
    validate=_validate,
)
