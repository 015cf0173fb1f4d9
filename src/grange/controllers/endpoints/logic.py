"""Which endpoints a Service has: pure.

The rules are Kubernetes' (discovery.k8s.io/v1, KEP-752; terminating endpoints as in KEP-1672). An
endpoint stays in the slice that it is in, so that one pod's change is one slice's change; further
slices get names that follow from the Service and the ports.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grange.api.kinds.endpointslice import SERVICE_LABEL, EndpointSlice
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.service import Service, ServicePort
from grange.api.meta import Document
from grange.api.validation.services import EXTERNAL_NAME, HEADLESS

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.grange.dev"
HEADLESS_LABEL = "service.kubernetes.io/headless"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
SLICE_MAX = 1000
"""Endpoints in one slice, and addresses in an Endpoints object."""

Ports = tuple[tuple[str, int, str], ...]
"""Name, number and protocol of every port that a pod has for a Service."""


@dataclass(frozen=True, slots=True)
class WantedSlice:
    """A slice as it should be.

    Attributes:
        name: of the object.
        endpoints: as the object has them.
        ports: as the object has them.
    """

    name: str
    endpoints: tuple[Document, ...]
    ports: tuple[Document, ...]


def is_managed(service: Service) -> bool:
    """Whether its endpoints follow from its selector."""
    return bool(service.spec.selector) and service.spec.type != EXTERNAL_NAME


def is_endpoint(pod: Pod) -> bool:
    """Whether the pod can be reached at all: it has an address and has not ended."""
    return bool(pod.status.pod_ip) and not is_finished(pod)


def facts(pod: Pod) -> tuple[object, ...]:
    """What of a pod its endpoints depend on."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    where = (status.pod_ip, spec.node_name, spec.hostname, spec.subdomain)
    return meta.labels, where, is_endpoint(pod), _is_serving(pod), bool(meta.deletion_timestamp)


def labels(service: Service) -> dict[str, str]:
    """The labels of the Service's slices."""
    headless = {HEADLESS_LABEL: ""} if service.spec.cluster_ip == HEADLESS else {}
    own = {SERVICE_LABEL: service.metadata.name, MANAGED_BY: MANAGER}
    return {**service.metadata.labels, **headless, **own}


def slices(
    service: Service, pods: Iterable[Pod], existing: Iterable[EndpointSlice]
) -> list[WantedSlice]:
    """The slices that a Service should have, by name.

    Args:
        service: with a selector.
        pods: that it selects.
        existing: slices of ours that it has.
    """
    before = {item.metadata.name: item for item in existing}
    wanted: list[WantedSlice] = []
    for ports, members in _by_ports(service, pods).items():
        shown = [_shown_port(service, port) for port in ports]
        mine = {name: item for name, item in before.items() if list(item.ports) == shown}
        for name, group in _spread(service, ports, members, mine).items():
            endpoints = tuple(_endpoint(service, pod) for pod in group)
            wanted.append(WantedSlice(name, endpoints, tuple(shown)))
    return sorted(wanted, key=lambda item: item.name)


def subsets(service: Service, pods: Iterable[Pod]) -> tuple[list[Document], bool]:
    """The subsets of the Endpoints object, and whether there are more addresses than it may have."""
    found = []
    left = SLICE_MAX
    for ports, members in _by_ports(service, pods).items():
        unready_too = service.spec.publish_not_ready_addresses
        staying = [pod for pod in members if unready_too or not pod.metadata.deletion_timestamp]
        chosen, over = staying[: max(0, left)], len(staying) > left
        left -= len(staying)
        ready = [pod for pod in chosen if unready_too or _is_serving(pod)]
        waiting = [pod for pod in chosen if not unready_too and not _is_serving(pod)]
        if not chosen:
            continue
        subset: Document = {"ports": [_legacy_port(port) for port in ports]}
        if ready:
            subset["addresses"] = [_address(service, pod) for pod in ready]
        if waiting:
            subset["notReadyAddresses"] = [_address(service, pod) for pod in waiting]
        found.append(subset)
        if over:
            break
    return found, left < 0


