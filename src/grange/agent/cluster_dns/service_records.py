"""What the names of Services stand for: pure.

The rules are those of Kubernetes' DNS specification 1.1.0. A Service with an address has one; a headless
one has those of its ready endpoints, and each endpoint has a name below it: the hostname that its pod
asks for with ``hostname`` and ``subdomain``, else its address with dashes.

Slices may be written by any user who may write them, and names end up in files of all pods: what is not a
label of DNS or an address of IPv4 is left out.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address

from grange.api.kinds.endpointslice import SERVICE_LABEL, EndpointSlice
from grange.api.kinds.service import Service
from grange.api.meta import Document, ObjectKey
from grange.api.validation.services import EXTERNAL_NAME, HEADLESS

DOMAIN = "cluster.local"
"""The last labels of every name of the cluster."""

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(slots=True)
class ServiceRecord:
    """The names of one Service.

    Attributes:
        key: of the Service.
        hosts: relative name (``web``, ``web-0.web``) to addresses; the Service itself is first.
    """

    key: ObjectKey
    hosts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def full_name(self, host: str = "") -> str:
        """A relative name in the cluster's domain; without one, the Service's."""
        return f"{host or self.key.name}.{self.key.namespace}.svc.{DOMAIN}"


def service_records(
    services: Iterable[Service], slices: Iterable[EndpointSlice]
) -> dict[ObjectKey, ServiceRecord]:
    """The names of all Services, by namespace and name."""
    backends: dict[ObjectKey, list[EndpointSlice]] = {}
    for item in slices:
        name = item.metadata.labels.get(SERVICE_LABEL)
        if name:
            backends.setdefault(ObjectKey(item.metadata.namespace, name), []).append(item)
    found = (_record(service, backends.get(service.key, ())) for service in services)
    return {record.key: record for record in sorted(found, key=lambda item: item.key)}


def _record(service: Service, slices: Iterable[EndpointSlice]) -> ServiceRecord:
    spec, name = service.spec, service.metadata.name
    record = ServiceRecord(service.key)
    if spec.type == EXTERNAL_NAME:
        return record  # it stands for another name, and files have addresses
    if spec.cluster_ip == HEADLESS:
        _add_endpoints(record, sorted(slices, key=lambda item: item.metadata.name))
    elif is_address(spec.cluster_ip):
        record.hosts[name] = (spec.cluster_ip,)
    else:
        record.hosts[name] = ()  # it has no address yet
    return record


def _add_endpoints(record: ServiceRecord, slices: Iterable[EndpointSlice]) -> None:
    hosts: dict[str, dict[str, None]] = {record.key.name: {}}  # dicts for their order
    for item in slices:
        for endpoint in item.endpoints:
            conditions: Document = endpoint.get("conditions") or {}
            if conditions.get("ready", True) is False:
                continue
            for address in filter(is_address, map(str, endpoint.get("addresses") or ())):
                host = f"{_hostname(endpoint, address)}.{record.key.name}"
                hosts[record.key.name][address] = None
                hosts.setdefault(host, {})[address] = None
    record.hosts = {host: tuple(addresses) for host, addresses in hosts.items()}


def _hostname(endpoint: Document, address: str) -> str:
    given = str(endpoint.get("hostname") or "")
    return given if _LABEL.fullmatch(given) else address.replace(".", "-")


def is_address(text: str) -> bool:
    """Whether it is an address of IPv4."""
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return True
