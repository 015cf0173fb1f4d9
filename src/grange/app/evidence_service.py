"""The evidence of test sessions in one process: its directory, the collector and the session service.

::

    <root>/
        key                 of the tokens of sessions; 0600
        reader-token        admits to the evidence of all sessions; 0600
        service.json        the port of the service, which components keep over a restart
        pki/                authority and certificate of the service, where it has its own
        series.db           the figures of tests
        sessions/           logs, artifacts and records
"""

import ssl
from collections.abc import Awaitable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from grange.app import key_files, pki
from grange.app.datadir import make_directory, write
from grange.app.renewal import Renewal
from grange.app.runnable import Runnable
from grange.base.errors import GrangeError
from grange.base.offload import Threads
from grange.controllers.sharded import SHARDED, ShardedController
from grange.controllers.testsession.artifact_gathering import ArtifactSource
from grange.controllers.testsession.component_documents import ARTIFACTS_VOLUME
from grange.controllers.testsession.controller import NAME, SessionService
from grange.controllers.testsession.evidence_recorder import EvidenceTools
from grange.controllers.testsession.log_collector import LogCollector
from grange.controllers.testsession.session_server import ServerTools, SessionServer
from grange.evidence.evidence_directory import EvidenceDirectory
from grange.evidence.metric_series import MetricSeries
from grange.reconcile.deps import Deps


class EvidenceAddressUnusable(GrangeError):
    """The session service cannot listen; the message has the cause and the remedy."""


@dataclass(frozen=True, slots=True)
class ServiceIdentity:
    """As what the session service is known.

    Attributes:
        host: where it listens.
        port: 0 takes the one of the last time, or a free one.
        reader_token: admits to all evidence; empty takes the one in the directory.
        ca_pem: authority of the certificate; empty without TLS.
        context: TLS; None without.
    """

    host: str = "127.0.0.1"
    port: int = 0
    reader_token: str = ""
    ca_pem: str = ""
    context: ssl.SSLContext | None = None


class _Remembered(msgspec.Struct):
    port: int


class PodVolumes:
    """The artifacts of pods that run on this machine, as processes or as containers.

    Args:
        data_dir: of the control plane whose agent runs them.
    """

    def __init__(self, data_dir: Path) -> None:
        self._roots = (data_dir / "pods", data_dir / "cri" / "pods")  # of the runtimes

    def directory(self, pod_uid: str) -> Path | None:
        """The directory of the pod's volume for artifacts, if it is here."""
        for root in self._roots:
            place = root / Path(pod_uid).name / "volumes" / ARTIFACTS_VOLUME
            if place.is_dir() and not place.is_symlink():
                return place
        return None


def of_control_plane(
    data_dir: Path, keys: key_files.Keys | None, context: ssl.SSLContext | None, deps: Deps
) -> "EvidenceService":
    """The evidence in a control plane's data directory; who may use its API may read all of it.

    Raises:
        RuntimeError: there are no keys yet.
    """
    if keys is None:
        raise RuntimeError("the keys are made before sessions are served")
    identity = ServiceIdentity(
        reader_token=keys.token, ca_pem=keys.ca_pem.decode(), context=context
    )
    return EvidenceService(data_dir / "evidence", deps, identity, PodVolumes(data_dir))


async def of_directory(
    root: Path, host: str, port: int, deps: Deps
) -> tuple["EvidenceService", Runnable]:
    """The evidence in a directory, served over TLS by an authority of that directory.

    Args:
        root: the directory.
        host: where the service listens, which components use as its address.
        port: 0 takes the one of the last time, or a free one.
        deps: client, clock, log.

    Returns:
        The service, and what renews its certificate.

    Raises:
        DataDirectoryUnusable: the directory cannot be used.
        KeysUnusable: the keys that are there cannot be read.
    """
    make_directory(root)
    names = (*pki.LOCAL_NAMES, host)

    def keys_at(now: datetime) -> Awaitable[key_files.Keys]:
        return pki.in_child(root / "pki", names, now)

    keys = await keys_at(deps.clock.now())
    context = keys.server_context()
    renewal = Renewal(context, keys_at, clock=deps.clock, log=deps.log)
    identity = ServiceIdentity(host, port, ca_pem=keys.ca_pem.decode(), context=context)
    return EvidenceService(root, deps, identity), Runnable("evidence certificate", renewal.run)


