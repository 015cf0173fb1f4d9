"""The settings of ``grange agent``."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from grange.agent import eviction_thresholds
from grange.agent.runtime_choices import ISOLATION, NETWORKS
from grange.agent.runtime_table import RUNTIMES
from grange.api import names, x509_facts
from grange.api.bootstrap_tokens import parse as parse_token
from grange.api.kinds.node import Taint
from grange.api.validation.scheduling import EFFECTS
from grange.app import machine
from grange.app.flags import AbsolutePath, flag
from grange.app.settings import SettingsError, check_dns_address, check_thresholds
from grange.base import log

PORT = 10250
"""Of an agent's server, as of a kubelet."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of one agent.

    What a field means is in the help of its flag.
    """

    server: str = field(
        metadata=flag("--server", "URL of the API server.", metavar="URL"),
    )
    data_dir: Path = field(
        metadata=flag(
            "--data-dir", "Where keys and pods are kept.", type=AbsolutePath(), metavar="DIR"
        )
    )
    token: str = field(
        default="",
        metadata=flag(
            "--token",
            "Bootstrap token, until the machine has a certificate.",
            metavar="ID.SECRET",
            variable="GRANGE_JOIN_TOKEN",
            shown_default="$GRANGE_JOIN_TOKEN",
        ),
        repr=False,
    )
    ca_hash: str = field(
        default="",
        metadata=flag("--ca-hash", "Hash of the server's authority.", metavar="sha256:HEX"),
    )
    ca_file: Path | None = field(
        default=None,
        metadata=flag(
            "--ca-file",
            "Certificate of the server's authority.",
            type=AbsolutePath(),
            metavar="FILE",
        ),
    )
    node_name: str = field(
        default="",
        metadata=flag(
            "--node-name", "Name of the node.", metavar="NAME", shown_default="the host name"
        ),
    )
    address: str = field(
        default="",
        metadata=flag(
            "--address",
            "Address by which other machines reach this one.",
            metavar="IP",
            shown_default="the one that reaches the server",
        ),
    )
    port: int | None = field(
        default=None,
        metadata=flag(
            "--port",
            "Port of the agent's server; 0 takes a free one.",
            type=click.IntRange(0, 65535),
            metavar="PORT",
            shown_default=f"{PORT}, or a free one where that is taken",
        ),
    )
    labels: tuple[str, ...] = field(
        default=(), metadata=flag("--label", "Label of the node, may be repeated.", metavar="K=V")
    )
    taints: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--taint",
            "Taint of the node when it is registered first, may be repeated.",
            metavar="KEY=VALUE:EFFECT",
        ),
    )
    capacity: tuple[str, ...] = field(
        default=(),
        metadata=flag(
            "--capacity",
            "Amounts of resources, e.g. cpu=2,memory=4Gi.",
            metavar="NAME=AMOUNT,…",
            shown_default="the machine's",
        ),
    )
    leave_pods: bool = field(
        default=False, metadata=flag("--leave-pods", "Leave pods running when the agent stops.")
    )
    stop_grace_s: float = field(
        default=30.0,
        metadata=flag(
            "--stop-grace",
            "Seconds in which pods end when the agent stops.",
            type=click.FloatRange(0.0),
            metavar="SECONDS",
        ),
    )
    end_pods: bool = field(
        default=False,
        metadata=flag("--end-pods", "End the pods that an earlier agent left here, and return."),
    )
    runtime: str = field(
        default="process", metadata=flag("--runtime", "What runs containers.", metavar="NAME")
    )
    cri_socket: str = field(
        default="",
        metadata=flag(
            "--cri-socket",
            "Container runtime for images, as in `grange up`.",
            metavar="PATH",
            shown_default="found by itself",
        ),
    )
    isolation: str = field(
        default="auto",
        metadata=flag(
            "--isolation",
            "What separates pods, as in `grange up`.",
            type=click.Choice(ISOLATION),
        ),
    )
    network: str = field(
        default="auto",
        metadata=flag(
            "--network",
            "Addresses of programs, as in `grange up`.",
            type=click.Choice(NETWORKS),
        ),
    )
    eviction: str = field(
        default=eviction_thresholds.DEFAULT_THRESHOLDS,
        metadata=flag(
            "--eviction-hard",
            "Thresholds of disk pressure, as in `grange up`.",
            metavar="SIGNAL<AMOUNT,…",
        ),
    )
    host_paths: tuple[Path, ...] = field(
        default=(),
        metadata=flag(
            "--allow-host-path",
            "A directory that pods may have as hostPath, as in `grange up`.",
            type=AbsolutePath(),
            metavar="DIR",
            shown_default="any path",
        ),
    )
    cluster_dns: str = field(
        default="",
        metadata=flag(
            "--cluster-dns",
            "Address of a DNS server that isolated pods ask for names of Services, as in `grange up`.",
            metavar="ADDRESS",
            shown_default="none",
        ),
    )
    log_level: str = field(
        default="warning",
        metadata=flag("--log-level", "What is logged.", type=click.Choice(log.LEVELS)),
    )

    def __post_init__(self) -> None:
        if not self.server.startswith("https://"):
            raise SettingsError(f"--server {self.server}: must be a URL such as https://HOST:6443")
        if self.runtime not in RUNTIMES:
            known = ", ".join(RUNTIMES)
            raise SettingsError(f"--runtime {self.runtime}: no such runtime; there is {known}")
        if self.token and parse_token(self.token) is None:
            raise SettingsError("--token: must be ID.SECRET, as grange token create prints it")
        if self.token and not (self.ca_hash or self.ca_file):
            raise SettingsError("--token: needs --ca-hash or --ca-file, to know the server by")
        check_thresholds(self.eviction)
        check_dns_address(self.cluster_dns)
        if self.ca_hash and not x509_facts.is_pin(self.ca_hash):
            raise SettingsError("--ca-hash: must be sha256: and 64 hexadecimal digits")
        if why := names.check_dns_subdomain(self.name):
            raise SettingsError(f"--node-name {self.name}: {why}")

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node_name or machine.node_name(platform.node())

    def node_taints(self) -> tuple[Taint, ...]:
        """The taints of the node.

        Raises:
            SettingsError: one is malformed.
        """
        found = []
        for text in self.taints:
            pair, colon, effect = text.rpartition(":")
            key, _, value = pair.partition("=")
            if not (colon and key and effect in EFFECTS):
                raise SettingsError(
                    f"--taint {text}: must be KEY=VALUE:EFFECT, the effect one of {', '.join(EFFECTS)}"
                )
            found.append(Taint(key, effect, value))
        return tuple(found)

    def amounts(self) -> dict[str, str]:
        """The capacity of the node.

        Raises:
            SettingsError: an amount is malformed.
        """
        given = pairs("--capacity", ",".join(self.capacity).split(",") if self.capacity else ())
        return {**machine.shares(1, self.data_dir)[0].capacity(), **given}


def pairs(option: str, items: tuple[str, ...] | list[str]) -> Mapping[str, str]:
    """What options of the form NAME=VALUE give.

    Raises:
        SettingsError: one has another form.
    """
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise SettingsError(f"{option} {item}: must be NAME=VALUE")
        found[key] = value
    return found
