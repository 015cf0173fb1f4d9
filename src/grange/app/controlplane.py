"""One embedded control plane: the object graph, started and stopped in one fixed order.

Order of starting: keys, store, API server, listener, kubeconfig; then the roles (informers,
scheduler, controllers, agents). Stopping is the reverse: what acts stops first, what remembers
stops last.
"""

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from grange.agent.addresses import service_range
from grange.api.http import ADMIN, User
from grange.api.kinds import BUILT_IN
from grange.api.scheme import Scheme
from grange.apiserver.account_tokens import AccountTokens, key_from
from grange.apiserver.application import Application
from grange.apiserver.authn import FirstOf, StaticTokens
from grange.apiserver.bootstrap_authenticator import BootstrapTokens
from grange.apiserver.listener import Limits, Listener
from grange.apiserver.request_audit import RequestAudit
from grange.app import descriptors, key_files, pki, roles
from grange.app.audit_file import AuditFile
from grange.app.certificate_process import CertificateProcess
from grange.app.datadir import MACHINES, make_directory
from grange.app.explanations import Explanations
from grange.app.local_nodes import LocalNodes
from grange.app.node_connections import NodeConnections
from grange.app.node_logs import NodeLogs
from grange.app.node_revocations import NodeRevocations
from grange.app.node_streams import NodeStreams
from grange.app.renewal import Renewal
from grange.app.runnable import Runnable
from grange.app.settings import Settings
from grange.app.store_metrics import StoreMetrics
from grange.app.tunnel_dialer import TunnelDialer
from grange.app.usage_collector import UsageCollector
from grange.app.usage_metrics import UsageMetrics
from grange.base import metrics, supervision
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.offload import Threads
from grange.base.rng import Stream
from grange.base.tasks import Nursery, supervise
from grange.client import kubeconfig_contexts
from grange.client.client import Client
from grange.client.transports.inprocess import InProcess
from grange.reconcile.deps import Deps
from grange.reconcile.farm.leader_election import ElectedService
from grange.reconcile.informer import InformerFactory
from grange.store.compaction import Compactor
from grange.store.sqlite import SQLiteStore

_REGISTER_LIMIT_S = 2.0  # a disk that takes no writes, or a thousand nodes


class CannotListen(GrangeError):
    """The address cannot be used; the message has the cause and the remedy."""


