"""Rules of pod specs, wherever they appear (pods, and templates of pods).

The document has passed its schema, so types are right; values are what is judged here. Defaults
may or may not be filled in: an absent field is judged as its default.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from grange.api import names
from grange.api.pod_fields import PROBE_ACTIONS
from grange.api.restart_policies import RESTART_POLICIES
from grange.api.stop_signals import STOP_SIGNALS
from grange.api.validation import scheduling
from grange.api.validation.causes import Faults
from grange.api.validation.pod_dns import DNS_POLICIES, check_pod_dns
from grange.api.validation.resize_rules import check_resize_policy, check_restart_by_resize
from grange.api.validation.resources import check_amount, check_resources
from grange.api.validation.restart_rules import check_restart_rules
from grange.api.validation.validation_cache import ValidationCache

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROTOCOLS = ("TCP", "UDP", "SCTP")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
PORT_MAX = 65_535
_SECONDS_MAX = 2**31 - 1  # 68 years; what is added to a time must still give one
NO_COMMAND = (
    "this control plane runs pods as processes: name the program to run, or an image that has one"
)
_CHANGEABLE = (
    "activeDeadlineSeconds",
    "ephemeralContainers",
    "schedulingGates",
    "terminationGracePeriodSeconds",
    "tolerations",
)
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`, "
    "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, "
    "`spec.terminationGracePeriodSeconds` and additions to `spec.tolerations`"
)
_HOOK_ACTIONS = ("exec", "httpGet", "tcpSocket", "sleep")
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_PROBE_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)
_ENV_SOURCES = ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_KEYED_FIELDS = ("metadata.labels['", "metadata.annotations['")
_PROGRAM_FIELDS = ("volumes", "initContainers", "containers")
_tokens = msgspec.json.Encoder(order="sorted")
PROGRAMS = ValidationCache()
"""The volumes and containers of templates that pods came from lately."""


def check_pod_spec(spec: dict[str, Any], path: str, faults: Faults) -> None:
    """Every rule of a pod spec at ``path``."""
    unknown = PROGRAMS.unknown([spec.get(field) for field in _PROGRAM_FIELDS])
    if unknown:
        before = len(faults.causes)
        _check_programs(spec, path, faults)
        if len(faults.causes) == before:
            PROGRAMS.add(unknown)
    _check_choices(spec, path, faults)
    check_restart_by_resize(spec, path, faults)
    _check_numbers(spec, path, faults)
    check_pod_dns(spec, path, faults)
    for field in ("nodeName", "serviceAccountName", "priorityClassName", "schedulerName"):
        if (value := spec.get(field)) and (fault := names.check_dns_subdomain(value)):
            faults.named(f"{path}.{field}", value, fault)
    if spec.get("ephemeralContainers"):
        faults.forbidden(f"{path}.ephemeralContainers", "may not be set when a pod is created")
    scheduling.check_scheduling(spec, path, faults)


def _check_programs(spec: dict[str, Any], path: str, faults: Faults) -> None:
    """Volumes and containers, which know each other; looks at ``_PROGRAM_FIELDS`` alone."""
    volumes = _check_volumes(spec.get("volumes") or (), f"{path}.volumes", faults)
    containers = spec.get("containers") or ()
    taken: set[str] = set()
    if not containers:
        faults.required(f"{path}.containers", "a pod needs at least one container")
    for index, container in enumerate(spec.get("initContainers") or ()):
        at = f"{path}.initContainers[{index}]"
        check_container(container, at, volumes, taken, faults)
        _check_init_container(container, at, faults)
    for index, container in enumerate(containers):
        at = f"{path}.containers[{index}]"
        check_container(container, at, volumes, taken, faults)


def _check_choices(spec: dict[str, Any], path: str, faults: Faults) -> None:
    for field, choices in (
        ("restartPolicy", RESTART_POLICIES),
        ("dnsPolicy", DNS_POLICIES),
        ("preemptionPolicy", PREEMPTION_POLICIES),
    ):
        value = spec.get(field)
        if value is not None and value not in choices:
            faults.not_supported(f"{path}.{field}", value, tuple(choices))


def _check_numbers(spec: dict[str, Any], path: str, faults: Faults) -> None:
    grace = spec.get("terminationGracePeriodSeconds", 0)
    if grace < 0:
        message = "must be greater than or equal to 0"
        faults.invalid(f"{path}.terminationGracePeriodSeconds", grace, message)
    for field in ("terminationGracePeriodSeconds", "activeDeadlineSeconds"):
        seconds = spec.get(field)
        if seconds is not None and seconds > _SECONDS_MAX:
            message = f"must be less than or equal to {_SECONDS_MAX}"
            faults.invalid(f"{path}.{field}", seconds, message)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        message = "must be greater than or equal to 1"
        faults.invalid(f"{path}.activeDeadlineSeconds", deadline, message)


def _check_init_container(container: dict[str, Any], path: str, faults: Faults) -> None:
    if container.get("restartPolicy") != "Always":
        for field in _PROBES:
            if container.get(field) is not None:
                message = "may not be set for init containers without restartPolicy=Always"
                faults.forbidden(f"{path}.{field}", message)


def check_container(
    container: dict[str, Any], path: str, volumes: set[str], taken: set[str], faults: Faults
) -> None:
    """Every rule of a container.

    Args:
        container: as it is written.
        path: of it.
        volumes: names of the pod's volumes.
        taken: names of containers before it; its own is added.
        faults: what is found.
    """
    name = container.get("name", "")
    if not name:
        faults.required(f"{path}.name")
    else:
        faults.named(f"{path}.name", name, names.check_dns_label(name))
        if name in taken:
            faults.duplicate(f"{path}.name", name)
        taken.add(name)
    image, command = container.get("image"), container.get("command")
    if not image and not (command and command[0]):
        faults.required(f"{path}.command{'[0]' if command else ''}", NO_COMMAND)
    if image and image != image.strip():
        faults.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    policy = container.get("imagePullPolicy")
    if policy not in (None, "", *PULL_POLICIES):
        faults.not_supported(f"{path}.imagePullPolicy", policy, PULL_POLICIES)
    if ports := container.get("ports"):
        _check_ports(ports, f"{path}.ports", faults)
    for index, variable in enumerate(container.get("env") or ()):
        _check_env(variable, f"{path}.env[{index}]", volumes, faults)
    for index, source in enumerate(container.get("envFrom") or ()):
        _check_env_from(source, f"{path}.envFrom[{index}]", faults)
    if mounts := container.get("volumeMounts"):
        _check_mounts(mounts, f"{path}.volumeMounts", volumes, faults)
    if resources := container.get("resources"):
        check_resources(resources, f"{path}.resources", faults)
    check_resize_policy(container, path, faults)
    check_restart_rules(container, path, faults)
    _check_actions(container, path, faults)


def _check_actions(container: dict[str, Any], path: str, faults: Faults) -> None:
    """Probes and lifecycle hooks."""
    for field in _PROBES:
        probe = container.get(field)
        if probe is not None:
            _check_probe(probe, f"{path}.{field}", faults)
            if field != "readinessProbe" and probe.get("successThreshold", 1) not in (0, 1):
                at = f"{path}.{field}.successThreshold"
                faults.invalid(at, probe["successThreshold"], "must be 1")
    lifecycle = container.get("lifecycle")
    if lifecycle:
        wanted = lifecycle.get("stopSignal")
        if wanted is not None and wanted not in STOP_SIGNALS:
            at = f"{path}.lifecycle.stopSignal"
            faults.not_supported(at, wanted, STOP_SIGNALS)
        for field in ("postStart", "preStop"):
            if lifecycle.get(field) is not None:
                at = f"{path}.lifecycle.{field}"
                _check_action(lifecycle[field], at, _HOOK_ACTIONS, faults)


def _check_ports(ports: Sequence[dict[str, Any]], path: str, faults: Faults) -> None:
    taken: set[str] = set()
    for index, port in enumerate(ports):
        at = f"{path}[{index}]"
        if name := port.get("name"):
            faults.named(f"{at}.name", name, names.check_port_name(name))
            if name in taken:
                faults.duplicate(f"{at}.name", name)
            taken.add(name)
        number = port.get("containerPort")
        if not number:
            faults.required(f"{at}.containerPort")
        else:
            check_port_number(number, f"{at}.containerPort", faults)
        if host_port := port.get("hostPort"):
            check_port_number(host_port, f"{at}.hostPort", faults)
        protocol = port.get("protocol", "TCP")
        if protocol not in PROTOCOLS:
            faults.not_supported(f"{at}.protocol", protocol, PROTOCOLS)


def check_port_number(number: int, path: str, faults: Faults) -> None:
    """A TCP or UDP port."""
    if not 1 <= number <= PORT_MAX:
        faults.invalid(path, number, f"must be between 1 and {PORT_MAX}, inclusive")


def check_port_reference(port: int | str, path: str, faults: Faults) -> None:
    """A port by number or by its name in the container."""
    if isinstance(port, int):
        check_port_number(port, path, faults)
    else:
        faults.named(path, port, names.check_port_name(port))


def _check_env(variable: dict[str, Any], path: str, volumes: set[str], faults: Faults) -> None:
    name = variable.get("name", "")
    if not name:
        faults.required(f"{path}.name")
    else:
        faults.named(f"{path}.name", name, names.check_env_name(name))
    source = variable.get("valueFrom")
    if source is None:
        return
    if variable.get("value"):
        message = "may not be specified when `value` is not empty"
        faults.invalid(f"{path}.valueFrom", sorted(source), message)
    given = [field for field in _ENV_SOURCES if source.get(field) is not None]
    if len(given) != 1:
        message = f"specify exactly one of {', '.join(_ENV_SOURCES)}"
        faults.invalid(f"{path}.valueFrom", given, message)
    for field in ("configMapKeyRef", "secretKeyRef"):
        if (reference := source.get(field)) is not None:
            if not reference.get("name"):
                faults.required(f"{path}.valueFrom.{field}.name")
            if not reference.get("key"):
                faults.required(f"{path}.valueFrom.{field}.key")
    if (reference := source.get("fileKeyRef")) is not None:
        _check_file_key(reference, f"{path}.valueFrom.fileKeyRef", volumes, faults)
    if (reference := source.get("fieldRef")) is not None:
        wanted = reference.get("fieldPath", "")
        if wanted not in _ENV_FIELDS and not _is_keyed_field(wanted):
            at = f"{path}.valueFrom.fieldRef.fieldPath"
            choices = (*_ENV_FIELDS, *(f"{start}<KEY>']" for start in _KEYED_FIELDS))
            faults.not_supported(at, wanted, choices)


def _check_file_key(
    reference: dict[str, Any], path: str, volumes: set[str], faults: Faults
) -> None:
    volume, where, key = (reference.get(name, "") for name in ("volumeName", "path", "key"))
    if not volume:
        faults.required(f"{path}.volumeName")
    elif volume not in volumes:
        faults.not_found(f"{path}.volumeName", volume)
    _check_plain_path(where, f"{path}.path", faults)
    if where.startswith("/"):
        faults.invalid(f"{path}.path", where, "must be a relative path")
    if not key:
        faults.required(f"{path}.key")
    else:
        faults.named(f"{path}.key", key, names.check_env_name(key))


def _is_keyed_field(path: str) -> bool:
    return path.endswith("']") and any(
        path.startswith(start) and names.check_qualified_name(path[len(start) : -2].lower()) is None
        for start in _KEYED_FIELDS
    )


def _check_env_from(source: dict[str, Any], path: str, faults: Faults) -> None:
    if prefix := source.get("prefix"):
        faults.named(f"{path}.prefix", prefix, names.check_env_name(prefix))
    given = [f for f in ("configMapRef", "secretRef") if source.get(f) is not None]
    if len(given) != 1:
        faults.invalid(path, given, "specify exactly one of configMapRef and secretRef")
    for field in given:
        if not source[field].get("name"):
            faults.required(f"{path}.{field}.name")


def _check_volumes(volumes: Sequence[dict[str, Any]], path: str, faults: Faults) -> set[str]:
    taken: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{path}[{index}]"
        name = volume.get("name", "")
        if not name:
            faults.required(f"{at}.name")
        else:
            faults.named(f"{at}.name", name, names.check_dns_label(name))
            if name in taken:
                faults.duplicate(f"{at}.name", name)
            taken.add(name)
        sources = [
            field for field, value in volume.items() if field != "name" and value is not None
        ]
        if len(sources) > 1:
            message = "may not specify more than 1 volume type"
            faults.forbidden(f"{at}.{sources[1]}", message)
        _check_volume_source(volume, at, faults)
    return taken


def _check_volume_source(volume: dict[str, Any], path: str, faults: Faults) -> None:
    if (source := volume.get("configMap")) is not None and not source.get("name"):
        faults.required(f"{path}.configMap.name")
    if (source := volume.get("secret")) is not None and not source.get("secretName"):
        faults.required(f"{path}.secret.secretName")
    if (source := volume.get("hostPath")) is not None:
        _check_plain_path(source.get("path", ""), f"{path}.hostPath.path", faults)
    if (source := volume.get("emptyDir")) is not None and source.get("sizeLimit") is not None:
        check_amount(f"{path}.emptyDir.sizeLimit", source["sizeLimit"], faults)
    for field in ("configMap", "secret", "downwardAPI"):
        for index, item in enumerate((volume.get(field) or {}).get("items") or ()):
            at = f"{path}.{field}.items[{index}].path"
            _check_plain_path(item.get("path", ""), at, faults)
            if item.get("path", "").startswith("/"):
                faults.invalid(at, item["path"], "must be a relative path")


def _check_plain_path(value: str, path: str, faults: Faults) -> None:
    if not value:
        faults.required(path)
    elif ".." in value.split("/"):
        faults.invalid(path, value, "must not contain '..'")


def _check_mounts(
    mounts: Iterable[dict[str, Any]], path: str, volumes: set[str], faults: Faults
) -> None:
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        at = f"{path}[{index}]"
        name = mount.get("name", "")
        if not name:
            faults.required(f"{at}.name")
        elif name not in volumes:
            faults.not_found(f"{at}.name", name)
        where = mount.get("mountPath", "")
        if not where:
            faults.required(f"{at}.mountPath")
        elif where in taken:
            faults.invalid(f"{at}.mountPath", where, "must be unique")
        taken.add(where)
        for field in ("subPath", "subPathExpr"):
            if sub := mount.get(field):
                _check_plain_path(sub, f"{at}.{field}", faults)
                if sub.startswith("/"):
                    faults.invalid(f"{at}.{field}", sub, "must be a relative path")
        if mount.get("subPath") and mount.get("subPathExpr"):
            message = "subPathExpr and subPath are mutually exclusive"
            faults.invalid(f"{at}.subPathExpr", mount["subPathExpr"], message)


def _check_probe(probe: dict[str, Any], path: str, faults: Faults) -> None:
    _check_action(probe, path, PROBE_ACTIONS, faults)
    for field in _PROBE_NUMBERS:
        if probe.get(field, 0) < 0:
            message = "must be greater than or equal to 0"
            faults.invalid(f"{path}.{field}", probe[field], message)


def _check_action(
    action: dict[str, Any], path: str, choices: tuple[str, ...], faults: Faults
) -> None:
    given = [field for field in choices if action.get(field) is not None]
    if not given:
        faults.required(path, f"must specify an action: one of {', '.join(choices)}")
    for extra in given[1:]:
        faults.forbidden(f"{path}.{extra}", "may not specify more than 1 action")
    if (run := action.get("exec")) is not None and not run.get("command"):
        faults.required(f"{path}.exec.command")
    for field in ("httpGet", "tcpSocket", "grpc"):
        if (target := action.get(field)) is None:
            continue
        if "port" not in target:
            faults.required(f"{path}.{field}.port")
        else:
            check_port_reference(target["port"], f"{path}.{field}.port", faults)
    http = action.get("httpGet")
    if http is not None and http.get("scheme", "HTTP") not in ("HTTP", "HTTPS", ""):
        faults.not_supported(f"{path}.httpGet.scheme", http["scheme"], ("HTTP", "HTTPS"))


def check_pod_update(spec: dict[str, Any], old: dict[str, Any], path: str, faults: Faults) -> None:
    """What of a pod's spec may change once it is created.

    Images, a shorter or first active deadline, further tolerations, fewer scheduling gates, and a
    negative grace period corrected; a node only through the binding. Resources are checked by ``resize_rules``.
    """
    _check_deadline(spec, old, path, faults)
    if not _contains(spec.get("tolerations") or (), old.get("tolerations") or ()):
        faults.forbidden(
            f"{path}.tolerations", "existing tolerations may not change, only be added to"
        )
    if not _contains(old.get("schedulingGates") or (), spec.get("schedulingGates") or ()):
        faults.forbidden(f"{path}.schedulingGates", "gates may only be removed")
    for field in {**old, **spec}:
        if field in _CHANGEABLE or spec.get(field) == old.get(field):
            continue
        if field in ("containers", "initContainers"):
            _check_same_containers(spec, old, field, path, faults)
        elif field == "nodeName":
            faults.forbidden(f"{path}.nodeName", "is set through the binding subresource only")
        else:
            faults.forbidden(f"{path}.{field}", _FIXED)


def _contains(items: Sequence[Any], wanted: Sequence[Any]) -> bool:
    """Whether each of the wanted JSON values is among the items; linear in both."""
    known = {_tokens.encode(item) for item in items}
    return all(_tokens.encode(item) in known for item in wanted)


def _check_deadline(spec: dict[str, Any], old: dict[str, Any], path: str, faults: Faults) -> None:
    before, now = old.get("activeDeadlineSeconds"), spec.get("activeDeadlineSeconds")
    if before is not None and (now is None or now > before):
        message = f"must be less than or equal to previous value {before}"
        faults.invalid(f"{path}.activeDeadlineSeconds", now, message)


def _check_same_containers(
    spec: dict[str, Any], old: dict[str, Any], field: str, path: str, faults: Faults
) -> None:
    now, before = spec.get(field) or [], old.get(field) or []
    if len(now) != len(before):
        faults.forbidden(f"{path}.{field}", "containers may not be added or removed")
        return
    for index, (container, was) in enumerate(zip(now, before, strict=True)):
        fixed = {**was, **container}
        fixed.pop("image", None)
        fixed.pop("resources", None)
        if not was.get("image"):
            fixed.pop("imagePullPolicy", None)  # a first image brings one along
        for name in fixed:
            if container.get(name) != was.get(name):
                faults.forbidden(f"{path}.{field}[{index}].{name}", _FIXED)
