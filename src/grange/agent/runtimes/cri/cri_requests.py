"""What a container runtime is asked for, as messages; pure."""

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from grange.agent.attempt_logs import LOG_FILE
from grange.agent.container_runtime import (
    ContainerID,
    ContainerLimits,
    Mount,
    PodSetup,
    Program,
    SharedProcesses,
)
from grange.agent.container_streams import StreamOptions

POD, CONTAINER_OWN, MACHINE, TARGET = 0, 1, 2, 3
"""Whose namespace it is."""
_PIDS = {
    SharedProcesses.NONE: CONTAINER_OWN,
    SharedProcesses.POD: POD,
    SharedProcesses.NODE: MACHINE,
}

OWNER = "grange.dev/owner"
"""Label: which data directory a sandbox or container belongs to."""
POD_UID, CONTAINER = "io.kubernetes.pod.uid", "io.kubernetes.container.name"
NAMESPACE, NAME = "io.kubernetes.pod.namespace", "io.kubernetes.pod.name"
NODE, ADDRESS, PROGRAM = "grange.dev/node", "grange.dev/address", "grange.dev/program"
EXPANDED = "grange.dev/program-expanded"
"""Annotations: the pod's node and address; the program as messages may have it, and whether another
was executed, which may be a secret."""

_LOCALHOST = 2  # of a profile: a file of the machine
_SHOWN_MAX = 256
_MILLI_PERIOD = 100_000
_SHARES_PER_CPU, _SHARES_MIN, _SHARES_MAX = 1024, 2, 262_144
_MASKED = (
    *("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list"),
    *("/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware"),
)
_READ_ONLY = (
    "/proc/asound",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)


def owner_of(data_dir: Path) -> str:
    """The value of the label ``OWNER``: a label holds no path."""
    return hashlib.sha256(str(data_dir.resolve()).encode()).hexdigest()[:16]


def sandbox_config(
    setup: PodSetup, *, owner: str, attempt: int, address: str, logs: Path
) -> dict[str, Any]:
    """The sandbox of a pod.

    Args:
        setup: of the pod.
        owner: of the data directory.
        attempt: how many sandboxes the pod has had.
        address: of the machine that the pod uses.
        logs: directory of the logs of its containers.
    """
    return {
        "metadata": {
            "name": setup.name,
            "uid": setup.uid,
            "namespace": setup.namespace,
            "attempt": attempt,
        },
        "hostname": "",  # a sandbox that shares the machine's network has its host name as well
        "log_directory": str(logs),
        "labels": {
            OWNER: owner,
            POD_UID: setup.uid,
            NAMESPACE: setup.namespace,
            NAME: setup.name,
        },
        "annotations": {NODE: setup.node_name, ADDRESS: address},
        "linux": {
            "security_context": {
                "namespace_options": _namespaces(setup),
                "privileged": setup.privileged,
                "seccomp": {"profile_type": 0},
            }
        },
    }


def container_config(
    target: ContainerID,
    program: Program,
    mounts: Iterable[dict[str, Any]],
    *,
    owner: str,
    setup: PodSetup,
    joined: str = "",
) -> dict[str, Any]:
    """A container.

    Args:
        target: which attempt.
        program: what runs in it, from an image.
        mounts: of files of the machine.
        owner: of the data directory.
        setup: of its pod.
        joined: id of the container whose processes it shares; empty for its own.
    """
    image = program.image
    if image is None:
        raise ValueError(f"{target}: it has no image")
    namespaces = _namespaces(setup)
    if joined and namespaces["pid"] == CONTAINER_OWN:
        namespaces |= {"pid": TARGET, "target_id": joined}
    security = _security(image.security, namespaces)
    shown = program.written or (program.command[0] if program.command else "")
    return {
        "metadata": {"name": target.container, "attempt": target.attempt},
        "image": {"image": image.reference},
        "command": list(program.command),
        "args": list(image.arguments),
        "working_dir": program.working_dir,
        "envs": [{"key": key, "value": value} for key, value in program.env.items()],
        "mounts": list(mounts),
        "labels": {
            OWNER: owner,
            POD_UID: target.pod_uid,
            CONTAINER: target.container,
        },
        "annotations": {
            PROGRAM: shown[:_SHOWN_MAX],
            EXPANDED: "true" if program.written else "false",
        },
        "stdin": program.stdin,
        "stdin_once": program.stdin_once,
        "tty": program.tty,
        "log_path": f"{target.container}/{target.attempt}/{LOG_FILE}",
        "linux": {
            "resources": resources(image.cpu_milli, program.limits),
            "security_context": security,
        },
    }


