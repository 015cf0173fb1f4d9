"""The volumes of a pod as plans of files, and where they appear; pure.

A process sees the machine's file system, so a volume cannot be put over ``/etc/app`` for one
container. It appears below the container's root instead (``$GRANGE_ROOT/etc/app``) and its own path
is in ``GRANGE_VOLUME_<NAME>``. See docs/reference/agent.md.
"""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from grange.agent import container_env, service_account
from grange.agent.container_env import EnvContext
from grange.agent.container_runtime import Mount, VolumeFile, VolumePlan
from grange.agent.errors import NotCreatableError
from grange.agent.references import Reference, Sources
from grange.api.kinds.pod import Container, Pod, Volume
from grange.api.meta import Document
from grange.api.pod_fields import TOKEN_MOUNT

_PLAIN_MODE = 0o644
_SECRET_MODE = 0o600
_VARIABLE = re.compile(r"[^A-Z0-9_]")


def plan(pod: Pod, sources: Sources, facts: EnvContext) -> tuple[VolumePlan, ...]:
    """Every volume of the pod.

    Raises:
        NotCreatableError: something that is not optional is missing, or the volume's type is not
            one that this agent knows.
    """
    return tuple(_plan(pod, volume, sources, facts) for volume in pod.spec.volumes)


def _plan(pod: Pod, volume: Volume, sources: Sources, facts: EnvContext) -> VolumePlan:
    where = f'volume "{volume.name}"'
    if volume.empty_dir is not None:
        return VolumePlan(volume.name, in_memory=volume.empty_dir.get("medium") == "Memory")
    if volume.host_path is not None:
        path = str(volume.host_path.get("path", ""))
        if not path.startswith("/"):
            raise NotCreatableError(f'{where}: hostPath "{path}" is not absolute')
        kind = str(volume.host_path.get("type") or "")
        return VolumePlan(volume.name, host_path=path, host_path_type=kind)
    if volume.config_map is not None:
        reference = Reference.of(volume.config_map, None)
        mode = _mode(volume.config_map, _PLAIN_MODE)
        files = _keys(volume.config_map, reference, sources, mode, where)
    elif volume.secret is not None:
        reference = Reference.of(None, volume.secret, name="secretName")
        mode = _mode(volume.secret, _SECRET_MODE)
        files = _keys(volume.secret, reference, sources, mode, where)
    elif volume.downward_api is not None:
        mode = _mode(volume.downward_api, _PLAIN_MODE)
        files = _downward(pod, volume.downward_api, facts, mode, where)
    elif volume.projected is not None:
        files = _projected(pod, volume.projected, sources, facts, where)
        if any(
            mount.name == volume.name and service_account.is_token(mount.mount_path)
            for container in (*pod.spec.init_containers, *pod.spec.containers)
            for mount in container.volume_mounts
        ):
            files = _with_kubeconfig(files, pod, facts)
    else:
        raise NotCreatableError(
            f"{where}: this agent knows emptyDir, hostPath, configMap, secret, downwardAPI and "
            "projected volumes"
        )
    return VolumePlan(volume.name, tuple(files), exact=True)


def _mode(source: Document, default: int) -> int:
    mode = source.get("defaultMode")
    return int(mode) if mode is not None else default


def _keys(
    source: Document, reference: Reference, sources: Sources, mode: int, where: str
) -> list[VolumeFile]:
    content = sources.content(reference, where)
    items = source.get("items")
    if not items:
        return [VolumeFile(_relative(key, where), content[key], mode) for key in sorted(content)]
    files = []
    for item in items:
        key = str(item.get("key", ""))
        if key in content:
            path = _relative(str(item.get("path", "")), where)
            files.append(VolumeFile(path, content[key], int(item.get("mode") or mode)))
        elif not reference.optional:
            raise NotCreatableError(f'{where}: there is no key "{key}" in {reference}')
    return files


def _downward(
    pod: Pod, source: Document, facts: EnvContext, mode: int, where: str
) -> list[VolumeFile]:
    files = []
    for item in source.get("items") or []:
        path = _relative(str(item.get("path", "")), where)
        if "fieldRef" in item:
            field = str(item["fieldRef"].get("fieldPath", ""))
            text = container_env.field_value(pod, facts, field, where)
        else:
            selector = item.get("resourceFieldRef") or {}
            text = container_env.resource_value(pod, pod.spec.containers[0], selector, facts, where)
        files.append(VolumeFile(path, text.encode(), int(item.get("mode") or mode)))
    return files