class EvidenceService(AbstractAsyncContextManager["EvidenceService"]):
    """Entering serves, so that components know the address; ``runnable`` follows logs.

    Args:
        root: the directory.
        deps: client, clock, log.
        identity: of the service.
        artifacts: where the artifacts of pods are; None where they are only uploaded.
    """

    def __init__(
        self,
        root: Path,
        deps: Deps,
        identity: ServiceIdentity,
        artifacts: ArtifactSource | None = None,
    ) -> None:
        self._root = root
        self._deps = deps
        self._identity = identity
        self._artifacts = artifacts
        self._offload = Threads("evidence")
        self._server: SessionServer | None = None
        self._collector: LogCollector | None = None

    @property
    def url(self) -> str:
        """Where the session service is served; empty until it is."""
        return "" if self._server is None else self._server.url

    async def __aenter__(self) -> Self:
        """Make the directory and listen.

        Raises:
            DataDirectoryUnusable: the directory cannot be used.
            EvidenceAddressUnusable: the address cannot be used.
        """
        make_directory(self._root)
        deps = self._deps
        directory = EvidenceDirectory(self._root / "sessions")
        series = MetricSeries(self._root / "series.db")
        token = self._identity.reader_token or key_files.secret_in(self._root / "reader-token")
        server = SessionServer(
            ServerTools(
                client=deps.client,
                directory=directory,
                series=series,
                clock=deps.clock,
                log=deps.log,
                offload=self._offload,
                key=key_files.secret_in(self._root / "key").encode(),
                reader_token=token,
            ),
            ca_pem=self._identity.ca_pem,
            context=self._identity.context,
        )
        await self._listen(server)
        self._server = server
        tools = EvidenceTools(
            client=deps.client,
            directory=directory,
            series=series,
            clock=deps.clock,
            log=deps.log,
            offload=self._offload,
            artifacts=self._artifacts,
        )
        self._collector = LogCollector(tools, server)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop serving; what is kept is on disk."""
        try:
            if self._server is not None:
                await self._server.close()
        finally:
            self._offload.close()

    def runnable(self) -> Runnable:
        """What follows logs and deletes what is too old.

        Raises:
            RuntimeError: it was not entered.
        """
        return Runnable("evidence", self._entered().run)

    def sharded(self) -> Mapping[str, ShardedController[Any]]:
        """The controllers of objects that are shared, with the collector for sessions.

        Raises:
            RuntimeError: it was not entered.
        """
        collector = self._entered()

        def made(deps: Deps) -> SessionService:
            return SessionService(deps, collector=collector)

        return {**SHARDED, NAME: replace(SHARDED[NAME], create=made)}

    def _entered(self) -> LogCollector:
        if self._collector is None:
            raise RuntimeError("the session service is not served")
        return self._collector

    async def _listen(self, server: SessionServer) -> None:
        """Listen where components of running sessions look for the service, if that is possible."""
        host, place = self._identity.host, self._root / "service.json"
        ports = [self._identity.port]
        if not self._identity.port:
            with suppress(OSError, msgspec.MsgspecError):
                ports.insert(0, msgspec.json.decode(place.read_bytes(), type=_Remembered).port)
        cause: OSError | None = None
        for port in ports:
            try:
                bound = await server.start(host, port)
            except OSError as error:
                cause = error
                continue
            write(place, msgspec.json.encode(_Remembered(bound)))
            return
        raise EvidenceAddressUnusable(
            f"the session service cannot listen on {host}:{ports[-1]}: {cause}; choose another address"
        )