def with_profile(request: dict[str, Any], path: str, mark: str) -> dict[str, Any]:
    """A request for a container with another seccomp profile.

    Args:
        request: for CreateContainer.
        path: of the profile.
        mark: annotation that the container gets.
    """
    config = request["config"]
    linux = config["linux"]
    security = linux["security_context"] | {
        "seccomp": {"profile_type": _LOCALHOST, "localhost_ref": path}
    }
    changed = {
        "annotations": config["annotations"] | {mark: "true"},
        "linux": linux | {"security_context": security},
    }
    return request | {"config": config | changed}


def resources(cpu_milli: int, limits: ContainerLimits) -> dict[str, Any]:
    """The weight and the limits of a container.

    Args:
        cpu_milli: requested, in thousandths of a CPU.
        limits: what it may use at most.
    """
    shares = max(_SHARES_MIN, min(_SHARES_MAX, cpu_milli * _SHARES_PER_CPU // 1000))
    found: dict[str, Any] = {"cpu_shares": shares, "memory_limit_in_bytes": limits.memory_bytes}
    if limits.cpu_milli:
        found["cpu_period"] = _MILLI_PERIOD
        found["cpu_quota"] = max(1000, limits.cpu_milli * _MILLI_PERIOD // 1000)
    return found


def _namespaces(setup: PodSetup) -> dict[str, Any]:
    ipc = MACHINE if setup.host_ipc else POD
    return {"network": MACHINE, "pid": _PIDS[setup.shared_processes], "ipc": ipc}


def _security(context: Mapping[str, Any], namespaces: dict[str, Any]) -> dict[str, Any]:
    """From the security context of a container, with what the pod's gives where it gives nothing."""
    privileged = bool(context.get("privileged"))
    found: dict[str, Any] = {
        "namespace_options": namespaces,
        "privileged": privileged,
        "readonly_rootfs": bool(context.get("readOnlyRootFilesystem")),
        "no_new_privs": context.get("allowPrivilegeEscalation") is False,
        "supplemental_groups": list(context.get("supplementalGroups") or ()),
    }
    if not privileged:
        found |= {"masked_paths": list(_MASKED), "readonly_paths": list(_READ_ONLY)}
        found["seccomp"] = _seccomp(context.get("seccompProfile"))
    for field, name in (("runAsUser", "run_as_user"), ("runAsGroup", "run_as_group")):
        if context.get(field) is not None:
            found[name] = {"value": int(context[field])}
    capabilities = context.get("capabilities") or {}
    if capabilities:
        found["capabilities"] = {
            "add_capabilities": list(capabilities.get("add") or ()),
            "drop_capabilities": list(capabilities.get("drop") or ()),
        }
    return found


def _seccomp(profile: Mapping[str, Any] | None) -> dict[str, Any]:
    """The runtime's own profile unless another is asked for."""
    kind = (profile or {}).get("type", "RuntimeDefault")
    number = {"RuntimeDefault": 0, "Unconfined": 1, "Localhost": _LOCALHOST}.get(str(kind), 0)
    reference = ""
    if number == _LOCALHOST:
        reference = str((profile or {}).get("localhostProfile") or "")
    return {"profile_type": number, "localhost_ref": reference}


def exec_request(
    container_id: str, command: Iterable[str], options: StreamOptions
) -> dict[str, Any]:
    """A command in a container."""
    return attach_request(container_id, options) | {"cmd": list(command)}


def attach_request(container_id: str, options: StreamOptions) -> dict[str, Any]:
    """The streams of a main process; a terminal has one output."""
    return {
        "container_id": container_id,
        "tty": options.tty,
        "stdin": options.stdin,
        "stdout": options.stdout,
        "stderr": options.stderr and not options.tty,
    }


def mount_of(mount: Mount, source: str) -> dict[str, Any]:
    """A volume in a container."""
    return {
        "container_path": "/" + mount.path.strip("/"),
        "host_path": source,
        "readonly": mount.read_only,
    }
