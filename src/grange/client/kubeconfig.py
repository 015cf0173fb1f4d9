"""How to reach a cluster: the access that kubeconfigs or a pod's service account describe.

Nothing here reads the environment: paths and addresses are arguments.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from grange.client.access import Access, ServiceAccountAccess
from grange.client.errors import KubeconfigError
from grange.client.kubeconfig_file import (
    ClusterEntry,
    ContextEntry,
    UserEntry,
    parse,
    read,
)


@dataclass(frozen=True, slots=True)
class _Merged:
    """Entries by name with the file that they come from: the first file to have one wins."""

    clusters: dict[str, tuple[Path, ClusterEntry]] = field(default_factory=dict)
    users: dict[str, tuple[Path, UserEntry]] = field(default_factory=dict)
    contexts: dict[str, tuple[Path, ContextEntry]] = field(default_factory=dict)


V = TypeVar("V")


def load(paths: Sequence[Path], context: str = "") -> Access:
    """The access that a context describes.

    Args:
        paths: the files; missing ones are skipped, and of several entries of one name the first
            counts.
        context: its name; empty is the current one.

    Raises:
        KubeconfigError: no file, no such context, a broken entry; names file and field.
    """
    merged = _Merged()
    current = ""
    found = []
    for path in paths:
        document = read(path)
        if document is None:
            continue
        found.append(path)
        config = parse(path, document)
        current = current or config.current_context or ""
        for cluster in config.clusters or ():
            merged.clusters.setdefault(cluster.name, (path, cluster.cluster or ClusterEntry()))
        for user in config.users or ():
            merged.users.setdefault(user.name, (path, user.user or UserEntry()))
        for item in config.contexts or ():
            merged.contexts.setdefault(item.name, (path, item.context or ContextEntry()))
    if not found:
        names = ", ".join(str(path) for path in paths) or "no path given"
        raise KubeconfigError(f"no kubeconfig found ({names}); run `grange up` or name another")
    return _access(merged, context or current, found)


def context_names(paths: Sequence[Path]) -> list[str]:
    """The names of the contexts of some files; missing files are skipped.

    Raises:
        KubeconfigError: a file cannot be read, or is no kubeconfig.
    """
    configs = (parse(path, read(path) or {}) for path in paths)
    return list(dict.fromkeys(item.name for one in configs for item in one.contexts or ()))


def find(paths: Sequence[Path], context: str, account: ServiceAccountAccess | None) -> Access:
    """The access that a context describes; inside a cluster, where there is no kubeconfig, the pod's.

    A kubeconfig counts before the service account, as it does for kubectl, so that a pod can be given
    to work for another cluster.

    Args:
        paths: as for ``load``.
        context: as for ``load``; one that is named is looked for in the files only.
        account: what a pod has; None outside of a cluster.

    Raises:
        KubeconfigError: as ``load`` and ``in_cluster``.
    """
    if account is None or context or any(map(_is_there, paths)):
        return load(paths, context)
    return in_cluster(account.directory, account.host, account.port)


def in_cluster(directory: Path, host: str, port: str) -> Access:
    """The access of a pod: service account files and the address from its environment.

    Args:
        directory: the mounted service account (``token``, ``ca.crt``, ``namespace``).
        host: ``KUBERNETES_SERVICE_HOST``.
        port: ``KUBERNETES_SERVICE_PORT``.

    Raises:
        KubeconfigError: a file is missing or the address is empty.
    """
    if not host or not port:
        raise KubeconfigError(
            "not inside a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
        )
    token_file = directory / "token"
    _bytes_of(token_file, "the service account's token")
    namespace_file = directory / "namespace"
    namespace = "default"
    if namespace_file.is_file():
        namespace = _bytes_of(namespace_file, "the pod's namespace").decode().strip() or namespace
    address = f"[{host}]" if ":" in host else host
    return Access(
        server=f"https://{address}:{port}",
        namespace=namespace,
        ca_pem=_bytes_of(directory / "ca.crt", "the cluster's CA"),
        token_file=token_file,
    )


def _is_there(path: Path) -> bool:
    """Whether there is a file; one that may not be looked at is there, and ``load`` reports it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _access(merged: _Merged, name: str, paths: Sequence[Path]) -> Access:
    files = ", ".join(str(path) for path in paths)
    if not name:
        raise KubeconfigError(f"{files}: current-context: not set; name a context")
    path, context = _entry(merged.contexts, name, f"{files}: contexts", "context")
    where = f"{path}: contexts[{name}].context"
    cluster_path, cluster = _entry(merged.clusters, context.cluster, f"{where}.cluster", "cluster")
    cluster_at = f"{cluster_path}: clusters[{context.cluster}].cluster"
    if not cluster.server.startswith(("http://", "https://")):
        raise KubeconfigError(f"{cluster_at}.server: {cluster.server!r} is not an http(s) URL")
    if cluster.proxy_url:
        raise KubeconfigError(f"{cluster_at}.proxy-url: proxies are not supported")
    user_path, user = (path, UserEntry())
    if context.user:
        user_path, user = _entry(merged.users, context.user, f"{where}.user", "user")
    user_at = f"{user_path}: users[{context.user}].user"
    _refuse_unsupported(user, user_at)
    certificate = _material(
        user_path,
        user.client_certificate_data,
        user.client_certificate,
        f"{user_at}.client-certificate",
    )
    key = _material(user_path, user.client_key_data, user.client_key, f"{user_at}.client-key")
    if bool(certificate) != bool(key):
        lacking = "client-key" if certificate else "client-certificate"
        raise KubeconfigError(f"{user_at}.{lacking}: missing; a certificate needs its key")
    return Access(
        server=cluster.server.rstrip("/"),
        context=name,
        namespace=context.namespace or "default",
        ca_pem=_material(
            cluster_path,
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            f"{cluster_at}.certificate-authority",
        ),
        token=user.token,
        token_file=_beside(user_path, user.token_file) if user.token_file else None,
        certificate_pem=certificate,
        key_pem=key,
        server_name=cluster.tls_server_name,
        insecure=cluster.insecure_skip_tls_verify,
    )


def _refuse_unsupported(user: UserEntry, where: str) -> None:
    unsupported = {
        "exec": user.exec is not None,
        "auth-provider": user.auth_provider is not None,
        "username": bool(user.username),
    }
    for name, used in unsupported.items():
        if used and not user.token:
            raise KubeconfigError(
                f"{where}.{name}: not supported; use a token or a client certificate"
            )


def _entry(entries: dict[str, tuple[Path, V]], name: str, where: str, what: str) -> tuple[Path, V]:
    found = entries.get(name)
    if found is None:
        known = ", ".join(entries) or "none"
        raise KubeconfigError(f"{where}: no {what} named {name!r} (there is: {known})")
    return found


def _beside(path: Path, name: str) -> Path:
    """A path in a kubeconfig is relative to the file that contains it."""
    return path.parent / Path(name).expanduser()


def _material(path: Path, data: str, file: str, where: str) -> bytes:
    """Inline data, or the content of the file; inline wins, as in kubectl."""
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise KubeconfigError(f"{where}-data: not base64") from None
    return _bytes_of(_beside(path, file), where) if file else b""


def _bytes_of(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise KubeconfigError(f"{where}: cannot read {path}: {error.strerror or error}") from error
