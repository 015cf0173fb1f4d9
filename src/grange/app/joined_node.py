"""The node of an agent: its credentials, its server, and the pods that it is given.

Apart from ``node_agent`` because it loads most of what an agent needs.
"""

import asyncio
import contextlib
import functools
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import urlsplit

import click

from grange.agent import interrupted_runs, service_account
from grange.agent.agent_streams import AgentStreams
from grange.agent.config import NodeConfig
from grange.agent.container_logs import AgentLogs
from grange.agent.container_runtime import ContainerID
from grange.agent.node_runtime import NodeRuntime
from grange.agent.pod_tunnels import PodTunnels
from grange.agent.runtime_choices import NETNS
from grange.agent.runtime_options import RuntimeOptions
from grange.agent.runtime_table import RUNTIMES
from grange.agent.service import NodeAgent, end_other_nodes
from grange.agent.service_proxy.proxy import ServiceProxy
from grange.agent.service_proxy.routes import Endpoint
from grange.agent.usage_sampler import UsageSampler
from grange.api.kinds import SERVICE
from grange.api.pod_addresses import LOOPBACK
from grange.app import machine
from grange.app.agent_endpoints import AgentEndpoints
from grange.app.agent_server import serve_agent
from grange.app.agent_settings import AgentSettings, pairs
from grange.app.certificate_process import CertificateProcess
from grange.app.node_connections import NodeConnections
from grange.app.node_credentials import JoinFailed, JoinTarget, NodeCredentials
from grange.app.node_renewal import NodeRenewal
from grange.app.node_revocations import NodeRevocations
from grange.app.tunnel_dialer import TunnelDialer
from grange.app.version_skew import check_version
from grange.base import log
from grange.base.clock import Clock
from grange.base.metrics import registry
from grange.base.offload import Threads
from grange.base.ratelimited import RateLimitedLogger
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.client.client import Client
from grange.client.transports.http_transport import HTTP
from grange.reconcile.deps import Deps
from grange.reconcile.informer import InformerFactory

_ADDRESS_RETRY_S = 2.0
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ")


async def serve_node(
    settings: AgentSettings,
    process: CertificateProcess,
    stop: asyncio.Event,
    clock: Clock,
    logger: log.Logger,
    offload: Threads,
) -> None:
    """Join if that is to be done, and run pods until ``stop`` is set.

    Raises:
        JoinFailed: the machine cannot join.
        SettingsError: the agent's server cannot listen.
    """
    credentials = NodeCredentials(settings.data_dir, process, clock)
    target = JoinTarget(
        settings.server,
        settings.name,
        settings.token,
        settings.ca_hash,
        settings.ca_file,
    )
    joins = not credentials.has_certificate(settings.name)
    if joins:
        await credentials.join(target)
    context = credentials.context()
    transport = HTTP(settings.server, ssl_context=context, clock=clock)
    if not joins and (why := await check_version(transport, clock)):
        await transport.close()
        raise JoinFailed(why)
    joined = JoinedNode(settings, transport, context, clock, logger, offload)
    try:
        async with Nursery("agent") as nursery:
            joined.renew(nursery, credentials, target)
            await joined.run(stop)
            nursery.cancel()
    finally:
        await transport.close()


async def end_pods(
    settings: AgentSettings, clock: Clock, logger: log.Logger, offload: Threads
) -> None:
    """End what an agent of this directory has left running."""
    options = RuntimeOptions(
        settings.data_dir, isolation=settings.isolation, network=settings.network
    )
    make = RUNTIMES[settings.runtime]
    async with make(options, clock=clock, log=logger, offload=offload) as runtime:
        await end_other_nodes(runtime, frozenset(), logger)


