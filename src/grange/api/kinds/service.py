"""Service: one address for a set of pods."""

from typing import Any

import msgspec

from grange.api import names
from grange.api.fields import readers
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.metadata import check_labels
from grange.api.validation.podspec import PROTOCOLS, check_port_number, check_port_reference

TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
AFFINITIES = ("ClientIP", "None")
_AFFINITY_SECONDS = 10_800
_POLICIES = ("Cluster", "Local")


class ServicePort(View, frozen=True):
    """One port of the service and the pods' port behind it."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    target_port: int | str = 0
    node_port: int = 0
    app_protocol: str = ""


class ServiceSpec(View, frozen=True):
    """Which pods, and how they are reached; ``cluster_ip`` is ``None`` for headless services."""

    type: str = "ClusterIP"
    selector: dict[str, str] = msgspec.field(default_factory=dict)
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    external_ips: tuple[str, ...] = msgspec.field(name="externalIPs", default=())
    external_name: str = ""
    session_affinity: str = "None"
    publish_not_ready_addresses: bool = False


class LoadBalancerIngress(View, frozen=True):
    """An address given by a load balancer."""

    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(View, frozen=True):
    """What the load balancer gave."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(View, frozen=True):
    """What is."""

    load_balancer: LoadBalancerStatus = msgspec.field(default_factory=LoadBalancerStatus)
    conditions: tuple[Condition, ...] = ()


class Service(Resource, frozen=True):
    """A service."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


def _default(document: Document) -> None:
    spec = document.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["sessionAffinity"] == "ClientIP" and not spec.get("sessionAffinityConfig"):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        # Zero and empty mean "the same port" as much as absence does.
        if "port" in port and port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]
    document["status"] = document.get("status") or {"loadBalancer": {}}


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    for field, choices in (
        ("type", TYPES),
        ("sessionAffinity", AFFINITIES),
        ("internalTrafficPolicy", _POLICIES),
    ):
        value = spec.get(field)
        if value is not None and value not in choices:
            faults.not_supported(f"spec.{field}", value, choices)
    external = spec.get("type") == "ExternalName"
    if external:
        name = spec.get("externalName", "")
        faults.named("spec.externalName", name, names.check_dns_subdomain(name))
    if selector := spec.get("selector"):
        check_labels(selector, "spec.selector", faults)
    ports = spec.get("ports") or []
    if not ports and not external and spec.get("clusterIP") != "None":
        faults.required("spec.ports", "a service needs at least one port")
    _check_ports(ports, faults)
    if old is not None:
        _check_cluster_ip(spec, old.get("spec") or {}, faults)
    return faults.causes


def _check_ports(ports: list[dict[str, Any]], faults: Faults) -> None:
    taken: set[str] = set()
    doors: set[tuple[str, int]] = set()
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
            check_port_number(node_port, f"{at}.nodePort", faults)


def _check_cluster_ip(spec: dict[str, Any], old: dict[str, Any], faults: Faults) -> None:
    before, now = old.get("clusterIP"), spec.get("clusterIP")
    if before and now != before and "ExternalName" not in (spec.get("type"), old.get("type")):
        faults.invalid("spec.clusterIP", now, "may not change once set")


def _external_ip(document: Document, now: float) -> cells.Cell:
    spec = document.get("spec") or {}
    kind = spec.get("type")
    if kind == "ExternalName":
        return str(spec.get("externalName") or cells.NONE)
    addresses = list(spec.get("externalIPs") or ())
    if kind == "LoadBalancer":
        balancer = (document.get("status") or {}).get("loadBalancer") or {}
        given = balancer.get("ingress") or ()
        addresses = [item.get("ip") or item.get("hostname") or "" for item in given] + addresses
        if not addresses:
            return "<pending>"
    return ",".join(addresses) if addresses else cells.NONE


def _ports(document: Document, now: float) -> cells.Cell:
    shown = []
    for port in (document.get("spec") or {}).get("ports") or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) if shown else cells.NONE


SERVICE = KindInfo(
    group="",
    version="v1",
    kind="Service",
    plural="services",
    view=Service,
    schema="io.k8s.api.core.v1.Service",
    short_names=("svc",),
    categories=("all",),
    columns=(
        Column("Type", cells.text("spec.type"), description="How the service is exposed."),
        Column("Cluster-IP", cells.text("spec.clusterIP"), description="Its address."),
        Column("External-IP", _external_ip, description="Addresses from outside."),
        Column("Port(s)", _ports, description="Its ports."),
        Column(
            "Selector", cells.labels("spec.selector"), description="Labels of its pods.", priority=1
        ),
    ),
    fields=readers("spec.clusterIP", "spec.type"),
    default=_default,
    validate=_validate,
    name_rule=names.check_dns_1035_label,
    returns_deleted=True,
)