def _projected(
    pod: Pod, source: Document, sources: Sources, facts: EnvContext, where: str
) -> list[VolumeFile]:
    mode = _mode(source, _PLAIN_MODE)
    files: list[VolumeFile] = []
    for part in source.get("sources") or []:
        if "configMap" in part or "secret" in part:
            settings, secret = part.get("configMap"), part.get("secret")
            reference = Reference.of(settings, secret)
            files += _keys(settings or secret or {}, reference, sources, mode, where)
        elif "downwardAPI" in part:
            files += _downward(pod, part["downwardAPI"], facts, mode, where)
        elif "serviceAccountToken" in part:
            files.append(_token(part["serviceAccountToken"], sources, mode, where))
        else:
            raise NotCreatableError(
                f"{where}: {', '.join(sorted(part)) or 'an empty source'} cannot be projected here"
            )
    return files


def _token(projection: Document, sources: Sources, mode: int, where: str) -> VolumeFile:
    token = sources.tokens.get(service_account.asked(projection))
    if token is None:
        raise NotCreatableError(f"{where}: there is no token for its serviceAccountToken")
    path = _relative(str(projection.get("path", "")), where)
    return VolumeFile(path, token.encode(), mode)


def _with_kubeconfig(files: list[VolumeFile], pod: Pod, facts: EnvContext) -> list[VolumeFile]:
    """The files, and a kubeconfig if they are what a client needs in a cluster."""
    content = {file.path: file.content for file in files}
    modes = {file.path: file.mode for file in files}
    host, port = (facts.base.get(name) for name in (service_account.HOST, service_account.PORT))
    if "token" not in content or not host or not port:
        return files
    body = service_account.kubeconfig(
        host,
        port,
        ca=content.get("ca.crt", b""),
        token=content["token"].decode(),
        namespace=pod.metadata.namespace,
    )
    return [*files, VolumeFile(service_account.KUBECONFIG_FILE, body, modes["token"])]


def _relative(path: str, where: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise NotCreatableError(f'{where}: path "{path}" must stay inside the volume')
    return path


def mounts(pod: Pod, container: Container) -> tuple[Mount, ...]:
    """Where the container's volumes appear.

    Raises:
        NotCreatableError: a mount names no volume of the pod, leaves the root, or lies inside
            another mount.
    """
    known = {volume.name for volume in pod.spec.volumes}
    result = []
    for item in container.volume_mounts:
        where = f'container "{container.name}": mount of volume "{item.name}"'
        if item.name not in known:
            raise NotCreatableError(f"{where}: the pod has no such volume")
        for path in (item.mount_path, item.sub_path):
            if ".." in PurePosixPath(path).parts or (
                path.startswith("/") and path == item.sub_path
            ):
                raise NotCreatableError(f'{where}: path "{path}" must not lead out of its root')
        if not item.mount_path.strip("/"):
            raise NotCreatableError(f'{where}: mountPath "{item.mount_path}" names no place')
        result.append(
            Mount(item.name, item.mount_path, item.sub_path, item.read_only, item.sub_path_expr)
        )
    result = _without_hidden_token(result)
    _refuse_nested(container, result)
    return tuple(result)


def expanded(found: Iterable[Mount], env: Mapping[str, str], container: str) -> tuple[Mount, ...]:
    """The mounts with ``subPathExpr`` replaced by what it stands for.

    Args:
        found: from ``mounts``.
        env: of the container.
        container: its name, for messages.

    Raises:
        NotCreatableError: an expression names a variable that is not set, or leads out of its volume.
    """
    result = []
    for item in found:
        if not item.expression:
            result.append(item)
            continue
        where = f'container "{container}": subPathExpr of volume "{item.volume}"'
        if missing := container_env.undefined(item.expression, env):
            raise NotCreatableError(f"{where}: there is no variable {missing}; set it in env")
        path = container_env.expand(item.expression, env)
        if path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise NotCreatableError(f'{where}: path "{path}" must not lead out of its volume')
        result.append(replace(item, sub_path=path))
    return tuple(result)


def _without_hidden_token(found: list[Mount]) -> list[Mount]:
    """The mounts but the token's where it would lie inside another: its variable names it still."""
    token = PurePosixPath(TOKEN_MOUNT)
    others = [mount for mount in found if not service_account.is_token(mount.path)]
    hidden = any(
        token.is_relative_to(path) or path.is_relative_to(token)
        for path in (PurePosixPath("/", mount.path.strip("/")) for mount in others)
    )
    return others if hidden else found


def _refuse_nested(container: Container, found: Sequence[Mount]) -> None:
    paths = sorted(PurePosixPath("/", mount.path.strip("/")) for mount in found)
    for outer, inner in itertools.pairwise(paths):
        if inner.is_relative_to(outer):
            raise NotCreatableError(
                f'container "{container.name}": mounts {outer} and {inner} overlap; pods run as '
                "processes here, and one mount cannot be placed inside another"
            )


def variables(paths: Mapping[str, str], found: Iterable[Mount]) -> dict[str, str]:
    """``GRANGE_VOLUME_<NAME>`` for every mounted volume: the path of its directory."""
    return {
        "GRANGE_VOLUME_" + _VARIABLE.sub("_", mount.volume.upper()): paths[mount.volume]
        for mount in found
        if mount.volume in paths
    }
