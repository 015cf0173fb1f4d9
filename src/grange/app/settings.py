"""Settings of ``grange up``: one frozen value, checked when it is made.

An option of ``grange up`` is one field with a ``flag``: the command, ``--detach`` and the reference
page follow from it.
"""

import hashlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click

from grange.agent import eviction_thresholds
from grange.agent.runtime_choices import ISOLATION, NETWORKS
from grange.app import node_pools
from grange.app.flags import AbsolutePath, CommaSet, flag
from grange.app.node_pools import PoolSize, PoolSizeType
from grange.base import log
from grange.base.errors import GrangeError
from grange.base.plurals import counted

ROLES = ("scheduler", "controllers", "machines", "agent")
MAX_NODES = 1000
DEFAULT_PORT = 6443
QUEUE_POLICY = "BestEffortFIFO"  # the scheduler's default; agents do not import the scheduler


class SettingsError(GrangeError):
    """A setting is out of bounds; the message names it and what is allowed."""


class ListenAddress(NamedTuple):
    """A host and a TCP port; port 0 takes a free one."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class ListenAddressType(click.ParamType[ListenAddress]):
    """``HOST:PORT`` on the command line."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ListenAddress:
        """The address."""
        try:
            return parse_listen(value)
        except SettingsError as error:
            raise click.UsageError(str(error), ctx) from error


def check_dns_address(text: str) -> None:
    """Check the value of ``--cluster-dns``.

    Raises:
        SettingsError: it is no address.
    """
    try:
        if text:
            ipaddress.ip_address(text)
    except ValueError as error:
        raise SettingsError(
            f"--cluster-dns {text}: must be an address such as 10.96.0.10; pods ask it at port 53"
        ) from error


def check_thresholds(text: str) -> None:
    """Check the value of ``--eviction-hard``.

    Raises:
        SettingsError: it is malformed.
    """
    try:
        eviction_thresholds.parse(text)
    except eviction_thresholds.ThresholdError as error:
        raise SettingsError(f"--eviction-hard {error}") from error