class ControlPlane:
    """An API server with its store, and the roles that work on it.

    Args:
        settings: what to serve.
        clock: time.
        rng: the process's root stream.
        log: the process's logger.
        settled: called once, when the roles have started too.
        make_keys: where the keys come from.
        renew_keys: how they are looked after while it runs.

    Raises:
        SettingsError: the scheduler's configuration file cannot be used.

    Attributes:
        url: where the API is served; empty until it is.
        kubeconfig: the file that admits its owner.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        rng: Stream,
        log: Logger,
        settled: Callable[[], None] = lambda: None,
        make_keys: pki.MakeKeys = pki.in_process,
        renew_keys: pki.MakeKeys = pki.in_process,
    ) -> None:
        self.settings = settings
        self._make_keys = make_keys
        self._renew_keys = renew_keys
        self._settled = settled
        self.url = ""
        self.kubeconfig: Path = settings.data_dir / "kubeconfig"
        self._clock = clock
        self._rng = rng
        self._log = log
        self._metrics = metrics.registry()
        self._why = Explanations(clock)
        self._keys: key_files.Keys | None = None
        self._context: ssl.SSLContext | None = None
        self._scheduler = roles.scheduler(settings)
        self._application: Application | None = None
        self._usage: UsageCollector | None = None
        self._revocations = NodeRevocations(clock)
        self._registered = asyncio.Event()
        self._announced = asyncio.Event()

    def client(self, component: str) -> Client:
        """A client for one component, in this process and under its own name.

        Raises:
            RuntimeError: the API server is not there (yet, or any more).
        """
        if self._application is None:
            raise RuntimeError("the control plane does not run")
        user = User(f"system:{component}", ADMIN.groups)
        transport = InProcess(self._application.handle, user)
        # Client and server have the same schemas here: an unknown field is a bug.
        return Client(transport, clock=self._clock, strict=True)

    def merge_into(self, paths: Sequence[Path]) -> kubeconfig_contexts.Merged:
        """Add a context for this control plane to the first of some kubeconfigs.

        It becomes the current one where there is none, or another one of Grange's.

        Raises:
            KubeconfigError: a file cannot be read or written.
            RuntimeError: it does not serve.
        """
        if self._keys is None:
            raise RuntimeError("the control plane does not run")
        return kubeconfig_contexts.merge(
            paths[0],
            self.settings.context,
            self.url,
            self._keys.ca_pem,
            self._keys.token,
            switch=False,
            home=str(self.settings.data_dir.resolve()),
            others=paths[1:],
        )

    async def run(self, ready: Callable[[], None], stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set; everything is stopped and on disk when this returns.

        Args:
            ready: called once, when the API is served, the kubeconfig is written and the nodes of this
                machine are registered. A disk that takes no writes does not hold it up for long.
            stop: ends it gracefully; cancellation does the same.

        Raises:
            GrangeError: it cannot start; the message names what is in the way and the remedy.
        """
        settings = self.settings
        make_directory(settings.data_dir)
        store = await SQLiteStore.open(settings.data_dir / "store", log=self._log)
        try:
            self._keys = await self._make_keys(*pki.wanted(settings), self._clock.now())
            await self._check_address()  # before programs are taken over: failing ends them
            async with (
                LocalNodes(settings, clock=self._clock, log=self._log) as nodes,
                machines_halted_at_end(settings, self._log),
            ):
                await self._serve(store, nodes, ready, stop)
        finally:
            self._application = None
            await store.close()

    async def _serve(
        self, store: SQLiteStore, nodes: LocalNodes, ready: Callable[[], None], stop: asyncio.Event
    ) -> None:
        keys = self._keys
        if keys is None:
            raise RuntimeError("the keys are made before serving")
        documents = Threads("documents", workers=2)  # threads are started as they are needed
        accounts = AccountTokens(key_from(keys.token), store, self._clock)
        tokens = FirstOf(
            StaticTokens({keys.token: ADMIN}), accounts, BootstrapTokens(store, self._clock)
        )
        connections = NodeConnections(
            lambda: self.client("node-connections"), keys.client_context, self._clock
        )
        nodes.dial = TunnelDialer(connections, None, self._revocations, self._clock).dial
        usage = self._usage = UsageCollector(
            nodes.usage,
            nodes.names,
            connections,
            clock=self._clock,
            log=self._log.bind(role="usage"),
        )
        UsageMetrics(usage.samples, self._metrics)
        StoreMetrics(store.statistics, self._metrics)
        application = Application(
            store,
            Scheme(BUILT_IN),
            clock=self._clock,
            rng=self._rng,
            log=self._log.bind(room="apiserver"),
            authn=tokens,
            logs=NodeLogs(nodes.logs, nodes.names, connections),
            streams=NodeStreams(nodes.streams, nodes.names, connections),
            usage=usage,
            explainer=self._why,
            metrics=self._metrics,
            service_network=service_range(str(self.settings.data_dir)),
            offload=documents,
            accounts=accounts,
            ca_pem=keys.ca_pem.decode(),
        )
        await application.bootstrap()
        self._application = application
        context = self._context = keys.server_context()
        path, audit_file = self.settings.audit_log, None
        if path is not None:
            audit_file = AuditFile(path, documents, clock=self._clock, log=self._log)
        certificate = Renewal(
            context,
            lambda now: self._renew_keys(*pki.wanted(self.settings), now),
            clock=self._clock,
            log=self._log,
        )
        listener = Listener(
            application.handle,
            authenticator=tokens,
            ssl_context=context,
            clock=self._clock,
            log=self._log.bind(room="apiserver"),
            host=self.settings.host,
            port=self.settings.port,
            drain=application.end_streams,
            admit=application.admit,
            audit=None
            if audit_file is None
            else RequestAudit(
                audit_file.write, application.scheme, self._clock, self._rng.fork("audit")
            ),
            limits=Limits(connections=descriptors.connection_limits(descriptors.raise_limit())),
        )
        await self._listen(listener)
        try:
            if audit_file is not None:
                audit_file.open()
            self.url = self.settings.address(listener.port)
            nodes.api = _address_for_pods(self.url)
            await application.publish(*nodes.api)
            kubeconfig_contexts.write(
                self.kubeconfig,
                self.settings.context,
                self.url,
                keys.ca_pem,
                keys.token,
                home=str(self.settings.data_dir.resolve()),
            )
            await nodes.remove_former(
                self.client("nodes")
            )  # who lists nodes then has the right ones
            async with Nursery("control plane") as nursery:
                compactor = Compactor(store, clock=self._clock, log=self._log)
                self._supervise(nursery, Runnable("compactor", compactor.run))
                self._supervise(nursery, Runnable("certificate", certificate.run))
                self._supervise(nursery, Runnable("event expiry", application.run))
                if audit_file is not None:
                    self._supervise(nursery, Runnable("audit log", audit_file.run))
                self._supervise(nursery, Runnable("roles", lambda: self._roles(nodes)))
                await self._registered.wait()
                if not stop.is_set():
                    ready()
                self._announced.set()
                await stop.wait()
                nursery.cancel()
        finally:
            await listener.close()
            documents.close()
            if audit_file is not None:
                audit_file.close()

    async def _check_address(self) -> None:
        """Listen for a moment.

        Raises:
            CannotListen: the address cannot be had.
        """
        host, port = self.settings.host, self.settings.port
        try:
            probe = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port)
        except OSError as error:
            raise self._cannot_listen(error) from error
        probe.close()
        await probe.wait_closed()

    async def _listen(self, listener: Listener) -> None:
        try:
            await listener.start()
        except OSError as error:
            raise self._cannot_listen(error) from error

    def _cannot_listen(self, error: OSError) -> CannotListen:
        host, port = self.settings.host, self.settings.port
        if error.errno == errno.EADDRINUSE:
            message = f"{host}:{port} is in use by another program"
            remedy = "end it, or choose another port with --listen HOST:PORT (0 takes any)"
        else:
            message = f"cannot listen on {host}:{port}: {error.strerror}"
            remedy = "choose another address with --listen HOST:PORT"
        return CannotListen(f"{message}; {remedy}")

    def _supervise(self, nursery: Nursery, role: Runnable) -> None:
        """Run a service that is started again if it crashes; ``/readyz`` shows its state."""
        services = supervision.services(self._metrics)
        run = supervise(role.name, role.run, clock=self._clock, log=self._log, services=services)
        nursery.start(run, name=role.name)

    async def _roles(self, nodes: LocalNodes) -> None:
        """Run the roles until cancelled."""
        informers = InformerFactory(
            self.client("informers"),
            clock=self._clock,
            rng=self._rng.fork("informers"),
            log=self._log.bind(room="reconcile"),
            metrics=self._metrics,
        )

        def deps(role: str) -> Deps:
            return Deps(
                client=self.client(role),
                informers=informers,
                clock=self._clock,
                rng=self._rng.fork(role),
                log=self._log.bind(role=role),
                metrics=self._metrics,
            )

        self._revocations.follow(informers)
        async with Nursery("agents") as agents:
            agents.start(informers.run(), name="informers")
            try:
                for role in nodes.runnables(deps):
                    self._supervise(agents, role)
                with suppress(TimeoutError):
                    async with self._clock.timeout(_REGISTER_LIMIT_S):
                        await nodes.registered()
            finally:
                self._registered.set()  # the API is served, whatever agents do
            await self._announced.wait()  # which loading the roles would delay
            await self._run_roles(informers, deps, nodes)

    async def _run_roles(
        self, informers: InformerFactory, deps: Callable[[str], Deps], nodes: LocalNodes
    ) -> None:
        """Run the roles but for the agents until cancelled."""
        # The first answers must not wait for numpy, so a thread imports it.
        importer = Threads("import")
        try:
            await importer.run(lambda: roles.load(self.settings))
        finally:
            importer.close()
        async with AsyncExitStack() as stack:
            sharded: Mapping[str, Any] | None = None
            further: list[Runnable] = []
            if (usage := self._usage) is not None:
                further.append(Runnable("usage collector", lambda: usage.run(informers)))
            if self.settings.runs("controllers"):
                from grange.app import evidence_service  # comes with the controllers

                evidence = evidence_service.of_control_plane(
                    self.settings.data_dir, self._keys, self._context, deps("evidence")
                )
                await stack.enter_async_context(evidence)
                sharded = evidence.sharded()
                further.append(evidence.runnable())
                signing = certificate_signing(deps("certificate-signing"), self.settings, nodes)
                further.append(stack.enter_context(signing))
            nursery = await stack.enter_async_context(Nursery("roles"))
            chosen = roles.chosen(
                self.settings, deps, self._scheduler, self._machines, self._why, sharded
            )
            for role in (*chosen, *further):
                self._supervise(nursery, role)
            self._settled()

    def _machines(self, deps: Deps) -> ElectedService:
        """The node controller."""
        from grange.app import machine_role  # only the role needs it

        if self._keys is None:
            raise RuntimeError("the keys are made before the roles")
        made = machine_role.of_control_plane(deps, self.settings, self.url, self._keys.ca_pem)
        self._why.report_pools(made.report)
        return made


@asynccontextmanager
async def machines_halted_at_end(settings: Settings, log: Logger) -> AsyncIterator[None]:
    """At the end of the block the local machines of the data directory end."""
    try:
        yield
    finally:
        if (settings.data_dir / MACHINES).is_dir():
            from grange.app import local_machines  # few have any

            for error in (await local_machines.halt(settings)).errors:
                log.error("a machine goes on", error=error)


@contextmanager
def certificate_signing(deps: Deps, settings: Settings, nodes: LocalNodes) -> Iterator[Runnable]:
    """Signs the certificates of machines that join; no machine gets the name of a local node."""
    from grange.controllers.certificatesigning.controller import (
        NAME,
        CertificateSigningController,
    )

    offload = Threads("certificates")
    signer = CertificateProcess(offload, pki.wanted(settings)[0])
    try:
        yield Runnable(NAME, CertificateSigningController(deps, signer, nodes.names).run)
    finally:
        signer.close()
        offload.close()


def _address_for_pods(url: str) -> tuple[str, int]:
    """Host and port by which the pods of this machine reach the API server."""
    address = urlsplit(url)
    host = address.hostname or ""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), address.port or 443  # noqa: S104  not listened on
