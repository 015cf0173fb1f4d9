"""``grange agent``: this machine as a node of a control plane elsewhere."""

import asyncio
import contextlib
import fcntl
import os
import platform
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from grange.agent import service_account
from grange.agent.config import NodeConfig
from grange.agent.runtime_table import RUNTIMES, RuntimeOptions
from grange.agent.service import NodeAgent, end_other_nodes
from grange.api import names, x509_facts
from grange.api.bootstrap_tokens import parse as parse_token
from grange.app import flags, machine
from grange.app.certificate_process import CertificateProcess
from grange.app.datadir import DataDirectoryUnusable, make_directory
from grange.app.flags import AbsolutePath, flag
from grange.app.node_credentials import JoinTarget, NodeCredentials
from grange.app.node_renewal import NodeRenewal
from grange.app.settings import SettingsError
from grange.base import log
from grange.base.clock import Clock, LoopClock
from grange.base.metrics import registry
from grange.base.offload import Threads
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.cli.command import Command
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory

_STOP_GRACE_S = 30.0
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The settings of one agent.

    Attributes:
        server: URL of the API server.
        data_dir: where keys and pods are kept.
        token: bootstrap token; needed until the machine has a certificate.
        ca_hash: pin of the server's authority.
        ca_file: certificate of the authority.
        node_name: of the Node.
        address: by which other machines reach this one.
        labels: of the Node, ``KEY=VALUE``.
        capacity: amounts of resources that differ from the machine's, ``NAME=AMOUNT``.
        leave_pods: pods go on when the agent stops.
        runtime, isolation, network: as in ``grange up``.
        log_level: what is logged.
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
    labels: tuple[str, ...] = field(
        default=(), metadata=flag("--label", "Label of the node, may be repeated.", metavar="K=V")
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
    runtime: str = field(
        default="process", metadata=flag("--runtime", "What runs containers.", metavar="NAME")
    )
    isolation: str = field(
        default="none",
        metadata=flag("--isolation", "What separates pods, as in `grange up`.", metavar="NAME"),
    )
    network: str = field(
        default="shared",
        metadata=flag("--network", "Addresses of programs, as in `grange up`.", metavar="NAME"),
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
        if self.ca_hash and not x509_facts.is_pin(self.ca_hash):
            raise SettingsError("--ca-hash: must be sha256: and 64 hexadecimal digits")
        if why := names.check_dns_subdomain(self.name):
            raise SettingsError(f"--node-name {self.name}: {why}")

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.node_name or machine.node_name(platform.node())

    def amounts(self) -> dict[str, str]:
        """The capacity of the node.

        Raises:
            SettingsError: an amount is malformed.
        """
        given = _pairs("--capacity", ",".join(self.capacity).split(",") if self.capacity else ())
        return {**machine.shares(1)[0].capacity(), **given}


def _pairs(option: str, items: tuple[str, ...] | list[str]) -> Mapping[str, str]:
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not (key and equals):
            raise SettingsError(f"{option} {item}: must be NAME=VALUE")
        found[key] = value
    return found


@click.command(
    cls=Command,
    examples=(
        "grange agent --server https://10.0.0.1:6443 --token ID.SECRET --ca-hash sha256:HEX",
    ),
)
@flags.options(AgentSettings)
def command(**given: Any) -> None:
    """Join this machine to a control plane, and run the pods that it is given."""
    try:
        found = flags.given(AgentSettings, given)
        found.setdefault("server", "")
        found.setdefault("data_dir", _default_data_dir())
        settings = AgentSettings(**found)
        settings.amounts()
        _pairs("--label", settings.labels)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    log.configure(level=settings.log_level, json_lines=False)
    import uvloop

    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(serve(settings))


def _default_data_dir() -> Path:
    home = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return home / "grange-agent"


async def serve(settings: AgentSettings) -> None:
    """Run the agent until SIGINT or SIGTERM.

    Raises:
        JoinFailed: the machine cannot join.
        DataDirectoryUnusable: another agent uses the directory.
    """
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    clock, logger = LoopClock(), log.Logger("agent").bind(node=settings.name)
    make_directory(settings.data_dir)
    with _locked(settings.data_dir):
        offload = Threads("agent-disk")
        try:
            credentials = NodeCredentials(settings.data_dir, CertificateProcess(offload), clock)
            target = JoinTarget(
                settings.server,
                settings.name,
                settings.token,
                settings.ca_hash,
                settings.ca_file,
            )
            if not credentials.has_certificate():
                await credentials.join(target)
            context = credentials.context()
            transport = HTTP(settings.server, ssl_context=context, clock=clock)
            client = Client(transport, clock=clock)
            renewal = NodeRenewal(
                credentials.file,
                context,
                lambda: credentials.renew(client, target),
                clock=clock,
                rng=Stream.from_system(),
                log=logger,
            )
            try:
                async with Nursery("agent") as nursery:
                    nursery.start(
                        supervise("renewal", renewal.run, clock=clock, log=logger), name="renewal"
                    )
                    await _run(settings, client, clock, logger, offload, stop)
                    nursery.cancel()
            finally:
                await transport.close()
        finally:
            offload.close()


async def _run(
    settings: AgentSettings,
    client: Client,
    clock: Clock,
    logger: log.Logger,
    offload: Threads,
    stop: asyncio.Event,
) -> None:
    url = urlsplit(settings.server)
    host, port = url.hostname or "", url.port or 443
    rng, metrics = Stream.from_system(), registry()
    informers = InformerFactory(
        client, clock=clock, rng=rng.fork("informers"), log=logger, metrics=metrics
    )
    deps = Deps(client, informers, clock, rng, logger, metrics)
    options = RuntimeOptions(
        settings.data_dir, isolation=settings.isolation, network=settings.network
    )
    runtime = RUNTIMES[settings.runtime](options, clock=clock, log=logger, offload=offload)
    async with runtime:
        await end_other_nodes(runtime, frozenset({settings.name}), logger)
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        config = NodeConfig(
            name=settings.name,
            capacity=settings.amounts(),
            labels=_pairs("--label", settings.labels),
            pod_network=str(runtime.pod_network or ""),
            host_ip=settings.address or await offload.run(lambda: _local_address(host, port)),
            environment={**kept, **service_account.api_variables(host, port)},
            runtime=settings.runtime,
            isolation=runtime.isolation,
        )
        agent = NodeAgent(deps, config, runtime)
        async with Nursery("agent") as nursery:
            nursery.start(supervise("agent", agent.run, clock=clock, log=logger), name="agent")
            nursery.start(informers.run(), name="informers")
            click.echo(f"node {settings.name} of {settings.server}; stop with Ctrl-C or SIGTERM")
            await stop.wait()
            nursery.cancel()
        if not settings.leave_pods:
            click.echo("stopping: pods end first", err=True)
            await runtime.stop_all(_STOP_GRACE_S)


def _local_address(host: str, port: int) -> str:
    """The address of this machine from which a server is reached; nothing is sent."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"  # the network is away, and the Node is registered later


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep other agents from a data directory; the lock ends with the process."""
    with (directory / "agent.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirectoryUnusable(
                f"another agent uses {directory}: stop it, or choose another --data-dir"
            ) from error
        yield