class JoinedNode:
    """A machine with a certificate of its node.

    Args:
        settings: of the agent.
        transport: leads to the API server.
        context: TLS of the node as a client.
        clock, logger, offload: of the process.
    """

    def __init__(
        self,
        settings: AgentSettings,
        transport: HTTP,
        context: ssl.SSLContext,
        clock: Clock,
        logger: log.Logger,
        offload: Threads,
    ) -> None:
        self._settings = settings
        self._transport = transport
        self._context = context
        self._client = Client(transport, clock=clock)
        self._clock = clock
        self._log = logger
        self._offload = offload
        self._rng = Stream.from_system()
        self._metrics = registry()
        self._serving: ssl.SSLContext | None = None
        self._interrupted: frozenset[ContainerID] = frozenset()

    def renew(self, nursery: Nursery, credentials: NodeCredentials, target: JoinTarget) -> None:
        """Keep the certificates valid."""
        self._serving = credentials.serving_context()
        for name, file, loaded, renew in (
            ("client", credentials.file, self._context, credentials.renew),
            ("serving", credentials.serving_file, self._serving, credentials.renew_serving),
        ):
            renewal = NodeRenewal(
                file,
                loaded,
                functools.partial(renew, self._client, target),
                clock=self._clock,
                rng=self._rng.fork(name),
                log=self._log.bind(certificate=name),
            )
            self._start(nursery, f"{name} certificate", renewal.run)

    def _start(
        self, nursery: Nursery, name: str, run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        nursery.start(supervise(name, run, clock=self._clock, log=self._log), name=name)

    async def run(self, stop: asyncio.Event) -> None:
        """Run pods until ``stop`` is set."""
        settings, clock = self._settings, self._clock
        informers = InformerFactory(
            self._client,
            clock=clock,
            rng=self._rng.fork("informers"),
            log=self._log,
            metrics=self._metrics,
        )
        deps = Deps(self._client, informers, clock, self._rng, self._log, self._metrics)
        options = RuntimeOptions(
            settings.data_dir,
            isolation=settings.isolation,
            network=settings.network,
            shown=machine.own_directories(),
            cri_socket=settings.cri_socket,
        )
        make = RUNTIMES[settings.runtime]
        async with make(options, clock=clock, log=self._log, offload=self._offload) as runtime:
            self._interrupted = await interrupted_runs.take_over(
                runtime, settings.data_dir, self._offload
            )
            await end_other_nodes(runtime, frozenset({settings.name}), self._log)
            await self._serve(deps, runtime, stop)
            if not settings.leave_pods:
                click.echo("stopping: pods end first", err=True)
                await interrupted_runs.stop_all(
                    runtime,
                    settings.data_dir,
                    settings.stop_grace_s,
                    offload=self._offload,
                    log=self._log,
                )

    async def _serve(self, deps: Deps, runtime: NodeRuntime, stop: asyncio.Event) -> None:
        settings, clock = self._settings, self._clock
        url = urlsplit(settings.server)
        server = url.hostname or "", url.port or 443
        address = settings.address or await address_towards(
            functools.partial(self._offload.run, lambda: _local_address(*server)),
            stop,
            clock,
            self._log,
        )
        tunnels = PodTunnels(AgentStreams(runtime), runtime, clock)
        connections = NodeConnections(lambda: self._client, lambda: self._context, clock)
        revocations = NodeRevocations(clock)
        revocations.follow(deps.informers)
        proxy = ServiceProxy(
            deps,
            LOOPBACK,
            (settings.name,),
            dial=TunnelDialer(connections, self._transport, revocations, clock).dial,
            api=Endpoint(*server),
            is_shared=True,
        )
        tunnels.exposes = proxy.exposes
        usage = UsageSampler(runtime, (settings.name,), clock)
        endpoints = AgentEndpoints(
            AgentLogs(runtime, clock),
            tunnels,
            usage,
            self._metrics,
            revocations,
            RateLimitedLogger(self._log, clock),
        )
        if self._serving is None:
            raise RuntimeError("renew() comes before run()")
        async with serve_agent(
            endpoints, self._serving, address, settings.port, clock=clock, log=self._log
        ) as port:
            if runtime.network == NETNS:  # the server's address is not in the pods' networks
                service = await self._client.get(SERVICE, "kubernetes", "default")
                server = service.spec.cluster_ip, 443
            config = self._config(runtime, address, port, server)
            agent = NodeAgent(deps, config, runtime, images=runtime.images)
            endpoints.pod = agent.pod
            async with Nursery("agent") as nursery:
                self._start(nursery, "agent", agent.run)
                self._start(nursery, "usage sampler", usage.run)
                self._start(nursery, "service proxy", proxy.run)
                nursery.start(deps.informers.run(), name="informers")
                click.echo(
                    f"node {settings.name} of {settings.server}; stop with Ctrl-C or SIGTERM"
                )
                await stop.wait()
                nursery.cancel()
            await agent.leave()

    def _config(
        self, runtime: NodeRuntime, address: str, port: int, server: tuple[str, int]
    ) -> NodeConfig:
        settings = self._settings
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return NodeConfig(
            name=settings.name,
            capacity=settings.amounts(),
            labels=pairs("--label", settings.labels),
            taints=settings.node_taints(),
            pod_network=str(runtime.pod_network),
            host_ip=address,
            environment={**kept, **service_account.api_variables(*server)},
            runtime=settings.runtime,
            isolation=runtime.isolation,
            network=runtime.network,
            limits=runtime.limits,
            images=runtime.images is not None,
            name_files=runtime.has_name_files,
            resolver=machine.resolver(),
            agent_port=port,
            host_paths=tuple(map(str, settings.host_paths)),
            cluster_dns=settings.cluster_dns,
            interrupted=self._interrupted,
            eviction=settings.eviction,
        )


async def address_towards(
    find: Callable[[], Awaitable[str]], stop: asyncio.Event, clock: Clock, logger: log.Logger
) -> str:
    """The address of this machine by which others reach it, once its network is there.

    Args:
        find: finds it, or raises ``OSError``.
        stop: ends the wait; the address is that of loopback then.
        clock: time.
        logger: where the wait is logged.
    """
    while not stop.is_set():
        try:
            return await find()
        except OSError as error:
            logger.warning("no way to the server", error=error, retry_s=_ADDRESS_RETRY_S)
            with contextlib.suppress(TimeoutError):
                async with clock.timeout(_ADDRESS_RETRY_S):
                    await stop.wait()
    return "127.0.0.1"


def _local_address(host: str, port: int) -> str:
    """The address of this machine from which a server is reached; nothing is sent."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])
