"""Defaults of pods.

Only what our own programs read is filled in; what a container image or a cluster's network would
decide (pull policy, DNS policy) stays out, so that stored pods stay small.
"""

from collections.abc import Iterable
from typing import Any

from grange.api import quantity
from grange.api.meta import Document

SCHEDULER = "default-scheduler"
GRACE_S = 30
# How long a pod stays on a node that is gone from sight, unless the pod says otherwise.
UNREACHABLE_S = 300
_UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FILE_MODE = 0o644
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
    host_network = spec.get("hostNetwork", False)
    for container in spec.get("containers") or ():
        _default_container(container, host_network=host_network)
    for container in spec.get("initContainers") or ():
        _default_container(container, host_network=host_network)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)


def _default_container(container: dict[str, Any], *, host_network: bool) -> None:
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
        field_ref = (variable.get("valueFrom") or {}).get("fieldRef")
        if field_ref is not None:
            field_ref.setdefault("apiVersion", "v1")


def _default_probe(probe: dict[str, Any]) -> None:
    for field, default in _PROBE_NUMBERS:
        if not probe.get(field):
            probe[field] = default
    if (action := probe.get("httpGet")) is not None:
        _default_http_get(action)


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
    for source in (volume.get("projected") or {}).get("sources") or ():
        if (token := source.get("serviceAccountToken")) is not None:
            token.setdefault("expirationSeconds", _TOKEN_EXPIRATION_S)


def _default_tolerations(spec: dict[str, Any]) -> None:
    """Let the pod outlive a short absence of its node, unless it says how long itself."""
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
