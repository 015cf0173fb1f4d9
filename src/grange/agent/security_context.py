"""The rights of a container's program, from its security context; pure. Its user is ``users``' part."""

from collections.abc import Iterable, Mapping
from typing import Any

from grange.agent.container_runtime import Confinement, SharedProcesses
from grange.agent.errors import NotCreatableError
from grange.agent.users import RunAsUser
from grange.api.kinds.pod import Container, Pod

CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
)
"""Linux capabilities by number."""

_ALL = (1 << len(CAPABILITIES)) - 1


def confinement_of(pod: Pod, container: Container, own: RunAsUser) -> Confinement:
    """What the program may do beyond the rights of its user.

    Args:
        pod: whose security context holds where the container has none.
        container: what runs.
        own: the agent's user. One that is not root can give nothing away: fields that need root
            are reported as unsupported on its node.

    Raises:
        NotCreatableError: it names a capability that there is not.
    """
    context: Mapping[str, Any] = container.security_context or {}
    capabilities = context.get("capabilities") or {}
    drop, add = capabilities.get("drop") or (), capabilities.get("add") or ()
    mask = None
    if (drop or add) and not context.get("privileged"):
        where = f'container "{container.name}": securityContext.capabilities'
        mask = _ALL & ~_mask(drop, f"{where}.drop") | _mask(add, f"{where}.add")
    is_root = own.uid == 0
    return Confinement(
        groups=groups_of(pod) if is_root else (),
        capabilities=mask if is_root else None,
        # A program of an ordinary user has no capabilities, and without new privileges gets none.
        no_new_privileges=context.get("allowPrivilegeEscalation") is False
        or bool(drop and not is_root),
        read_only_root=bool(context.get("readOnlyRootFilesystem")),
    )


def groups_of(pod: Pod) -> tuple[int, ...]:
    """``supplementalGroups`` and ``fsGroup``."""
    context: Mapping[str, Any] = pod.spec.security_context or {}
    found = [int(group) for group in context.get("supplementalGroups") or ()]
    group = fs_group_of(pod)
    return tuple(dict.fromkeys(found if group is None else [*found, group]))


def fs_group_of(pod: Pod) -> int | None:
    """The group of the pod's volumes; None where it asks for none."""
    group = (pod.spec.security_context or {}).get("fsGroup")
    return int(group) if group is not None else None


def is_privileged(pod: Pod) -> bool:
    """Whether one of its containers asks for all rights; its sandbox then has to have them."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any((item.security_context or {}).get("privileged") for item in containers)


def shared_processes(pod: Pod) -> SharedProcesses:
    """Whose processes its containers ask to see."""
    if pod.spec.host_pid:
        return SharedProcesses.NODE
    return SharedProcesses.POD if pod.spec.share_process_namespace else SharedProcesses.NONE


def _mask(names: Iterable[str], where: str) -> int:
    mask = 0
    for name in names:
        short = str(name).upper().removeprefix("CAP_")
        if short == "ALL":
            return _ALL
        if short not in CAPABILITIES:
            raise NotCreatableError(
                f'{where}: "{name}" is no capability of Linux; name one of capabilities(7) '
                "without CAP_, or ALL"
            )
        mask |= 1 << CAPABILITIES.index(short)
    return mask
