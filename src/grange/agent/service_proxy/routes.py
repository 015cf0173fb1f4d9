"""Where the addresses of Services lead: pure.

The rules are those of kube-proxy: only endpoints that are ready; if there is none, those that are
terminating and still serve (KEP-1669); without any, the address refuses connections. With the policy
``Local`` only endpoints on the nodes of this machine count.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network
from typing import NamedTuple

from grange.api.kinds.endpointslice import SERVICE_LABEL, EndpointSlice
from grange.api.kinds.service import Service, ServicePort
from grange.api.meta import Document, ObjectKey
from grange.api.pod_addresses import LOOPBACK
from grange.api.validation.services import EXTERNAL_NAME

TCP, UDP = "TCP", "UDP"
_SERVED = (TCP, UDP)
_LOCAL = "Local"
API_SERVICE = ObjectKey("default", "kubernetes")
MACHINE = "127.0.0.1"
"""Where node ports are: other machines do not reach pods that are processes of this one."""


class PodIdentity(NamedTuple):
    """Which pod an endpoint is."""

    namespace: str
    name: str
    uid: str


class Endpoint(NamedTuple):
    """Where a connection can lead.

    Attributes:
        address, port: of the pod.
        node: the node of the pod, where its address means nothing on this machine; else empty.
        pod: the pod, where there is a node.
    """

    address: str
    port: int
    node: str = ""
    pod: PodIdentity | None = None

    @property
    def order(self) -> tuple[str, int, str, tuple[str, ...]]:
        """For sorting."""
        return (self.address, self.port, self.node, self.pod or ())


@dataclass(frozen=True, slots=True, order=True)
class Frontend:
    """What is listened on."""

    host: str
    port: int
    protocol: str = TCP


@dataclass(frozen=True, slots=True)
class Route:
    """Where it leads.

    Attributes:
        service: whose it is.
        endpoints: for new connections, sorted.
        affinity_s: a client goes on with its endpoint until it has been silent for so long; 0: no
            affinity.
        known: all endpoints that there are, ready or not: they keep their connections.
    """

    service: ObjectKey
    endpoints: tuple[Endpoint, ...]
    affinity_s: int = 0
    known: frozenset[Endpoint] = frozenset()


def routes(
    services: Iterable[Service],
    slices: Iterable[EndpointSlice],
    network: IPv4Network,
    nodes: Collection[str] = (),
    api: Endpoint | None = None,
) -> dict[Frontend, Route]:
    """All that Services ask for; without endpoints it is not listened on.

    Args:
        services: all of them.
        slices: all of them.
        network: the cluster addresses that belong to this machine.
        nodes: those of this machine; pods of others are elsewhere.
        api: where the API server is, if its own endpoints are not for this machine.
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
            if port.protocol not in _SERVED:
                continue
            for frontend, policy in _frontends(service, port, network):
                endpoints, known = _endpoints(mine, port, nodes, only_here=policy == _LOCAL)
                if api is not None and service.key == API_SERVICE:
                    endpoints, known = (api,), frozenset((api,))
                route = Route(service.key, endpoints, _affinity_s(service), known)
                found.setdefault(frontend, route)
    return found


def _frontends(
    service: Service, port: ServicePort, network: IPv4Network
) -> Iterator[tuple[Frontend, str]]:
    """What to listen on, and the policy that chooses the endpoints."""
    spec = service.spec
    if spec.type == EXTERNAL_NAME:
        return
    try:
        is_ours = IPv4Address(spec.cluster_ip) in network
    except AddressValueError:
        is_ours = False  # headless, or not allocated yet
    if is_ours:
        where = Frontend(spec.cluster_ip, port.port, port.protocol)
        yield where, spec.internal_traffic_policy
    if port.node_port:
        yield Frontend(MACHINE, port.node_port, port.protocol), spec.external_traffic_policy


def _affinity_s(service: Service) -> int:
    if service.spec.session_affinity != "ClientIP":
        return 0
    config = (service.spec.session_affinity_config or {}).get("clientIP") or {}
    return int(config.get("timeoutSeconds") or 0)


def _endpoints(
    slices: Iterable[EndpointSlice], port: ServicePort, nodes: Collection[str], *, only_here: bool
) -> tuple[tuple[Endpoint, ...], frozenset[Endpoint]]:
    """The endpoints for new connections, and all of them."""
    ready: set[Endpoint] = set()
    serving: set[Endpoint] = set()
    known: set[Endpoint] = set()
    for item in slices:
        for number in _numbers(item, port):
            for endpoint in item.endpoints:
                conditions: Document = endpoint.get("conditions") or {}
                found = {
                    _located(str(host), number, endpoint, nodes)
                    for host in endpoint.get("addresses") or ()
                }
                known |= found
                if only_here and endpoint.get("nodeName") not in nodes:
                    continue
                if conditions.get("ready", True) is not False:
                    ready |= found
                elif conditions.get("serving"):
                    serving |= found
    return tuple(sorted(ready or serving, key=lambda item: item.order)), frozenset(known)


def _located(address: str, port: int, endpoint: Document, nodes: Collection[str]) -> Endpoint:
    """An endpoint, with its pod if that is on another machine and has a loopback address."""
    node, target = endpoint.get("nodeName") or "", endpoint.get("targetRef") or {}
    is_elsewhere = bool(nodes) and bool(node) and node not in nodes
    if not is_elsewhere or target.get("kind") != "Pod" or not _is_loopback(address):
        return Endpoint(address, port)
    pod = PodIdentity(*(str(target.get(key) or "") for key in ("namespace", "name", "uid")))
    return Endpoint(address, port, str(node), pod)


def _is_loopback(address: str) -> bool:
    try:
        return IPv4Address(address) in LOOPBACK
    except AddressValueError:
        return False


def is_exposed(
    slices: Iterable[EndpointSlice],
    nodes: Collection[str],
    uid: str,
    port: int,
    protocol: str = TCP,
) -> bool:
    """Whether a Service leads to a port of a pod on some nodes."""
    return any(
        (endpoint.get("targetRef") or {}).get("uid") == uid and endpoint.get("nodeName") in nodes
        for item in slices
        if any(
            found.get("port") == port and found.get("protocol", TCP) == protocol
            for found in item.ports
        )
        for endpoint in item.endpoints
    )


def _numbers(item: EndpointSlice, port: ServicePort) -> Iterator[int]:
    for backend in item.ports:
        same = (backend.get("name") or "") == port.name
        if same and backend.get("protocol", TCP) == port.protocol and backend.get("port"):
            yield int(backend["port"])
