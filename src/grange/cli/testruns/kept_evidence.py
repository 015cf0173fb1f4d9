"""What the session service has kept of a session, read with the user's credentials for the cluster.

The address is in the session's status, which others may write. A token is sent to it only over TLS,
to a server that the cluster's own authority has certified.
"""

import re
from dataclasses import replace
from urllib.parse import quote, urlsplit

import msgspec

from grange.api.http import Request
from grange.api.kinds.testsession import PASSED
from grange.api.meta import Document
from grange.api.status import from_status
from grange.base.errors import GrangeError
from grange.cli import testsession_view, watch_stream
from grange.cli.session import ApiSession
from grange.cli.testruns.component_logs import ContainerLog, component_of
from grange.client.client import Client
from grange.client.transport import Transport
from grange.evidence.session_record import KeptFile

_LOGS = "logs"
_LOG_PARTS = 4  # logs/ATTEMPT/POD/CONTAINER.log
_KEPT_TIME = re.compile(rb"^\d{4}-\d\d-\d\dT[\d:.]+Z ")  # that kept logs have before each line


class NoEvidence(GrangeError):
    """There is no kept evidence that can be read; the message has the cause."""


class _Listing(msgspec.Struct):
    files: list[KeptFile]


class SeriesPoint(msgspec.Struct, frozen=True):
    """A figure of one session.

    Attributes:
        uid: of the session.
        time: of its end.
        value: the figure.
        verdict: of the session.
        attributes: what else is known of it, as whether it is a regression.
    """

    uid: str
    time: str
    value: float
    verdict: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class _Points(msgspec.Struct):
    points: list[SeriesPoint]


class KeptSeries:
    """The figures that a session service keeps, also of sessions that were deleted.

    Args:
        opened: the connection to the cluster.
        evidence_url: of a session whose evidence the service keeps.

    Raises:
        NoEvidence: a token may not be sent to this address.
    """

    def __init__(self, opened: ApiSession, evidence_url: str) -> None:
        self._transport = _connected(opened, evidence_url)

    async def last(self, namespace: str, test: str, metric: str, count: int) -> list[SeriesPoint]:
        """The last figures of sessions that passed, in the order of time.

        Raises:
            ApiError: the service does not answer, or refuses.
            NoEvidence: the answer is malformed.
        """
        names = "/".join(quote(name, safe="") for name in (namespace, test, metric))
        query = {"last": str(count), "verdict": PASSED}
        body = await _read(self._transport, Request("GET", f"/v1/series/{names}", query=query))
        try:
            return msgspec.json.decode(body, type=_Points).points
        except msgspec.MsgspecError as error:
            raise NoEvidence(f"the answer of the session service is malformed: {error}") from error

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()


class KeptEvidence:
    """The files that are kept of one session.

    Args:
        opened: the connection to the cluster.
        session: its document.

    Raises:
        NoEvidence: none is kept, or its address is not one that a token may be sent to.
    """

    def __init__(self, opened: ApiSession, session: Document) -> None:
        url = testsession_view.view(session).status.evidence.url
        self._path = urlsplit(url).path.rstrip("/")
        self._session = session
        self._transport = _connected(opened, url)

    async def files(self) -> list[KeptFile]:
        """The files, by path.

        Raises:
            ApiError: the service does not answer, or refuses.
        """
        body = await _read(self._transport, Request("GET", self._path))
        return msgspec.json.decode(body, type=_Listing).files

    async def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            ApiError: the service does not answer, or refuses.
        """
        return await _read(self._transport, Request("GET", f"{self._path}/{quote(path)}"))

    async def logs(self) -> list[tuple[ContainerLog, str]]:
        """The logs of the last attempt, each with its path."""
        found = []
        for file in await self.files():
            parts = file.path.split("/")
            if parts[0] == _LOGS and len(parts) == _LOG_PARTS and parts[1].isdecimal():
                found.append((int(parts[1]), parts[2], parts[3].removesuffix(".log"), file.path))
        last = max((attempt for attempt, *_ in found), default=0)
        return [
            (ContainerLog(component_of(self._session, pod), pod, container, attempt), path)
            for attempt, pod, container, path in sorted(found)
            if attempt == last
        ]

    async def lines(self, path: str) -> list[bytes]:
        """The lines of a log with their ends, without the times that are kept with them.

        Raises:
            ApiError: the service does not answer, or refuses.
        """
        kept = (await self.read(path)).splitlines(keepends=True)
        return [_KEPT_TIME.sub(b"", line) for line in kept]

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()


def _connected(opened: ApiSession, evidence_url: str) -> Transport:
    """To the service that keeps the evidence of a session, with the user's credentials."""
    url, access = urlsplit(evidence_url), opened.access
    if not url.netloc:
        raise NoEvidence("no service keeps the evidence of this session")
    if access is None or not access.ca_pem or access.insecure or url.scheme != "https":
        raise NoEvidence(
            "the evidence is kept by a service that the cluster's authority has not certified; "
            "the token of the kubeconfig is not sent there"
        )
    plain = replace(access, server=f"https://{url.netloc}", server_name="")
    return opened.env.connect(plain, opened.env.clock)


async def _read(transport: Transport, request: Request) -> bytes:
    response = await Client(transport).raw(request)
    body = response.body + b"".join([part async for part in watch_stream.chunks_of(response)])
    if response.status >= 400:
        raise from_status(response.status, body)
    return body
