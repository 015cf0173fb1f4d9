"""EndpointSlice: some of the addresses behind a Service."""

from typing import Any

import msgspec

from grange.api.kinds.endpoints import check_endpoint_ports
from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

SERVICE_LABEL = "kubernetes.io/service-name"
"""Label of a slice: the Service that it belongs to."""

_TYPES = ("IPv4", "IPv6", "FQDN")
_ENDPOINTS_MAX = 1000
_SHOWN = 3


class EndpointSlice(Resource, frozen=True):
    """Endpoints of a Service."""

    address_type: str = ""
    endpoints: tuple[dict[str, Any], ...] = msgspec.field(default_factory=tuple)
    ports: tuple[dict[str, Any], ...] = msgspec.field(default_factory=tuple)


def _default(document: Document) -> None:
    for port in document.get("ports") or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    kind = document.get("addressType")
    if kind not in _TYPES:
        faults.not_supported("addressType", kind, _TYPES)
    endpoints = document.get("endpoints") or ()
    if len(endpoints) > _ENDPOINTS_MAX:
        faults.too_long("endpoints", f"may not have more than {_ENDPOINTS_MAX} items")
    for index, endpoint in enumerate(endpoints):
        if not endpoint.get("addresses"):
            faults.required(f"endpoints[{index}].addresses", "must contain at least 1 address")
    check_endpoint_ports(document.get("ports") or [], "ports", faults)
    return faults.causes


def _shown(items: list[str]) -> str:
    more = len(items) - _SHOWN
    return ",".join(items[:_SHOWN]) + (f" + {more} more..." if more > 0 else "") or "<unset>"


def _ports(document: Document, now: float) -> cells.Cell:
    return _shown([str(port.get("port", "*")) for port in document.get("ports") or ()])


def _endpoints(document: Document, now: float) -> cells.Cell:
    every = document.get("endpoints") or ()
    return _shown([address for item in every for address in item.get("addresses") or ()])


ENDPOINTSLICE = KindInfo(
    group="discovery.k8s.io",
    version="v1",
    kind="EndpointSlice",
    plural="endpointslices",
    view=EndpointSlice,
    schema="io.k8s.api.discovery.v1.EndpointSlice",
    has_status=False,
    columns=(
        Column("AddressType", cells.text("addressType"), description="IPv4, IPv6 or FQDN."),
        Column("Ports", _ports, description="Ports of every endpoint."),
        Column("Endpoints", _endpoints, description="Addresses."),
    ),
    default=_default,
    validate=_validate,
    immutable=("addressType",),
)
