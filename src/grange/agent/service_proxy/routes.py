"""Where the addresses of Services lead: pure.

The rules are those of kube-proxy: only endpoints that are ready; if there is none, those that are
terminating and still serve (KEP-1669); without any, the address refuses connections.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network

from grange.api.kinds.endpointslice import SERVICE_LABEL, EndpointSlice
from grange.api.kinds.service import Service, ServicePort
from grange.api.meta import Document, ObjectKey
from grange.api.validation.services import EXTERNAL_NAME

_TCP = "TCP"
MACHINE = "127.0.0.1"
"""Where node ports are: other machines do not reach pods that are processes of this one."""


@dataclass(frozen=True, slots=True, order=True)
class Frontend:
    """What is listened on, for TCP."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Route:
    """Where it leads.

    Attributes:
        service: whose it is.
        endpoints: address and port of each, sorted.
        affinity_s: a client goes on with its endpoint until it has been silent for so long; 0: no
            affinity.
    """

    service: ObjectKey
    endpoints: tuple[tuple[str, int], ...]
    affinity_s: int = 0


def routes(
    services: Iterable[Service], slices: Iterable[EndpointSlice], network: IPv4Network
) -> dict[Frontend, Route]:
    """All that is to be listened on, with at least one endpoint each.

    Args:
        services: all of them.
        slices: all of them.
        network: the cluster addresses that belong to this machine.
    """
    backends: dict[ObjectKey, list[EndpointSlice]] = {}
    for item in slices:
        name = item.metadata.labels.get(SERVICE_LABEL)
        if name:
            backends.setdefault(ObjectKey(item.metadata.namespace, name), []).append(item)
    found: dict[Frontend, Route] = {}
    for service in sorted(services, key=lambda item: item.key):
        mine = backends.get(service.key, [])
        for port in service.spec.ports:
            route = Route(service.key, _endpoints(mine, port), _affinity_s(service))
            if route.endpoints and port.protocol == _TCP:
                for frontend in _frontends(service, port, network):
                    found.setdefault(frontend, route)
    return found


def _frontends(service: Service, port: ServicePort, network: IPv4Network) -> Iterator[Frontend]:
    spec = service.spec
    if spec.type == EXTERNAL_NAME:
        return
    try:
        is_ours = IPv4Address(spec.cluster_ip) in network
    except AddressValueError:
        is_ours = False  # headless, or not allocated yet
    if is_ours:
        yield Frontend(spec.cluster_ip, port.port)
    if port.node_port:
        yield Frontend(MACHINE, port.node_port)


def _affinity_s(service: Service) -> int:
    if service.spec.session_affinity != "ClientIP":
        return 0
    config = (service.spec.session_affinity_config or {}).get("clientIP") or {}
    return int(config.get("timeoutSeconds") or 0)


def _endpoints(slices: Iterable[EndpointSlice], port: ServicePort) -> tuple[tuple[str, int], ...]:
    ready: set[tuple[str, int]] = set()
    serving: set[tuple[str, int]] = set()
    for item in slices:
        for number in _numbers(item, port):
            for endpoint in item.endpoints:
                conditions: Document = endpoint.get("conditions") or {}
                places = {(str(address), number) for address in endpoint.get("addresses") or ()}
                if conditions.get("ready", True) is not False:
                    ready |= places
                elif conditions.get("serving"):
                    serving |= places
    return tuple(sorted(ready or serving))


def _numbers(item: EndpointSlice, port: ServicePort) -> Iterator[int]:
    for backend in item.ports:
        same = (backend.get("name") or "") == port.name
        if same and backend.get("protocol", _TCP) == port.protocol and backend.get("port"):
            yield int(backend["port"])
