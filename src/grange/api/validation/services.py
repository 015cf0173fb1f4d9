"""Rules of Services, and which of their fields go with which type."""

import ipaddress
from typing import Any

from grange.api import names
from grange.api.meta import Document
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_labels
from grange.api.validation.podspec import PROTOCOLS, check_port_number, check_port_reference

NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME = "NodePort", "LoadBalancer", "ExternalName"
TYPES = ("ClusterIP", NODE_PORT, LOAD_BALANCER, EXTERNAL_NAME)
AFFINITIES = ("ClientIP", "None")
POLICIES = ("Cluster", "Local")
FAMILY_POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")
IPV4, IPV6 = "IPv4", "IPv6"
CLUSTER_IP, CLUSTER_IPS = "clusterIP", "clusterIPs"
HEADLESS = "None"
"""The ``clusterIP`` of a service that has no address."""


def is_externally_accessible(spec: Document) -> bool:
    """Whether a service can be reached from outside the cluster."""
    kind = spec.get("type")
    return kind in (NODE_PORT, LOAD_BALANCER) or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def needs_node_port(spec: Document) -> bool:
    """Whether the ports of a service are opened on every node."""
    kind = spec.get("type")
    return kind == NODE_PORT or (
        kind == LOAD_BALANCER and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def needs_health_check_port(spec: Document) -> bool:
    """Whether load balancers ask a port of the nodes whether they have pods of the service."""
    return spec.get("type") == LOAD_BALANCER and spec.get("externalTrafficPolicy") == "Local"


def validate_service(document: Document, old: Document | None) -> list[Cause]:
    """The faults of a Service beyond its schema; ``old`` is None on creation."""
    faults = Faults()
    spec = document.get("spec") or {}
    for field, choices in (
        ("type", TYPES),
        ("sessionAffinity", AFFINITIES),
        ("internalTrafficPolicy", POLICIES),
        ("externalTrafficPolicy", POLICIES),
        ("ipFamilyPolicy", FAMILY_POLICIES),
    ):
        value = spec.get(field)
        if value is not None and value not in choices:
            faults.not_supported(f"spec.{field}", value, choices)
    external = spec.get("type") == EXTERNAL_NAME
    if external:
        name = spec.get("externalName", "")
        faults.named("spec.externalName", name, names.check_dns_subdomain(name))
    if selector := spec.get("selector"):
        check_labels(selector, "spec.selector", faults)
    ports = spec.get("ports") or []
    if not ports and not external and spec.get(CLUSTER_IP) != HEADLESS:
        faults.required("spec.ports", "a service needs at least one port")
    _check_ports(ports, spec, faults)
    _check_addresses(spec, faults)
    _check_families(spec, faults)
    if old is not None:
        _check_unchanged(spec, old.get("spec") or {}, faults)
    return faults.causes


def _check_ports(ports: list[dict[str, Any]], spec: Document, faults: Faults) -> None:
    taken: set[str] = set()
    doors: set[tuple[str, int]] = set()
    opened: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        at = f"spec.ports[{index}]"
        name = port.get("name", "")
        if name:
            faults.named(f"{at}.name", name, names.check_dns_label(name))
            if name in taken:
                faults.duplicate(f"{at}.name", name)
            taken.add(name)
        elif len(ports) > 1:
            faults.required(f"{at}.name", "ports need names where there are several")
        protocol = port.get("protocol", "TCP")
        if protocol not in PROTOCOLS:
            faults.not_supported(f"{at}.protocol", protocol, PROTOCOLS)
        number = port.get("port", 0)
        check_port_number(number, f"{at}.port", faults)
        if (protocol, number) in doors:
            faults.duplicate(at, f"{protocol} {number}")
        doors.add((protocol, number))
        if target := port.get("targetPort"):
            check_port_reference(target, f"{at}.targetPort", faults)
        if node_port := port.get("nodePort"):
            before = len(faults.causes)
            check_port_number(node_port, f"{at}.nodePort", faults)
            if len(faults.causes) == before and spec.get("type") in ("ClusterIP", EXTERNAL_NAME):
                message = f"may not be used when `type` is '{spec['type']}'"
                faults.forbidden(f"{at}.nodePort", message)
            if (protocol, node_port) in opened:
                faults.duplicate(f"{at}.nodePort", node_port)
            opened.add((protocol, node_port))


def _check_addresses(spec: Document, faults: Faults) -> None:
    kind, address, addresses = spec.get("type"), spec.get(CLUSTER_IP), spec.get(CLUSTER_IPS) or []
    if kind == EXTERNAL_NAME:
        for field in (CLUSTER_IP, CLUSTER_IPS):
            if spec.get(field):
                faults.forbidden(f"spec.{field}", f"may not be set when `type` is '{kind}'")
        return
    if kind in (NODE_PORT, LOAD_BALANCER) and address == HEADLESS:
        message = f"may not be set to 'None' for {kind} services"
        faults.invalid(f"spec.{CLUSTER_IP}", address, message)
    elif address and address != HEADLESS and not _is_ipv4(address):
        message = "must be empty, 'None', or a valid IPv4 address"
        faults.invalid(f"spec.{CLUSTER_IP}", address, message)
    if addresses and addresses[0] != address:
        faults.invalid(f"spec.{CLUSTER_IPS}", addresses, "first value must match `clusterIP`")
    elif len(addresses) > 1:
        faults.invalid(
            f"spec.{CLUSTER_IPS}", addresses, "may only hold one value: addresses are IPv4"
        )


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _check_families(spec: Document, faults: Faults) -> None:
    if spec.get("type") == EXTERNAL_NAME:
        return
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        message = "this cluster is not configured for dual-stack services"
        faults.invalid("spec.ipFamilyPolicy", "RequireDualStack", message)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        at = f"spec.ipFamilies[{index}]"
        if family == IPV6:
            faults.invalid(at, family, "not configured on this cluster")
        elif family != IPV4:
            faults.not_supported(at, family, (IPV4, IPV6))


def _check_unchanged(spec: Document, old: Document, faults: Faults) -> None:
    before, now = old.get(CLUSTER_IP), spec.get(CLUSTER_IP)
    if before and now != before and EXTERNAL_NAME not in (spec.get("type"), old.get("type")):
        faults.invalid(f"spec.{CLUSTER_IP}", now, "may not change once set")
