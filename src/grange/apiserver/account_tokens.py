"""Tokens of service accounts: signed, limited in time, and good only while what they name is there.

A token is a JSON Web Token (RFC 7519) with an HMAC, in the shape of Kubernetes': the holder of one
can read whom it stands for, and only this server can make one. Nothing of a token is stored. It ends
with its time, with its account, and with the pod that it was made for.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from grange.api import codec
from grange.api.http import User
from grange.api.kinds.serviceaccount import MOUNTED_TOKEN_S
from grange.apiserver.authn import bearer_token
from grange.base.clock import Clock
from grange.store.interface import Store

AUDIENCE = "https://kubernetes.default.svc.cluster.local"
"""Who the tokens are for unless another audience is asked for; also who issues them."""

_MOUNTED_LIFE = timedelta(days=365)
_HEADER = {"alg": "HS256", "typ": "JWT"}
_TOKEN_MAX = 8_192
_GROUPS = ("system:serviceaccounts", "system:authenticated")


class Bound(msgspec.Struct, frozen=True):
    """An object that a token names: good only while there is one of this name and uid."""

    name: str = ""
    uid: str = ""


class _Claims(msgspec.Struct, frozen=True):
    namespace: str
    serviceaccount: Bound
    pod: Bound | None = None


class _Payload(msgspec.Struct, frozen=True):
    aud: list[str]
    exp: int
    nbf: int
    claims: _Claims = msgspec.field(name="kubernetes.io")


class _Meta(msgspec.Struct, frozen=True):
    uid: str = ""


class _Stored(msgspec.Struct, frozen=True):
    metadata: _Meta


_payload = msgspec.json.Decoder(_Payload)
_stored = msgspec.json.Decoder(_Stored)


class AccountTokens:
    """Makes tokens, and turns them into users.

    Args:
        key: what tokens are signed with; its holder can act as every account.
        store: where accounts and pods are.
        clock: wall time.
    """

    def __init__(self, key: bytes, store: Store, clock: Clock) -> None:
        self._key = key
        self._store = store
        self._clock = clock

    def issue(
        self,
        namespace: str,
        account: Bound,
        *,
        pod: Bound | None,
        audiences: list[str],
        seconds: int,
    ) -> tuple[str, datetime]:
        """A token, and the time after which its holder should have another."""
        now = self._clock.now()
        life = timedelta(seconds=seconds)
        lasting = seconds == MOUNTED_TOKEN_S and pod is not None and audiences == [AUDIENCE]
        claims: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": account.name, "uid": account.uid},
        }
        if pod is not None:
            claims["pod"] = {"name": pod.name, "uid": pod.uid}
        issued = int(now.timestamp())
        payload = {
            "aud": audiences,
            "exp": int((now + (_MOUNTED_LIFE if lasting else life)).timestamp()),
            "iat": issued,
            "iss": AUDIENCE,
            "kubernetes.io": claims,
            "nbf": issued,
            "sub": user_name(namespace, account.name),
        }
        signed = f"{_encoded(codec.encode_any(_HEADER))}.{_encoded(codec.encode_any(payload))}"
        return f"{signed}.{_encoded(self._signature(signed))}", now + life

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The account that the bearer token of a request stands for, or None."""
        found = self.review(bearer_token(headers), (AUDIENCE,))
        return found[0] if found else None

    def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]] | None:
        """The account of a token, and which of the audiences it is for; None unless it is for one."""
        signed, _, signature = token.rpartition(".")
        if not signed or len(token) > _TOKEN_MAX or not token.isascii():
            return None
        if not hmac.compare_digest(_encoded(self._signature(signed)), signature):
            return None
        try:
            payload = _payload.decode(_decoded(signed.partition(".")[2]))
        except (msgspec.MsgspecError, ValueError):
            return None  # signed by this server, in a shape of another release
        matched = [audience for audience in audiences if audience in payload.aud]
        user = self._user(payload) if matched else None
        return (user, matched) if user else None

    def _user(self, payload: _Payload) -> User | None:
        claims, now = payload.claims, self._clock.now().timestamp()
        if not payload.nbf <= now < payload.exp:
            return None
        account = claims.serviceaccount
        if not self._is_there("serviceaccounts", claims.namespace, account):
            return None
        if claims.pod is not None and not self._is_there("pods", claims.namespace, claims.pod):
            return None
        groups = (_GROUPS[0], f"{_GROUPS[0]}:{claims.namespace}", _GROUPS[1])
        return User(user_name(claims.namespace, account.name), groups)

    def _is_there(self, plural: str, namespace: str, bound: Bound) -> bool:
        entry = self._store.latest(f"/core/{plural}/{namespace}/{bound.name}")
        if entry is None:
            return False
        try:
            return _stored.decode(entry.value).metadata.uid == bound.uid
        except msgspec.MsgspecError:
            return False

    def _signature(self, signed: str) -> bytes:
        return hmac.digest(self._key, signed.encode(), hashlib.sha256)


def user_name(namespace: str, account: str) -> str:
    """The name of the user that an account is."""
    return f"system:serviceaccount:{namespace}:{account}"


def key_from(secret: str) -> bytes:
    """A key for tokens, from another secret that does not follow from it."""
    return hmac.digest(secret.encode(), b"tokens of service accounts", hashlib.sha256)


def _encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def _decoded(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error as error:
        raise ValueError(str(error)) from error
