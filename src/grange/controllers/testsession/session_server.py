"""The session service: coordination of components, uploads and reads of evidence, over HTTP.

Components are hostile input: names, sizes, counts and the number of calls that wait are bounded, and a
token is good for one session. State of barriers and topics is in a journal, so a restart keeps it.
"""

import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import web

from grange.api.kinds.testsession import TestSession
from grange.api.status import ApiError
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.offload import Offload
from grange.client.client import Client
from grange.controllers.testsession.coordination import ENTRY_BYTES, CoordinationError
from grange.controllers.testsession.coordination_handlers import CoordinationHandlers
from grange.controllers.testsession.evidence_handlers import EvidenceHandlers
from grange.controllers.testsession.session_access import SessionAccess
from grange.controllers.testsession.session_messages import refusal
from grange.evidence.artifact_store import ArtifactTooLarge
from grange.evidence.evidence_directory import EvidenceDirectory, EvidenceError
from grange.evidence.evidence_paths import EvidencePathError
from grange.evidence.metric_series import MetricSeries

_CLOSE_S = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class ServerTools:
    """What the service works with.

    Attributes:
        client: finds sessions by their UIDs.
        directory: keeps the evidence.
        series: keeps the figures.
        clock: time.
        log: the logger.
        offload: the single lane of the evidence.
        key: that tokens of sessions are made with.
        reader_token: admits to the evidence of all sessions; empty for none.
    """

    client: Client
    directory: EvidenceDirectory
    series: MetricSeries
    clock: Clock
    log: Logger
    offload: Offload
    key: bytes
    reader_token: str = ""


class SessionServer:
    """Serves until it is closed.

    Args:
        tools: what it works with.
        ca_pem: for components, of the certificate in ``context``.
        context: TLS; None for plain HTTP.

    Attributes:
        url: where it is served; empty until it is.
    """

    def __init__(
        self, tools: ServerTools, *, ca_pem: str = "", context: ssl.SSLContext | None = None
    ) -> None:
        self.url = ""
        self._tools = tools
        self._ca_pem = ca_pem
        self._context = context
        self._access = SessionAccess(tools.client, tools.key, tools.reader_token)
        self._coordination = CoordinationHandlers(
            self._access, tools.directory, tools.clock, tools.offload
        )
        self._evidence = EvidenceHandlers(
            self._access,
            lambda: self.url,
            tools.directory,
            tools.series,
            tools.offload,
            tools.clock,
        )
        self._runner: web.AppRunner | None = None

    # --- for the collector ---

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables by which the components of a session's attempt reach it."""
        if not self.url:
            return {}
        meta, attempt = session.metadata, session.status.attempt
        self._access.remember(session)
        variables = {
            "GRANGE_SESSION_URL": f"{self.url}/v1/sessions/{meta.uid}/{attempt}",
            "GRANGE_SESSION_TOKEN": self.token(meta.uid),
        }
        return variables | ({"GRANGE_SESSION_CA": self._ca_pem} if self._ca_pem else {})

    def evidence_url(self, session: TestSession) -> str:
        """Where the evidence of a session is read."""
        return f"{self.url}/v1/sessions/{session.metadata.uid}/evidence" if self.url else ""

    def token(self, uid: str) -> str:
        """What admits to a session."""
        return self._access.token(uid)

    # --- serving ---

    async def start(self, host: str, port: int) -> int:
        """Listen; the port.

        Raises:
            OSError: the address cannot be used.
        """
        application = web.Application(client_max_size=2 * ENTRY_BYTES, middlewares=[self._errors])
        session = "/v1/sessions/{uid}"
        attempt = f"{session}/{{attempt:[0-9]{{1,6}}}}"
        application.router.add_post(f"{attempt}/barriers/{{name}}", self._coordination.barrier)
        application.router.add_post(f"{attempt}/topics/{{name}}", self._coordination.publish)
        application.router.add_get(f"{attempt}/topics/{{name}}", self._coordination.subscribe)
        artifact = f"{attempt}/artifacts/{{component}}/{{path:.+}}"
        application.router.add_post(artifact, self._evidence.announce)
        application.router.add_put(artifact, self._evidence.upload)
        application.router.add_get(f"{session}/evidence", self._evidence.list)
        application.router.add_get(f"{session}/evidence/{{path:.+}}", self._evidence.read)
        application.router.add_get("/v1/series/{namespace}/{test}/{metric}", self._evidence.series)
        runner = web.AppRunner(
            application, access_log=None, shutdown_timeout=_CLOSE_S, lingering_time=_CLOSE_S
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, ssl_context=self._context)
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        bound = int(runner.addresses[0][1])
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{'https' if self._context else 'http'}://{shown}:{bound}"
        return bound

    async def close(self) -> None:
        """Stop listening; calls that wait end."""
        self.url = ""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @web.middleware
    async def _errors(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except ArtifactTooLarge as error:
            return refusal(413, str(error))
        except (CoordinationError, EvidencePathError) as error:
            return refusal(400, str(error))
        except EvidenceError as error:
            return refusal(404, str(error))
        except (GrangeError, ApiError) as error:
            self._tools.log.warning("request of a session failed", why=str(error))
            return refusal(503, str(error))

    def forget(self, uid: str) -> None:
        """A session has ended: its barriers and topics are not needed any more."""
        self._access.forget(uid)
        self._coordination.forget(uid)
