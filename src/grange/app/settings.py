"""Settings of ``grange up``: one frozen value, checked when it is made."""

import hashlib
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grange.base.errors import GrangeError
from grange.client.access import ServiceAccount

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ROLES = ("scheduler", "controllers", "machines", "agent")
MAX_NODES = 1000


class SettingsError(GrangeError):
    """A setting is out of bounds; the message names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one control plane is told.

    Attributes:
        data_dir: where everything it keeps lives; made if missing.
        host: address to listen on; loopback by default.
        port: TCP port; 0 takes a free one.
        nodes: how many nodes the machine is presented as; they share its capacity.
        disable: roles that are not run here.
        log_level: debug, info, warning or error.
        log_json: JSON lines instead of text.
        alert_webhook: URL that alerts are POSTed to; empty for none. May hold a secret.
        scheduler_config: the scheduler's configuration file; None for the default profile.
        tls_names: further names and addresses by which clients know the server.
        insecure_listen: listen on other addresses than loopback without any of ``tls_names``.
        environment: what every pod's programs find in their environment beside their own.
    """

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 6443
    nodes: int = 1
    disable: frozenset[str] = field(default_factory=frozenset)
    log_level: str = "warning"
    log_json: bool = False
    alert_webhook: str = field(default="", repr=False)
    scheduler_config: Path | None = None
    tls_names: tuple[str, ...] = ()
    insecure_listen: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(self.disable.difference(ROLES))
        if unknown:
            raise SettingsError(
                f"--disable {','.join(unknown)}: no such role; there are {', '.join(ROLES)}"
            )
        if not 0 <= self.port <= 65535:
            raise SettingsError(f"--listen: port {self.port} is not between 0 and 65535")
        if not 1 <= self.nodes <= MAX_NODES:
            raise SettingsError(f"--nodes {self.nodes}: between 1 and {MAX_NODES} are possible")

        if not (self._is_loopback or self.tls_names or self.insecure_listen):
            raise SettingsError(
                f"--listen {self.host}: other machines could reach the API: name the server as they "
                "will, with --tls-san NAME, so that they can check its certificate; or accept that "
                "they cannot, with --insecure-listen"
            )

    @property
    def wildcard(self) -> bool:
        """Whether it listens on all addresses."""
        return self.host in {"0.0.0.0", "::", ""}  # noqa: S104  compared, not bound

    @property
    def _is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def address(self, port: int) -> str:
        """The URL by which programs on this machine reach the server on a port."""
        host = self.host
        if self.wildcard:
            host = "::1" if host == "::" else "127.0.0.1"
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    @property
    def identity(self) -> str:
        """Eight hexadecimal digits that differ from one data directory to the next."""
        return hashlib.sha256(str(self.data_dir.resolve()).encode()).hexdigest()[:8]

    @property
    def context(self) -> str:
        """The name that the data directory gives to its context in kubeconfigs."""
        return self.data_dir.name or "grange"

    def runs(self, role: str) -> bool:
        """Whether the role is run here."""
        return role not in self.disable


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``:PORT``, ``HOST`` or ``[V6]:PORT`` as host and port.

    Raises:
        SettingsError: it is none of these.
    """
    host, separator, port = text.rpartition(":")
    if not separator or (text.endswith("]") and text.startswith("[")):
        host, port = text, "6443"
    try:
        return host.strip("[]") or "127.0.0.1", int(port)
    except ValueError as error:
        raise SettingsError(f"--listen {text}: write HOST:PORT, e.g. 127.0.0.1:6443") from error


def default_data_dir(environment: Mapping[str, str]) -> Path:
    """``$GRANGE_DATA_DIR``, or ``grange`` in the user's data directory (XDG)."""
    if environment.get("GRANGE_DATA_DIR"):
        return Path(environment["GRANGE_DATA_DIR"])
    home = Path(environment.get("HOME", "/"))
    return Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share") / "grange"


def kubeconfig_paths(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """The files of ``$KUBECONFIG``, or ``~/.kube/config``."""
    listed = environment.get("KUBECONFIG", "")
    if listed:
        return tuple(Path(item) for item in listed.split(os.pathsep) if item)
    return (Path(environment.get("HOME", "/")) / ".kube" / "config",)


def service_account(
    environment: Mapping[str, str], directory: Path = SERVICE_ACCOUNT
) -> ServiceAccount | None:
    """What the kubelet gives to a pod; None outside of a cluster.

    Args:
        environment: of this process.
        directory: where the service account is mounted.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    return ServiceAccount(directory, host, port) if host and port else None
