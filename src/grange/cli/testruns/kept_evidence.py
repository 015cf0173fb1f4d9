"""What the session service has kept of a session, read with the user's credentials for the cluster.

The address is in the session's status, which others may write. A token is sent to it only over TLS,
to a server that the cluster's own authority has certified.
"""

from dataclasses import replace
from urllib.parse import quote, urlsplit

import msgspec

from grange.api.http import Request
from grange.api.meta import Document
from grange.api.status import from_status
from grange.base.errors import GrangeError
from grange.cli import testsession_view, watch_stream
from grange.cli.session import ApiSession
from grange.cli.testruns.component_logs import ContainerLog
from grange.client.client import Client
from grange.evidence.session_record import KeptFile

_LOGS = "logs"
_LOG_PARTS = 4  # logs/ATTEMPT/POD/CONTAINER.log


class NoEvidence(GrangeError):
    """There is no kept evidence that can be read; the message has the cause."""


class _Listing(msgspec.Struct):
    files: list[KeptFile]


class KeptEvidence:
    """The files that are kept of one session.

    Args:
        opened: the connection to the cluster.
        session: its document.

    Raises:
        NoEvidence: none is kept, or its address is not one that a token may be sent to.
    """

    def __init__(self, opened: ApiSession, session: Document) -> None:
        url = urlsplit(testsession_view.view(session).status.evidence.url)
        access = opened.access
        if not url.netloc:
            raise NoEvidence("no service keeps the evidence of this session")
        if access is None or not access.ca_pem or access.insecure or url.scheme != "https":
            raise NoEvidence(
                "the evidence is kept by a service that the cluster's authority has not certified; "
                "the token of the kubeconfig is not sent there"
            )
        plain = replace(access, server=f"https://{url.netloc}", server_name="")
        self._path = url.path.rstrip("/")
        self._transport = opened.env.connect(plain, opened.env.clock)

    async def files(self) -> list[KeptFile]:
        """The files, by path.

        Raises:
            ApiError: the service does not answer, or refuses.
        """
        return msgspec.json.decode(await self._read(self._path), type=_Listing).files

    async def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            ApiError: the service does not answer, or refuses.
        """
        return await self._read(f"{self._path}/{quote(path)}")

    async def logs(self) -> list[tuple[ContainerLog, str]]:
        """The logs of the last attempt, each with its path."""
        found = []
        for file in await self.files():
            parts = file.path.split("/")
            if parts[0] == _LOGS and len(parts) == _LOG_PARTS and parts[1].isdecimal():
                found.append((int(parts[1]), parts[2], parts[3].removesuffix(".log"), file.path))
        last = max((attempt for attempt, *_ in found), default=0)
        return [
            (ContainerLog(pod, pod, container, attempt), path)
            for attempt, pod, container, path in sorted(found)
            if attempt == last
        ]

    async def close(self) -> None:
        """Close the connection."""
        await self._transport.close()

    async def _read(self, path: str) -> bytes:
        response = await Client(self._transport).raw(Request("GET", path))
        body = response.body + b"".join([part async for part in watch_stream.chunks_of(response)])
        if response.status >= 400:
            raise from_status(response.status, body)
        return body
