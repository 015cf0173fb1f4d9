"""Defaults of pods, as Kubernetes 1.36 fills them in.

Clients rely on them without a look: kubectl reads ``securityContext`` of a pod as if it were always
there. A container without an image, which Kubernetes does not have, gets no pull policy.
"""

from collections.abc import Iterable
from typing import Any

from grange.api import quantity
from grange.api.meta import Document

SCHEDULER = "default-scheduler"
GRACE_S = 30
DNS_POLICY = "ClusterFirst"
SERVICE_ACCOUNT = "default"
# How long a pod stays on a node that is not Ready, unless the pod tolerates more.
UNREACHABLE_S = 300
_UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FILE_MODE = 0o644
_TERMINATION_LOG = "/dev/termination-log"
_VOLUME_SOURCES_WITH_MODE = ("configMap", "secret", "downwardAPI", "projected")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_TOKEN_EXPIRATION_S = 3600
_PROBE_NUMBERS = (  # zero means unset for these, as it does in Kubernetes
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
)


def default_pod(pod: Document) -> None:
    """Everything that a pod may leave out: the spec's and the status's."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    _default_service_account(spec)
    _default_tolerations(spec)
    status = pod.get("status")
    if not status:
        status = pod["status"] = {}
    status.setdefault("phase", "Pending")
    if "qosClass" not in status:
        status["qosClass"] = qos_class(spec)


def default_pod_spec(spec: dict[str, Any]) -> None:
    """What a pod spec may leave out."""
    setdefault = spec.setdefault
    setdefault("restartPolicy", "Always")
    setdefault("terminationGracePeriodSeconds", GRACE_S)
    setdefault("schedulerName", SCHEDULER)
    setdefault("dnsPolicy", DNS_POLICY)
    setdefault("securityContext", {})
    host_network = spec.get("hostNetwork", False)
    for container in spec.get("containers") or ():
        _default_container(container, host_network=host_network)
    for container in spec.get("initContainers") or ():
        _default_container(container, host_network=host_network)
    for container in spec.get("ephemeralContainers") or ():
        _default_container(container, host_network=host_network)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_service_account(spec: dict[str, Any]) -> None:
    """The account, also under the field's former name; the new name wins where both are given."""
    name = spec.get("serviceAccountName") or spec.get("serviceAccount") or SERVICE_ACCOUNT
    spec["serviceAccountName"] = spec["serviceAccount"] = name


def pull_policy(image: str) -> str:
    """When to pull an image again: always for the tag ``latest``, which no tag and no digest means."""
    name, digested, _ = image.partition("@")
    _, tagged, tag = name.rpartition("/")[2].partition(":")
    return "Always" if tag == "latest" or not (tagged or digested) else "IfNotPresent"


def _default_container(container: dict[str, Any], *, host_network: bool) -> None:
    setdefault = container.setdefault
    setdefault("terminationMessagePath", _TERMINATION_LOG)
    setdefault("terminationMessagePolicy", "File")
    if not container.get("imagePullPolicy") and (image := container.get("image")):
        container["imagePullPolicy"] = pull_policy(image)
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if host_network and "containerPort" in port:
            port.setdefault("hostPort", port["containerPort"])
    resources = container.get("resources")
    if resources and (limits := resources.get("limits")):
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)
    for field in _PROBES:
        if probe := container.get(field):
            _default_probe(probe)
    for hook in (container.get("lifecycle") or {}).values():
        if isinstance(hook, dict) and (action := hook.get("httpGet")) is not None:
            _default_http_get(action)
    for variable in container.get("env") or ():
        _default_field_ref(variable.get("valueFrom"))


def _default_field_ref(source: dict[str, Any] | None) -> None:
    if source and (field_ref := source.get("fieldRef")) is not None:
        field_ref.setdefault("apiVersion", "v1")


def _default_probe(probe: dict[str, Any]) -> None:
    for field, default in _PROBE_NUMBERS:
        if not probe.get(field):
            probe[field] = default
    if (action := probe.get("httpGet")) is not None:
        _default_http_get(action)
    if (action := probe.get("grpc")) is not None:
        action.setdefault("service", "")


def _default_http_get(action: dict[str, Any]) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


def _default_volume(volume: dict[str, Any]) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
        return
    for field in _VOLUME_SOURCES_WITH_MODE:
        if (source := volume.get(field)) is not None:
            source.setdefault("defaultMode", _FILE_MODE)
    if (source := volume.get("hostPath")) is not None:
        source.setdefault("type", "")
    _default_field_refs(volume.get("downwardAPI"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_EXPIRATION_S)
        _default_field_refs(source.get("downwardAPI"))


def _default_field_refs(source: dict[str, Any] | None) -> None:
    for item in (source or {}).get("items") or ():
        _default_field_ref(item)


def _default_tolerations(spec: dict[str, Any]) -> None:
    """Let the pod outlive a short absence of its node, unless it sets the time itself."""
    tolerations = spec.get("tolerations") or ()
    missing = [key for key in _UNREACHABLE if not _tolerates(tolerations, key)]
    if missing:
        spec["tolerations"] = [
            *tolerations,
            *[
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": UNREACHABLE_S,
                }
                for key in missing
            ],
        ]


def _tolerates(tolerations: Iterable[dict[str, Any]], key: str) -> bool:
    for item in tolerations:
        if item.get("key", "") in ("", key) and item.get("effect", "") in ("", "NoExecute"):
            return True
    return False


def qos_class(spec: dict[str, Any]) -> str:
    """Guaranteed, Burstable or BestEffort, from the CPU and memory of all containers."""
    asks = False
    guaranteed = True
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            resources = container.get("resources")
            if not resources:
                guaranteed = False
                continue
            requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
            for name in ("cpu", "memory"):
                request, limit = _amount(requests, name), _amount(limits, name)
                asks = asks or request > 0 or limit > 0
                guaranteed = guaranteed and limit > 0 and request in (0, limit)
    if not asks:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amount(amounts: dict[str, Any], name: str) -> int:
    """Milliunits; what cannot be read counts as nothing, as validation refuses it afterwards."""
    if name not in amounts:
        return 0
    try:
        return quantity.milli(amounts[name])
    except quantity.QuantityError:
        return 0
