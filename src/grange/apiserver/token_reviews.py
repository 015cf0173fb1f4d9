"""Whom a token stands for, asked by a server that was given one."""

from grange.api.http import User
from grange.api.meta import Document
from grange.api.status import BadRequest
from grange.apiserver.account_tokens import AUDIENCE, AccountTokens
from grange.apiserver.authn import Authenticator

_UNKNOWN = "the token is not known, has ended, or is for other audiences"


class TokenReviewer:
    """Answers what ``TokenReview`` asks.

    Args:
        accounts: knows the tokens of service accounts, which are for audiences.
        others: knows the tokens that are for this server alone; None where there are none.
    """

    def __init__(self, accounts: AccountTokens, others: Authenticator | None) -> None:
        self._accounts = accounts
        self._others = others

    def review(self, spec: Document) -> Document:
        """The status of a review.

        Raises:
            BadRequest: no token is given.
        """
        token = spec.get("token")
        if not token:
            raise BadRequest("spec.token: no token to review; set it")
        found = self._find(token, spec.get("audiences") or [AUDIENCE])
        if found is None:
            return {"authenticated": False, "user": {}, "error": _UNKNOWN}
        user, audiences = found
        info = {"username": user.name, "groups": list(user.groups)}
        return {"authenticated": True, "user": info, "audiences": audiences}

    def _find(self, token: str, audiences: list[str]) -> tuple[User, list[str]] | None:
        found = self._accounts.review(token, audiences)
        if found is None and self._others is not None and AUDIENCE in audiences:
            # Text from JSON may hold what no header can, and authenticators read headers.
            user = token.isascii() and self._others.authenticate(
                {"authorization": f"Bearer {token}"}
            )
            found = (user, [AUDIENCE]) if user else None
        return found
