"""Who asks: bearer tokens to users."""

import hmac
from collections.abc import Mapping
from typing import Protocol

from grange.api.http import User

_AUTHENTICATED = "system:authenticated"


class Authenticator(Protocol):
    """Turns a request's headers into a user."""

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The user, or None when the credential is missing or not known; header names in lower case."""


class StaticTokens:
    """A fixed table of bearer tokens.

    Args:
        users: who each token stands for; every user is put into ``system:authenticated``.
    """

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = tuple(
            (
                token.encode(),
                user
                if _AUTHENTICATED in user.groups
                else User(user.name, (*user.groups, _AUTHENTICATED)),
            )
            for token, user in users.items()
        )

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The token's user; every known token is compared, in constant time."""
        # A header may hold any bytes; those that are no text arrive as lone surrogates.
        given = bearer_token(headers).encode(errors="surrogateescape")
        found: User | None = None
        for token, user in self._users:
            if hmac.compare_digest(token, given) and token:
                found = user
        return found


class FirstOf:
    """Asks others in order; the first that knows the credential decides.

    Args:
        others: whom to ask.
    """

    def __init__(self, *others: Authenticator) -> None:
        self._others = others

    def authenticate(self, headers: Mapping[str, str]) -> User | None:
        """The user that the first of them names, or None."""
        for other in self._others:
            user = other.authenticate(headers)
            if user is not None:
                return user
        return None


def bearer_token(headers: Mapping[str, str]) -> str:
    """The bearer token of a request, or nothing."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
