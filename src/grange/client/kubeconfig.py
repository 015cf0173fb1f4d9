"""kubeconfig: where the API server is and who we are, read and written as kubectl does.

``load`` turns a list of files and a context into one ``Access``; ``write``, ``merge`` and
``remove`` keep Grange's own context in a file without touching the others. Nothing here reads the
environment: paths and addresses are arguments.
"""

import base64
import binascii
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from grange.api.meta import Document
from grange.client.access import Access, ServiceAccount
from grange.client.errors import KubeconfigError
from grange.client.kubeconfig_edit import edited
from grange.client.kubeconfig_entries import (
    KINDS,
    entries,
    free_name,
    home_of,
    mark_of,
    with_context,
)
from grange.client.private_file import locked, replace

__all__ = [
    "Access",
    "KubeconfigError",
    "Merged",
    "context_names",
    "current_home",
    "find",
    "home_of",
    "in_cluster",
    "load",
    "merge",
    "owner_of",
    "paths_of",
    "remove",
    "write",
]


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    proxy_url: str = ""


class _User(msgspec.Struct, rename="kebab"):
    token: str = ""
    token_file: str = msgspec.field(name="tokenFile", default="")
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    username: str = ""
    exec: dict[str, Any] | None = None
    auth_provider: dict[str, Any] | None = None


class _Context(msgspec.Struct):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context | None = None


class _Config(msgspec.Struct, rename="kebab"):
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None
    current_context: str | None = None


@dataclass(frozen=True, slots=True)
class _Merged:
    """Entries by name with the file that they come from: the first file to have one wins."""

    clusters: dict[str, tuple[Path, _Cluster]] = field(default_factory=dict)
    users: dict[str, tuple[Path, _User]] = field(default_factory=dict)
    contexts: dict[str, tuple[Path, _Context]] = field(default_factory=dict)


V = TypeVar("V")


# --- reading ----------------------------------------------------------------------------------


def paths_of(value: str) -> list[Path]:
    """The files of a ``KUBECONFIG`` value: separated as PATH is, empty and repeated ones dropped."""
    parts = dict.fromkeys(part for part in value.split(os.pathsep) if part)
    return [Path(part).expanduser() for part in parts]


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
        document = _read(path)
        if document is None:
            continue
        found.append(path)
        config = _convert(path, document)
        current = current or config.current_context or ""
        for cluster in config.clusters or ():
            merged.clusters.setdefault(cluster.name, (path, cluster.cluster or _Cluster()))
        for user in config.users or ():
            merged.users.setdefault(user.name, (path, user.user or _User()))
        for item in config.contexts or ():
            merged.contexts.setdefault(item.name, (path, item.context or _Context()))
    if not found:
        names = ", ".join(str(path) for path in paths) or "no path given"
        raise KubeconfigError(f"no kubeconfig found ({names}); run `grange up` or name another")
    return _access(merged, context or current, found)


def context_names(paths: Sequence[Path]) -> list[str]:
    """The names of the contexts of some files; missing files are skipped.

    Raises:
        KubeconfigError: a file cannot be read, or is no kubeconfig.
    """
    configs = (_convert(path, _read(path) or {}) for path in paths)
    return list(dict.fromkeys(item.name for one in configs for item in one.contexts or ()))


def find(paths: Sequence[Path], context: str, account: ServiceAccount | None) -> Access:
    """The access that a context describes; inside a cluster, where there is no kubeconfig, the pod's.

    A kubeconfig counts before the service account, as it does for kubectl, so that a pod can be told
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
    """Whether there is a file; one that may not be looked at is there, and ``load`` says so."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _read(path: Path) -> Document | None:
    """The file as a mapping; None where there is no file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot read it: {error.strerror or error}") from error
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # Only the place: the text around it may hold a token.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise KubeconfigError(f"{path}: not YAML{where}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise KubeconfigError(f"{path}: not a kubeconfig: the top level must be a mapping")
    return document


def _convert(path: Path, document: Document) -> _Config:
    try:
        return msgspec.convert(document, _Config)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        name = where.strip("`").removeprefix("$.")
        message = what.replace("`", "").replace("Object", "It")
        raise KubeconfigError(f"{path}: {name or 'the top level'}: {message}") from None


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
    user_path, user = (path, _User())
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


def _refuse_unsupported(user: _User, where: str) -> None:
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
    """A path in a kubeconfig is relative to the file that says it."""
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


# --- writing ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of a merge.

    Attributes:
        context: the context's name.
        current: whether it is the current context.
    """

    context: str
    current: bool