def check_queue_policy(name: str) -> None:
    """Check the value of ``--queue-policy``.

    Raises:
        SettingsError: there is no such policy.
    """
    from grange.scheduler.gangs.queue_policies import POLICIES  # agents do without

    if name not in POLICIES:
        raise SettingsError(
            f"--queue-policy {name}: no such queue policy; there are {', '.join(POLICIES)}"
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one control plane.

    What a field with a ``flag`` means is in its help.

    Attributes:
        hidden_files: of the user; isolated pods do not see them.
        environment: variables of every pod's programs besides their own.
    """

    data_dir: Path = field(
        metadata=flag(
            "--data-dir",
            "Where everything is kept.",
            type=AbsolutePath(),
            metavar="DIR",
            shown_default="$GRANGE_DATA_DIR, or grange in the user's data directory",
        )
    )
    listen: ListenAddress = field(
        default=ListenAddress(),
        metadata=flag(
            "--listen",
            "Address of the API, over HTTPS; port 0 takes a free one.",
            type=ListenAddressType(),
            metavar="HOST:PORT",
        ),
    )
    tls_names: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--tls-san",
            "A name or address by which other machines know the server, may be repeated.",
            "It goes into the certificate. Listening beyond loopback needs one.",
            metavar="NAME",
        ),
    )
    insecure_listen: bool = field(
        default=False,
        metadata=flag(
            "--insecure-listen",
            "Listen beyond loopback without --tls-san; others cannot check the certificate.",
        ),
    )
    nodes: int = field(
        default=1,
        metadata=flag(
            "--nodes",
            "Present this machine as N nodes, which share its capacity.",
            "Fewer than the last time need `--remove-nodes`.",
            type=int,
            metavar="N",
            shown_default="as many as the last time or as the pools need, 1 at first",
        ),
    )
    pools: tuple[PoolSize, ...] = field(
        default=(),
        metadata=flag(
            "--pool",
            "Label COUNT nodes with pool=NAME, may be repeated.",
            "Pools of whole machines, for TestSessions and `grange lease`. Nodes keep their pool. "
            "The pools given replace those of the last time; COUNT 0 removes one.",
            type=PoolSizeType(),
            metavar="NAME=COUNT",
            shown_default="the pools of the last time",
        ),
    )
    remove_nodes: bool = field(
        default=False,
        metadata=flag(
            "--remove-nodes",
            "Allow fewer --nodes than the last time.",
            "The other nodes and their pods are deleted; with `--disable agent`, all nodes.",
        ),
    )
    disable: frozenset[str] = field(
        default=frozenset(),
        metadata=flag(
            "--disable",
            f"Roles not to run, separated by commas: {', '.join(ROLES)}.",
            type=CommaSet(ROLES),
            metavar="ROLE,…",
            shown_default="none",
        ),
    )
    runtime: str = field(
        default="process",
        metadata=flag("--runtime", "What runs containers.", metavar="NAME"),
    )
    cri_socket: str = field(
        default="",
        metadata=flag(
            "--cri-socket",
            "Socket of the container runtime for pods with images, or none.",
            "Such as `/run/containerd/containerd.sock`; see [containers](../how-to/containers.md).",
            metavar="PATH",
            shown_default="found by itself",
        ),
    )
    isolation: str = field(
        default="auto",
        metadata=flag(
            "--isolation",
            "What separates pods from each other and from this machine.",
            "With `namespaces` each container has its own processes, `/tmp`, mount paths and host name, and does "
            "not see the data directory; with `landlock` it does not reach the data directory. See "
            "[the agent](agent.md#isolation). `auto` is the first of these that the kernel allows.",
            type=click.Choice(ISOLATION),
        ),
    )
    network: str = field(
        default="auto",
        metadata=flag(
            "--network",
            "What a program gets that listens on all addresses.",
            "With `addresses` it is its pod's; with `shared` it is every address of the machine. With `replicas` it is "
            "the pod's for pods of a ReplicationController, so that they do not collide, and every address for others. "
            "With `netns`, as root, each pod has a network to itself. `auto` is `replicas` where the kernel allows it, "
            "else `shared`. See [the agent](agent.md#network).",
            type=click.Choice(NETWORKS),
        ),
    )
    eviction: str = field(
        default=eviction_thresholds.DEFAULT_THRESHOLDS,
        metadata=flag(
            "--eviction-hard",
            "Thresholds of disk pressure, as a kubelet's, or none.",
            "With less left on the disk of the data directory the node takes no pods and evicts some; see "
            "[disk pressure](agent.md#disk-pressure).",
            metavar="SIGNAL<AMOUNT,…",
        ),
    )
    host_paths: tuple[Path, ...] = field(
        default=(),
        metadata=flag(
            "--allow-host-path",
            "A directory of this machine that pods may have as hostPath, may be repeated.",
            "Pods that ask for another path wait with `CreateContainerConfigError`. Links are followed before it "
            "is compared.",
            type=AbsolutePath(),
            metavar="DIR",
            shown_default="any path",
        ),
    )
    cluster_dns: str = field(
        default="",
        metadata=flag(
            "--cluster-dns",
            "Address of a DNS server that isolated pods ask for names of Services.",
            "It serves the domain cluster.local from the API, as CoreDNS does, and listens on port 53. Without one the "
            "names are in files of each pod.",
            metavar="ADDRESS",
            shown_default="none",
        ),
    )
    scheduler_config: Path | None = field(
        default=None,
        metadata=flag(
            "--scheduler-config",
            "File with a KubeSchedulerConfiguration: profiles and plugins of the scheduler.",
            "See [scheduling](scheduler-configuration.md).",
            type=AbsolutePath(),
            metavar="FILE",
        ),
    )
    queue_policy: str = field(
        default=QUEUE_POLICY,
        metadata=flag(
            "--queue-policy",
            "Order in which gangs and pods wait for quota and nodes.",
            "See [gangs](gangs.md#who-comes-first).",
            metavar="NAME",
        ),
    )
    agent_version: str = field(
        default="",
        metadata=flag(
            "--agent-version",
            "Version of Grange that machines of node pools install, such as 1.2.0.",
            metavar="VERSION",
            shown_default="the newest",
        ),
    )
    agent_url: str = field(
        default="",
        metadata=flag(
            "--agent-url",
            "URL of the package that machines of node pools install.",
            "`{version}` stands for 1.2.0 and `{tag}` for v1.2.0 of `--agent-version`. Local machines run what "
            "is installed here.",
            metavar="URL",
            shown_default="by the package index that the machine uses",
        ),
    )
    no_context: bool = field(
        default=False,
        metadata=flag(
            "--no-context",
            "Add no context to your kubeconfig.",
            "Otherwise one is added (see below).",
            aliases=("--no-switch",),
        ),
    )
    alert_webhook: str = field(
        default="",
        metadata=flag(
            "--alert-webhook",
            "URL that alerts are POSTed to, as JSON.",
            "The variable keeps the URL, which may hold a secret, out of process lists.",
            metavar="URL",
            variable="GRANGE_ALERT_WEBHOOK",
            shown_default="$GRANGE_ALERT_WEBHOOK",
        ),
        repr=False,
    )
    audit_log: Path | None = field(
        default=None,
        metadata=flag(
            "--audit-log",
            "File that takes one JSON line for each request of the API.",
            "User, verb, object, code and duration; see [the audit log](audit.md#requests-of-the-api).",
            type=AbsolutePath(),
            metavar="FILE",
        ),
    )
    log_level: str = field(
        default="warning",
        metadata=flag("--log-level", "What is logged.", type=click.Choice(log.LEVELS)),
    )
    log_json: bool = field(
        default=False, metadata=flag("--log-json", "Log JSON lines instead of text.")
    )
    environment: Mapping[str, str] = field(default_factory=dict)
    hidden_files: tuple[Path, ...] = ()

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
        self._check_pools()
        check_thresholds(self.eviction)
        check_dns_address(self.cluster_dns)
        check_queue_policy(self.queue_policy)
        if not (self._is_loopback or self.tls_names or self.insecure_listen):
            raise SettingsError(
                f"--listen {self.host}: other machines could reach the API: name the server as they "
                "will, with --tls-san NAME, so that they can check its certificate; or accept that "
                "they cannot, with --insecure-listen"
            )

    def _check_pools(self) -> None:
        found: set[str] = set()
        for pool in self.pools:
            if pool.name in found:
                raise SettingsError(f"--pool {pool}: pool {pool.name} is given twice; give it once")
            found.add(pool.name)
        needed = node_pools.total(self.pools)
        if needed > self.nodes:
            raise SettingsError(
                f"--nodes {self.nodes}: the pools {node_pools.listed(self.pools)} take {counted(needed, 'node')}; "
                f"give --nodes {needed} or smaller pools"
            )

    @property
    def host(self) -> str:
        """The host to listen on."""
        return self.listen.host

    @property
    def port(self) -> int:
        """The port to listen on; 0 for a free one."""
        return self.listen.port

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
        return f"https://{ListenAddress(host, port)}"

    def address_outside(self, port: int) -> str:
        """The URL by which other machines reach the server on a port; empty if they do not."""
        host = self.tls_names[0] if self.tls_names else "" if self.wildcard else self.host
        if self._is_loopback or not host:
            return ""
        return f"https://{ListenAddress(host, port)}"

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


def parse_listen(text: str) -> ListenAddress:
    """``HOST:PORT``, ``:PORT``, ``HOST`` or ``[V6]:PORT`` as an address.

    Raises:
        SettingsError: it is none of these.
    """
    host, separator, port = text.rpartition(":")
    if not separator or (text.endswith("]") and text.startswith("[")):
        host, port = text, str(DEFAULT_PORT)
    try:
        return ListenAddress(host.strip("[]") or "127.0.0.1", int(port))
    except ValueError as error:
        raise SettingsError(
            f"--listen {text}: the port is not a number; write HOST:PORT, e.g. 127.0.0.1:6443"
        ) from error
