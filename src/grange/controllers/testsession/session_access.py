"""Who may use the session service: components of a session by its token, readers by theirs."""

import hashlib
import hmac
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

from grange.api.kinds import TESTSESSION
from grange.api.kinds.testsession import TestSession
from grange.api.status import NotFound
from grange.client.client import Client
from grange.controllers.testsession.component_pods import component_pods
from grange.controllers.testsession.evidence_recorder import key_of
from grange.evidence.evidence_paths import EvidenceKey, checked_uid

V = TypeVar("V")

_MOST_SESSIONS = 10_000  # that are remembered


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What the service needs of a session.

    Attributes:
        key: where its evidence is.
        artifact_bytes: how much a component of it may keep.
        attempt: its last one.
        members: names of its components.
    """

    key: EvidenceKey
    artifact_bytes: int
    attempt: int
    members: frozenset[str]


class SessionAccess:
    """Checks tokens; remembers sessions.

    Args:
        client: finds sessions by their UIDs.
        key: that tokens of sessions are made with.
        reader_token: admits to the evidence of all sessions; empty for none.
    """

    def __init__(self, client: Client, key: bytes, reader_token: str) -> None:
        self._client, self._key, self._reader_token = client, key, reader_token
        self._known: dict[str, KnownSession] = {}
        self._absent: dict[str, None] = {}

    def token(self, uid: str) -> str:
        """What admits to a session."""
        return hmac.new(self._key, uid.encode(), hashlib.sha256).hexdigest()

    def remember(self, session: TestSession) -> None:
        """Spare the question whether this session exists."""
        _make_room(self._known)
        self._known[session.metadata.uid] = KnownSession(
            key_of(session),
            session.spec.evidence.max_artifact_bytes,
            session.status.attempt,
            frozenset(pod.member for pod in component_pods(session)),
        )

    def forget(self, uid: str) -> None:
        """The session has ended."""
        self._known.pop(uid, None)

    async def admitted(self, request: web.Request) -> tuple[KnownSession, int]:
        """The session in the path of a component's request, and the attempt.

        Raises:
            HTTPUnauthorized: the token is not that of the session.
            HTTPNotFound: there is no such session, or it has had no such attempt.
            ApiError: sessions cannot be listed.
        """
        uid, attempt = checked_uid(request.match_info["uid"]), int(request.match_info["attempt"])
        self._check_token(request, uid)
        known = self._known.get(uid)
        if known is None or known.attempt < attempt:
            session = await self._find(uid)
            if session is None:
                raise web.HTTPNotFound(text="there is no such session; it may have been deleted\n")
            self.remember(session)
            known = self._known[uid]
        # Each attempt has its own budgets: what names attempts freely has budgets without end.
        if known.attempt < attempt:
            raise web.HTTPNotFound(text=f"the session has had no attempt {attempt}\n")
        return known, attempt

    async def evidence_url(self, uid: str) -> str:
        """Where the evidence of a session is, by its status; empty where that has nothing.

        Raises:
            ApiError: sessions cannot be read.
        """
        session = await self._find(uid)
        if session is None:
            return ""
        if uid not in self._known:
            self.remember(session)
        return session.status.evidence.url

    async def _find(self, uid: str) -> TestSession | None:
        """The session as it is; all are listed only for a UID that comes for the first time."""
        if uid in self._absent:
            return None
        if (known := self._known.get(uid)) is not None:
            found = await self._read(known.key)
        else:
            listed = (await self._client.list(TESTSESSION)).items
            found = next((session for session in listed if session.metadata.uid == uid), None)
        if found is None:  # the server gives no UID twice
            _make_room(self._absent)
            self._absent[uid] = None
        return found

    async def _read(self, key: EvidenceKey) -> TestSession | None:
        try:
            session = await self._client.get(TESTSESSION, key.name, key.namespace)
        except NotFound:
            return None
        return session if session.metadata.uid == key.uid else None

    def check_reader_of(self, request: web.Request, uid: str) -> None:
        """Admit readers of all sessions, and components of this one.

        Raises:
            HTTPUnauthorized: the token is neither.
        """
        if not self._is_reader(request):
            self._check_token(request, uid)

    def check_reader(self, request: web.Request) -> None:
        """Admit readers of all sessions.

        Raises:
            HTTPUnauthorized: the token is not theirs.
        """
        if not self._is_reader(request):
            raise web.HTTPUnauthorized(text="a token for all sessions is needed\n")

    def _check_token(self, request: web.Request, uid: str) -> None:
        if not hmac.compare_digest(_bearer(request), self.token(uid).encode()):
            raise web.HTTPUnauthorized(text="the token is not that of the session\n")

    def _is_reader(self, request: web.Request) -> bool:
        wanted = self._reader_token.encode()
        return bool(wanted) and hmac.compare_digest(_bearer(request), wanted)


def _make_room(remembered: dict[str, V]) -> None:
    while len(remembered) >= _MOST_SESSIONS:
        del remembered[next(iter(remembered))]


def _bearer(request: web.Request) -> bytes:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip().encode(errors="replace") if scheme.lower() == "bearer" else b""