def write(path: Path, name: str, server: str, ca_pem: bytes, token: str, *, home: str = "") -> None:
    """Write a file with this one context, current; replaces what is there. Mode 0600.

    Raises:
        KubeconfigError: it cannot be written.
    """
    parts = entries(name, server, ca_pem, token, home)
    replace(path, _dump(with_context({}, name, parts)))


def merge(  # noqa: PLR0913  an entry's parts, and where it goes
    path: Path,
    name: str,
    server: str,
    ca_pem: bytes,
    token: str,
    *,
    switch: bool,
    home: str = "",
    others: Sequence[Path] = (),
) -> Merged:
    """Put a context into a file that may hold others, under its lock.

    Its entries carry the directory that they are of, and only entries of the same directory are
    replaced: where the name is somebody else's, in any of the files, another one is made from it.
    Comments and order of the rest of the file stay.

    Args:
        path: the file; made if missing.
        name: of context, cluster and user, if it is free.
        server: base URL.
        ca_pem: the certificate to trust.
        token: bearer token.
        switch: also make it the current context. It becomes so anyway if there is none, or if the
            current one was written by Grange, too.
        home: the data directory; says whose the entries are.
        others: further files that are read together with this one.

    Raises:
        KubeconfigError: the file is no kubeconfig, locked by another program, or not writable; no
            name is free; comments would be lost. It stays as it was.
    """
    with locked(path):
        text, document = _text_of(path), _read(path) or {}
        _convert(path, document)
        beside = [_read(other) or {} for other in others if other != path]
        name = free_name(path, name, home, (document, *beside))
        wanted = with_context(document, name, entries(name, server, ca_pem, token, home))
        current = document.get("current-context")
        owned = current is not None and home_of(document, str(current)) is not None
        if current and not switch and not owned:
            wanted["current-context"] = current
        if wanted != document:
            replace(path, _rewritten(path, text, document, wanted))
        return Merged(name, wanted["current-context"] == name)


def remove(path: Path, name: str) -> None:
    """Take Grange's context of this name, its cluster and its user out of a file, if they are there.

    If it was the current context, there is none afterwards.

    Raises:
        KubeconfigError: as for ``merge``.
    """
    if not path.exists():
        return
    with locked(path):
        document = _read(path)
        if document is None:
            return
        _convert(path, document)
        changed = dict(document)
        for kind in KINDS:
            items = document.get(f"{kind}s") or ()
            changed[f"{kind}s"] = [
                item for item in items if item["name"] != name or mark_of(item.get(kind)) is None
            ]
        if document.get("current-context") == name and home_of(document, name) is not None:
            changed["current-context"] = ""
        if any(changed[key] != (document.get(key) or []) for key in changed):
            replace(path, _rewritten(path, _text_of(path), document, changed))


def owner_of(paths: Sequence[Path], name: str) -> Path:
    """Which of several files to write a context to: the one that holds it, else the first.

    Raises:
        KubeconfigError: a file cannot be read.
        ValueError: no paths.
    """
    for path in paths:
        document = _read(path) or {}
        config = _convert(path, document)
        if any(item.name == name for item in config.contexts or ()):
            return path
    if not paths:
        raise ValueError("no paths")
    return paths[0]


def current_home(paths: Sequence[Path]) -> tuple[str, str | None]:
    """The current context of some files, and the data directory that Grange wrote it for, if it did.

    Raises:
        KubeconfigError: a file cannot be read.
    """
    documents = [_read(path) or {} for path in paths]
    current = next((str(d["current-context"]) for d in documents if d.get("current-context")), "")
    for document in documents:
        if any(item.get("name") == current for item in document.get("contexts") or ()):
            return current, home_of(document, current)
    return current, None


def _text_of(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise KubeconfigError(f"{path}: cannot read it: {error}") from error


def _rewritten(path: Path, text: str, before: Document, wanted: Document) -> bytes:
    """The file with what changed; written anew only where that loses no comment."""
    result = edited(text, before, wanted) if before else None
    if result is not None:
        return result.encode()
    if "#" in text:
        raise KubeconfigError(
            f"{path}: it is written in a style that cannot be extended without losing its comments; "
            "name another file in KUBECONFIG, or leave it alone with --no-context"
        )
    return _dump(wanted)


def _dump(document: Document) -> bytes:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=False).encode()
