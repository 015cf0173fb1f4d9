"""Service: one address for a set of pods."""

import msgspec

from grange.api import names
from grange.api.fields import readers
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.validation.services import (
    CLUSTER_IP,
    CLUSTER_IPS,
    EXTERNAL_NAME,
    IPV4,
    LOAD_BALANCER,
    is_externally_accessible,
    needs_health_check_port,
    needs_node_port,
    validate_service,
)

_AFFINITY_SECONDS = 10_800


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
    session_affinity_config: Document | None = None
    publish_not_ready_addresses: bool = False
    internal_traffic_policy: str = ""
    external_traffic_policy: str = ""


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
    """One address and name for the pods that a selector finds."""

    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


def _default(document: Document) -> None:
    spec = document.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != EXTERNAL_NAME:
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", [IPV4])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec.get(CLUSTER_IP) and not spec.get(CLUSTER_IPS):
            spec[CLUSTER_IPS] = [spec[CLUSTER_IP]]
    if is_externally_accessible(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == LOAD_BALANCER:
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec["sessionAffinity"] == "ClientIP" and not spec.get("sessionAffinityConfig"):
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        # Zero and empty mean "the same port" as much as absence does.
        if "port" in port and port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]
    document["status"] = document.get("status") or {"loadBalancer": {}}


_WITH_CLUSTER_IP = (
    CLUSTER_IP,
    CLUSTER_IPS,
    "ipFamilies",
    "ipFamilyPolicy",
    "internalTrafficPolicy",
)
_WITH_LOAD_BALANCER = ("allocateLoadBalancerNodePorts", "loadBalancerClass")


def _prepare_for_update(old: Document, new: Document) -> None:
    """Keep what was allocated and the client left out; drop what another type has no use for."""
    before, spec = old.get("spec") or {}, {**new["spec"]}
    new["spec"] = spec
    if spec["type"] == EXTERNAL_NAME:
        _drop_unchanged(before, spec, _WITH_CLUSTER_IP)
    elif before.get("type") != EXTERNAL_NAME:
        _keep_cluster_ip(before, spec)
    if spec["type"] != LOAD_BALANCER:
        _drop_unchanged(before, spec, _WITH_LOAD_BALANCER)
    if not is_externally_accessible(spec):
        _drop_unchanged(before, spec, ("externalTrafficPolicy",))
    if not needs_health_check_port(spec):
        _drop_unchanged(before, spec, ("healthCheckNodePort",))
    elif needs_health_check_port(before) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = before.get("healthCheckNodePort", 0)
    if needs_node_port(before):
        _keep_node_ports(before, spec)


def _drop_unchanged(before: Document, spec: Document, fields: tuple[str, ...]) -> None:
    for field in fields:
        if field in spec and spec[field] == before.get(field):
            del spec[field]


def _keep_cluster_ip(before: Document, spec: Document) -> None:
    had, has = before.get(CLUSTER_IP), spec.get(CLUSTER_IP)
    if has != had and spec.get(CLUSTER_IPS) == before.get(CLUSTER_IPS):
        # The client knows one of the two fields only; the other one follows.
        spec.pop(CLUSTER_IPS, None)
        if has:
            spec[CLUSTER_IPS] = [has]
    if had and not has:
        spec[CLUSTER_IP] = had
    if spec.get(CLUSTER_IP) == had and not spec.get(CLUSTER_IPS) and before.get(CLUSTER_IPS):
        spec[CLUSTER_IPS] = before[CLUSTER_IPS]


def _keep_node_ports(before: Document, spec: Document) -> None:
    had = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
    ports = spec["ports"] = [{**port} for port in spec.get("ports") or ()]
    given = {port["nodePort"] for port in ports if port.get("nodePort")}
    if not needs_node_port(spec):
        if given == {number for number in had.values() if number}:
            for port in ports:
                port.pop("nodePort", None)
        return
    for port in ports:
        number = had.get(port.get("name", ""), 0)
        if not port.get("nodePort") and number and number not in given:
            port["nodePort"] = number
            given.add(number)


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
    prepare_for_update=_prepare_for_update,
    validate=validate_service,
    name_rule=names.check_dns_1035_label,
    returns_deleted=True,
)
