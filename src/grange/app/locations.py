"""Where this program finds its files and its cluster: from the environment that it runs in."""

import os
from collections.abc import Mapping
from pathlib import Path

from grange.client.access import ServiceAccountAccess

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """``$GRANGE_DATA_DIR``, or ``grange`` in the user's data directory (XDG)."""
    if environment.get("GRANGE_DATA_DIR"):
        return Path(environment["GRANGE_DATA_DIR"])
    home = Path(environment.get("HOME", "/"))
    return Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "grange"


def kubeconfig_paths(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The files of ``$KUBECONFIG``, each once, or ``~/.kube/config``."""
    listed = environment.get("KUBECONFIG", "")
    if listed:
        found = dict.fromkeys(item for item in listed.split(os.pathsep) if item)
        return tuple(Path(item).expanduser() for item in found)
    return (Path(environment.get("HOME", "/")) / ".kube" / "config",)


def service_account(
    environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT
) -> ServiceAccountAccess | None:
    """The service account of a pod; None outside of a cluster.

    Args:
        environment: of this process.
        directory: where the service account is mounted.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    return ServiceAccountAccess(directory, host, port) if host and port else None
