"""This machine as nodes: one process runtime for all of them, and an agent for each."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from grange.agent import file_disk, interrupted_runs, service_account
from grange.agent.addresses import api_address, service_range
from grange.agent.agent_streams import AgentStreams
from grange.agent.cluster_dns.service_names import ServiceNames
from grange.agent.config import NodeConfig
from grange.agent.container_logs import AgentLogs
from grange.agent.container_runtime import ContainerID
from grange.agent.heartbeat import report_stopped
from grange.agent.node_runtime import NodeRuntime
from grange.agent.pod_tunnels import PodTunnels
from grange.agent.runtime_choices import NETNS
from grange.agent.runtime_options import RuntimeOptions
from grange.agent.runtime_table import RUNTIMES
from grange.agent.service import NodeAgent, end_other_nodes
from grange.agent.service_proxy.proxy import ServiceProxy
from grange.agent.service_proxy.tunnel import Dial
from grange.agent.usage_sampler import UsageSampler
from grange.api.kinds import NODE
from grange.api.kinds.machinelease import POOL_LABEL
from grange.api.kinds.node import Node
from grange.api.status import NotFound
from grange.app import machine, node_pools
from grange.app.datadir import remember_pools, remembered_pools
from grange.app.runnable import Runnable
from grange.app.settings import Settings, SettingsError
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.offload import Threads
from grange.client.client import Client
from grange.reconcile.deps import Deps

MACHINE_LABEL = "grange.dev/machine"  # on every node that this program presents its machine as
_STOP_GRACE_S = 30.0  # the usual grace period of a pod; programs that end sooner cost no waiting


class LocalNodes(AbstractAsyncContextManager["LocalNodes"]):
    """Runs pods on this machine.

    Entering takes over the processes that an earlier control plane on the same data directory left
    behind; leaving ends all of them, after half a minute of grace at most, and leaves nothing running.

    Args:
        settings: of the control plane.
        clock: time.
        log: the process's logger.

    Raises:
        SettingsError: there is no runtime of that name.

    Attributes:
        logs: answers the API server's ``log`` subresource; None where no agent runs.
        streams: answers its connections into pods, as ``exec``; None where no agent runs.
        usage: answers its group ``metrics.k8s.io``; None where no agent runs.
        dial: connects to pods of Services on other machines; None where that is not possible.
        api: host and port of the API server, for pods; None until it is served.
    """

    def __init__(self, settings: Settings, *, clock: Clock, log: Logger) -> None:
        if settings.runtime not in RUNTIMES:
            known = ", ".join(RUNTIMES)
            raise SettingsError(f"--runtime {settings.runtime}: no such runtime; there is {known}")
        self._settings = settings
        self._clock = clock
        self._log = log.bind(role="agent")
        self._offload = Threads("agent-disk", file_disk.LANES)
        self._shares = machine.shares(settings.nodes, settings.data_dir)
        self._names = [share.name for share in self._shares]
        before = remembered_pools(settings.data_dir)
        self._pools = node_pools.assign(settings.pools, settings.nodes, before)
        self._former_pools = dict(zip(self._names, before, strict=False))
        self._runtime: NodeRuntime | None = None
        self._interrupted: frozenset[ContainerID] = frozenset()
        self.logs: AgentLogs | None = None
        self.streams: PodTunnels | None = None
        self.dial: Dial | None = None
        self.usage: UsageSampler | None = None
        self.api: tuple[str, int] | None = None
        self._agents: list[NodeAgent] = []

    async def __aenter__(self) -> Self:
        """Open the runtime.

        Raises:
            RuntimeFailedError: the data directory cannot be used.
        """
        if self._settings.runs("agent"):
            runtime = RUNTIMES[self._settings.runtime](
                RuntimeOptions(
                    self._settings.data_dir,
                    isolation=self._settings.isolation,
                    network=self._settings.network,
                    shown=machine.own_directories(),
                    hidden=self._settings.hidden_files,
                    cri_socket=self._settings.cri_socket,
                ),
                clock=self._clock,
                log=self._log,
                offload=self._offload,
            )
            self._runtime = await runtime.__aenter__()
            self._interrupted = await interrupted_runs.take_over(
                runtime, self._settings.data_dir, self._offload
            )
            await end_other_nodes(runtime, frozenset(self._names), self._log)
            self.logs = AgentLogs(runtime, self._clock)
            self.streams = PodTunnels(AgentStreams(runtime), runtime, self._clock)
            self.usage = UsageSampler(runtime, self._names, self._clock)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what runs and close the runtime."""
        try:
            if self._runtime is not None:
                await interrupted_runs.stop_all(
                    self._runtime,
                    self._settings.data_dir,
                    _STOP_GRACE_S,
                    offload=self._offload,
                    log=self._log,
                )
                await self._runtime.__aexit__(kind, error, trace)
        finally:
            self._offload.close()

    def names(self) -> frozenset[str]:
        """The names of the nodes that this machine is presented as."""
        return frozenset(self._names)

    def running(self) -> tuple[str, ...]:
        """``namespace/name`` of the pods that have a running container here, sorted."""
        records = self._runtime.pods() if self._runtime is not None else ()
        found = [one.setup for one in records if any(not run.finished_at for run in one.runs)]
        return tuple(sorted(f"{setup.namespace}/{setup.name}" for setup in found))

    def runnables(self, deps: Callable[[str], Deps]) -> Iterator[Runnable]:
        """An agent for each node that the machine is presented as."""
        if self._runtime is None:
            return
        proxy = ServiceProxy(
            deps("service-proxy"),
            service_range(str(self._settings.data_dir)),
            self._names,
            dial=self.dial,
        )
        if self.streams is not None:
            self.streams.exposes = proxy.exposes
        yield Runnable("service proxy", proxy.run)
        if self.usage is not None:
            yield Runnable("usage sampler", self.usage.run)
        names = ServiceNames(deps("names").informers) if self._runtime.has_name_files else None
        api = self.api
        if api is not None and self._runtime.network == NETNS:
            # Where the server listens may be the pods' own loopback; its Service is not.
            api = api_address(str(self._settings.data_dir)), 443
        variables = service_account.api_variables(*api) if api is not None else {}
        self._agents.clear()
        for share, pool in zip(self._shares, self._pools, strict=True):
            labels = {MACHINE_LABEL: self._settings.identity}
            config = NodeConfig(
                name=share.name,
                capacity=share.capacity(),
                labels={**labels, POOL_LABEL: pool} if pool else labels,
                pod_network=str(self._runtime.pod_network),
                environment={**self._settings.environment, **variables},
                runtime=self._settings.runtime,
                isolation=self._runtime.isolation,
                network=self._runtime.network,
                name_files=self._runtime.has_name_files,
                resolver=machine.resolver(),
                limits=self._runtime.limits,
                images=self._runtime.images is not None,
                interrupted=self._interrupted,
                eviction=self._settings.eviction,
                host_paths=tuple(map(str, self._settings.host_paths)),
                cluster_dns=self._settings.cluster_dns,
            )
            agent = NodeAgent(
                deps(f"node:{share.name}"),
                config,
                self._runtime,
                names=names,
                images=self._runtime.images,
            )
            self._agents.append(agent)
            yield Runnable(f"agent {share.name}", agent.run)

    async def registered(self) -> None:
        """Wait until the API has the Nodes of the agents that ``runnables`` made."""
        for agent in self._agents:
            await agent.registered.wait()

    async def remove_former(self, client: Client) -> None:
        """Remove nodes and labels that only earlier settings ask for, then remember the pools.

        Where no agent runs, no node is served: they are not ready, or removed with ``remove_nodes``.
        """
        if self._runtime is None:
            await self._end_service(client)
            return
        await self._delete_former_nodes(client)
        await self._remove_former_pools(client)
        # Not before: what is not removed yet is removed after the next start.
        if self._former_pools or any(self._pools):
            await self._offload.run(lambda: remember_pools(self._settings.data_dir, self._pools))

    async def _remove_former_pools(self, client: Client) -> None:
        """Remove the label of a former ``--pool`` from nodes that are in no pool now.

        Nodes in another pool get its label from their agent. A label that a user has changed stays.
        """
        for name, pool in zip(self._names, self._pools, strict=True):
            former = self._former_pools.get(name, "")
            if pool or not former:
                continue
            with contextlib.suppress(NotFound):
                node = await client.get(NODE, name)
                if node.metadata.labels.get(POOL_LABEL) == former:
                    await client.patch(
                        NODE, name, patch={"metadata": {"labels": {POOL_LABEL: None}}}
                    )

    async def _end_service(self, client: Client) -> None:
        """Keep pods off the nodes of an earlier run, which are still Ready though their agents are gone."""
        for node in await self._of_this_machine(client):
            with contextlib.suppress(NotFound):
                if self._settings.remove_nodes:
                    await client.delete(NODE, node.metadata.name, uid=node.metadata.uid)
                else:
                    await report_stopped(client, node.metadata.name, self._clock.now())

    async def _delete_former_nodes(self, client: Client) -> None:
        """Delete the nodes that an earlier run with a larger ``--nodes`` left behind."""
        for node in await self._of_this_machine(client):
            if node.metadata.name not in self._names:
                with contextlib.suppress(NotFound):
                    await client.delete(NODE, node.metadata.name, uid=node.metadata.uid)

    async def _of_this_machine(self, client: Client) -> list[Node]:
        label = f"{MACHINE_LABEL}={self._settings.identity}"
        return list((await client.list(NODE, labels=label)).items)