def _by_ports(service: Service, pods: Iterable[Pod]) -> dict[Ports, list[Pod]]:
    """The pods that can be reached, by the ports that they have for the Service, in a fixed order."""
    found: dict[Ports, list[Pod]] = {}
    for pod in sorted(pods, key=lambda item: item.metadata.name):
        if is_endpoint(pod):
            found.setdefault(_ports(service, pod), []).append(pod)
    return dict(sorted(found.items()))


def _ports(service: Service, pod: Pod) -> Ports:
    numbers = ((port, _number(port, pod)) for port in service.spec.ports)
    return tuple((port.name, number, port.protocol) for port, number in numbers if number)


def _number(port: ServicePort, pod: Pod) -> int:
    """The pod's port behind a port of the Service; 0 where the pod has none of that name."""
    target = port.target_port or port.port
    if isinstance(target, int):
        return target
    for container in pod.spec.containers:
        for item in container.ports:
            if item.name == target and item.protocol == port.protocol:
                return item.container_port
    return 0


def _spread(
    service: Service, ports: Ports, members: Sequence[Pod], mine: Mapping[str, EndpointSlice]
) -> dict[str, list[Pod]]:
    """The slice of each pod: the one that it is in, else the first that has room."""
    place = {
        str((endpoint.get("targetRef") or {}).get("uid")): name
        for name, item in sorted(mine.items())
        for endpoint in item.endpoints
    }
    found: dict[str, list[Pod]] = {}
    unassigned = []
    for pod in members:
        name = place.get(pod.metadata.uid)
        if name is not None and len(found.get(name, ())) < SLICE_MAX:
            found.setdefault(name, []).append(pod)
        else:
            unassigned.append(pod)
    free = iter(_names(service, ports))
    name = min(found, key=lambda item: (len(found[item]), item), default="")
    for pod in unassigned:
        if not name or len(found.get(name, ())) >= SLICE_MAX:
            name = next(item for item in free if len(found.get(item, ())) < SLICE_MAX)
        found.setdefault(name, []).append(pod)
    return {name: sorted(group, key=lambda pod: pod.metadata.name) for name, group in found.items()}


def _names(service: Service, ports: Ports) -> Iterable[str]:
    digest = hashlib.sha256(json.dumps(ports).encode()).hexdigest()[:5]
    number = 0
    while True:
        yield f"{service.metadata.name}-{digest}-{number}"
        number += 1


def _shown_port(service: Service, port: tuple[str, int, str]) -> Document:
    name, number, protocol = port
    shown: Document = {"name": name, "port": number, "protocol": protocol}
    for item in service.spec.ports:
        if item.name == name and item.app_protocol:
            shown["appProtocol"] = item.app_protocol
    return shown


def _legacy_port(port: tuple[str, int, str]) -> Document:
    name, number, protocol = port
    return {**({"name": name} if name else {}), "port": number, "protocol": protocol}


def _endpoint(service: Service, pod: Pod) -> Document:
    terminating = bool(pod.metadata.deletion_timestamp)
    serving = _is_serving(pod)
    ready = service.spec.publish_not_ready_addresses or (serving and not terminating)
    return {
        "addresses": [pod.status.pod_ip],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": _reference(pod),
        **({"nodeName": pod.spec.node_name} if pod.spec.node_name else {}),
        **_hostname(service, pod),
    }


def _address(service: Service, pod: Pod) -> Document:
    return {
        "ip": pod.status.pod_ip,
        "targetRef": _reference(pod),
        **({"nodeName": pod.spec.node_name} if pod.spec.node_name else {}),
        **_hostname(service, pod),
    }


def _is_serving(pod: Pod) -> bool:
    """Whether its Ready condition is True, also while it terminates."""
    return any(item.type == "Ready" and item.status == "True" for item in pod.status.conditions)


def _reference(pod: Pod) -> Document:
    meta = pod.metadata
    return {"kind": "Pod", "namespace": meta.namespace, "name": meta.name, "uid": meta.uid}


def _hostname(service: Service, pod: Pod) -> Document:
    has_name = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return {"hostname": pod.spec.hostname} if has_name else {}
